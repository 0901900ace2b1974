"""``voxcast predict IMAGE…``: runtime and memory per configuration, predicted by the champion."""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxcast.cli.shared_options import add_champion_arguments, champion_of
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, one_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Configuration

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print the champion's quantiles, computed in this process or by the server at ``--url``."""
    parser = VerbParser(prog="voxcast predict", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE|TABLE.csv")
    parser.add_argument(
        "--model", type=Path, metavar="DIR",
        help="predict the rows of a table with a model of `voxcast fit`",
    )  # fmt: skip
    parser.add_argument(
        "--csv", type=Path, metavar="OUT", help="write the predictions to this file"
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
        return _predict_table(args)
    if not 0.5 < args.quantile < 1:
        raise ConfigError(f"must be between 0.5 and 1, not {args.quantile}", "--quantile")
    champion = champion_of(args)
    results: list[dict[str, Any]] = []
    code = 0
    for image in args.images:
        try:
            rows = champion.request_rows(image)
        except ImageError as error:  # the other images are still predicted
            logger.error("%s", one_line(error))
            code = EXIT_BAD_INPUT
            continue
        predictions = champion.predict(rows, args.quantile, explain=args.explain)
        results.append({"image": str(image), "predictions": predictions})
    if args.csv is not None:
        _write_csv(args.csv, results)
    if args.json:
        print(json.dumps(results, indent=2))
    if args.json or args.csv is not None:
        return code
    for result in results:
        for line in _lines(result["image"], result["predictions"], args.quantile):
            print(line)
    return code


def _write_csv(path: Path, results: list[dict[str, Any]]) -> None:
    """Write one row for each image and configuration."""
    from voxcast.files import atomic_path

    rows = [
        {"image": result["image"], **prediction}
        for result in results
        for prediction in result["predictions"]
    ]
    if not rows:  # no image could be used, which was said
        return
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _predict_table(args: argparse.Namespace) -> int:
    """Predict the rows of one table with a model of `voxcast fit`."""
    from voxcast.features.any_table import read_csv
    from voxcast.files import atomic_path
    from voxcast.models.table_model import SEPARATOR, TableModel

    if len(args.images) != 1:
        raise ConfigError("needs exactly one table", "--model")
    predictions = TableModel.load(args.model).predict(read_csv(args.images[0]))
    if args.csv is not None:
        with atomic_path(args.csv) as partial:
            predictions.to_csv(partial, index=False)
    if args.json:
        names = predictions["out_of_range"].map(lambda text: text.split(SEPARATOR) if text else [])
        print(json.dumps(predictions.assign(out_of_range=names).to_dict("records"), indent=2))
    elif args.csv is None:
        predictions.to_csv(sys.stdout, index=False)
    return 0


def _lines(image: str, predictions: list[dict[str, Any]], quantile: float) -> Iterator[str]:
    from voxcast.allocation.recommendation import caveats

    low, high = f"{100 * (1 - quantile):.3g} %", f"{100 * quantile:.3g} %"
    first = predictions[0]
    yield f"{os.path.basename(image)}: {first['app']}, model {first['family']}"  # noqa: PTH119
    runtime = f"{'runtime ' + low:>16}{'50 %':>14}{high:>14}"
    memory = f"{'memory ' + low:>18}{'50 %':>12}{high:>12}"
    yield f"  {'':14}{runtime}{memory}"
    for row in predictions:
        label = Configuration(row["device"], int(row["cpus"])).label
        times = [format_seconds(row[f"runtime_s_{q}"]) for q in ("lower", "median", "upper")]
        sizes = [format_bytes(row[f"peak_rss_bytes_{q}"]) for q in ("lower", "median", "upper")]
        yield (
            f"  {label:14}{times[0]:>16}{times[1]:>14}{times[2]:>14}"
            f"{sizes[0]:>18}{sizes[1]:>12}{sizes[2]:>12}"
        )
    for reason in json.loads(first.get("because") or "[]"):
        yield f"  {reason['text']}"
    if first["input_level"] == "header":
        yield "  from the header alone: voxels were not read, so the bounds are wider"
    for caveat in dict.fromkeys(c for row in predictions for c in caveats(row, quantile)):
        yield f"  {caveat}"
