"""``voxcast predict IMAGE…``: runtime and memory per configuration, predicted by the champion.

Or for each row of one table of requests, ``.parquet`` or ``.csv``.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.cli.predict_rows import is_table, predict_rows
from voxcast.cli.shared_options import add_champion_arguments, champion_of
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, RequestError, one_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Configuration
from voxcast.serving.signature import QUANTILES
from voxcast.text_table import text_table

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.table_model import TableModel

WIDTH = 100  # of lines of text

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print the champion's quantiles, computed in this process or by the server at ``--url``."""
    parser = VerbParser(prog="voxcast predict", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE|TABLE")
    parser.add_argument(
        "--model", type=Path, metavar="DIR",
        help="predict the rows of a table with a model of `voxcast fit`",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="write the predictions to this file, .parquet or .csv",
    )  # fmt: skip
    parser.add_argument(
        "--csv", type=Path, metavar="OUT", help="write the predictions to this file, as CSV"
    )
    parser.add_argument(
        "--quantile", type=float, default=0.95, metavar="P",
        help="probability of the upper bounds (default 0.95)",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action="store_true",
        help="show what changed the runtime most, against a usual run",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_champion_arguments(parser)
    args = parser.parse_intermixed_args(argv)
    if args.model is not None:
        if args.out is not None:
            raise ConfigError("is not for --model", "--out", "use --csv")
        return _predict_table(args)
    if not 0.5 < args.quantile < 1:
        raise ConfigError(f"must be between 0.5 and 1, not {args.quantile}", "--quantile")
    if any(is_table(path) for path in args.images):
        return predict_rows(args)
    if args.out is not None and not is_table(args.out):
        raise ConfigError("is no name of a table", args.out, "end it with .parquet or .csv")
    champion = champion_of(args)
    results: list[dict[str, Any]] = []
    code = 0
    for image in args.images:
        try:
            rows = champion.request_rows(image)
            predictions = champion.predict(rows, args.quantile, explain=args.explain)
        except (ImageError, RequestError) as error:  # the other images are still predicted
            name = f"{image}: " if isinstance(error, RequestError) else ""
            logger.error("%s%s", name, one_line(error))
            code = EXIT_BAD_INPUT
            continue
        results.append({"image": str(image), "predictions": predictions})
    files = [path for path in (args.csv, args.out) if path is not None]
    for path in files:
        _write(path, results)
    if args.json:
        print(json.dumps(results, indent=2))
    if args.json or files:
        return code
    for result in results:
        for line in prediction_lines(result["image"], result["predictions"], args.quantile):
            print(line)
    return code


def _write(path: Path, results: list[dict[str, Any]]) -> None:
    """Write one row for each image and configuration, as CSV unless the name says Parquet."""
    from voxcast.files import atomic_path

    rows = [
        {"image": result["image"], **prediction}
        for result in results
        for prediction in result["predictions"]
    ]
    if not rows:  # no image could be used, which was said
        return
    with atomic_path(path) as partial:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), partial)
        else:
            with partial.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    count = f"{len(results)} images" if len(results) > 1 else "1 image"
    logger.info("%s: predictions of %s, %d rows", path, count, len(rows))


def _predict_table(args: argparse.Namespace) -> int:
    """Predict the rows of one table with a model of `voxcast fit`."""
    from voxcast.features.csv_table import read_csv
    from voxcast.files import atomic_path
    from voxcast.models.table_model import SEPARATOR, TableModel

    if len(args.images) != 1:
        raise ConfigError("needs exactly one table", "--model")
    model = TableModel.load(args.model)
    predictions = model.predict(read_csv(args.images[0], model.columns.texts))
    if args.csv is not None:
        with atomic_path(args.csv) as partial:
            predictions.to_csv(partial, index=False)
        count = f"{len(predictions)} rows" if len(predictions) > 1 else "1 row"
        calibrated = int(predictions["calibrated"].sum())
        logger.info("%s: %s predicted, %d with a calibrated bound", args.csv, count, calibrated)
    if args.json:
        lists = {
            column: predictions[column].map(lambda text: text.split(SEPARATOR) if text else [])
            for column in ("out_of_range", "reason")
        }
        print(json.dumps(predictions.assign(**lists).to_dict("records"), indent=2))
    elif args.csv is None:
        for line in (*_row_lines(predictions), *_reason_lines(predictions, model)):
            print(line)
    return 0


def _row_lines(predictions: pd.DataFrame) -> Iterator[str]:
    """Yield the predictions of a table's rows, numbered from 1, with four digits."""
    rows: list[tuple[str, ...]] = [("row", "prediction", "upper", "calibrated", "out of range")]
    for number, row in enumerate(predictions.itertuples(index=False), start=1):
        bound = "yes" if row.calibrated else "no"
        values = (f"{row.prediction:.4g}", f"{row.upper:.4g}")
        rows.append((str(number), *values, bound, str(row.out_of_range)))
    yield from (line.rstrip() for line in text_table(rows, ">>><<").splitlines())


def _reason_lines(predictions: pd.DataFrame, model: TableModel) -> Iterator[str]:
    """Yield why bounds are not calibrated, a line for each reason."""
    from voxcast.models.table_model import CUT_OFF, NEW_CONFIGURATION, OUT_OF_RANGE, SEPARATOR

    evidence = model.evidence()
    texts = {
        OUT_OF_RANGE: "the trend of the table is continued; how far that holds is not known",
        NEW_CONFIGURATION: "the bound is about new runs of the configurations in the table",
        CUT_OFF: "the bound ends at ten times all that was measured, so it may be too low",
        evidence.reason: f"{evidence.text()}; for a calibrated one {evidence.advice()}",
    }
    reasons = {reason for text in predictions["reason"] for reason in text.split(SEPARATOR)}
    for reason, text in texts.items():
        if reason and reason in reasons:
            yield from textwrap.wrap(f"{reason}: {text}", WIDTH, subsequent_indent="  ")


def prediction_lines(
    image: str, predictions: list[dict[str, Any]], quantile: float
) -> Iterator[str]:
    """Yield the predictions of an image as a table, with remarks."""
    from voxcast.allocation.recommendation import caveats, input_lines, machine_line

    low, high = f"{100 * (1 - quantile):.3g} %", f"{100 * quantile:.3g} %"
    first = predictions[0]
    yield f"{os.path.basename(image)}: {first['app']}, model {first['family']}"  # noqa: PTH119
    if line := machine_line(first):
        yield f"  {line}"
    table: list[tuple[str, ...]] = [
        ("", f"runtime {low}", "50 %", high, f"memory {low}", "50 %", high)
    ]
    for row in predictions:
        label = Configuration(row["device"], int(row["cpus"]), int(row["gpus"])).label
        times = [format_seconds(row[f"runtime_s_{q}"]) for q in QUANTILES]
        sizes = [format_bytes(row[f"peak_rss_bytes_{q}"]) for q in QUANTILES]
        table.append((label, *times, *sizes))
    yield from text_table(table, "<>>>>>>", indent="  ").splitlines()
    for reason in json.loads(first.get("because") or "[]"):
        yield f"  {reason['text']}"
    for line in input_lines(first):
        yield f"  {line}"
    for caveat in dict.fromkeys(c for row in predictions for c in caveats(row, quantile)):
        yield f"  {caveat}"
