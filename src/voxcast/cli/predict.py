"""``voxcast predict``: runtime and memory of images per allocation, or of the rows of a table.

Predictions for the rows of a table, and predictions written as a table.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, RequestError, one_line
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import Configuration
from voxcast.serving.signature import QUANTILES
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from voxcast.api.question import Question
    from voxcast.models.table_model import TableModel

WIDTH = 100  # of lines of text

logger = logging.getLogger(__name__)


def predict(
    images: Annotated[list[Path], Argument(metavar="IMAGE...|TABLE", show_default=False)],
    wanted: options.ModelQuestion,
    machine: options.Machine = None,
    header_only: options.HeaderOnly = False,
    quantile: Annotated[
        float, Option("--quantile", metavar="P", help="Probability of the upper bounds.")
    ] = 0.95,
    explain: Annotated[
        bool, Option("--explain", help="Show what changed the runtime most, against a usual run.")
    ] = False,
    out: Annotated[
        Path | None,
        Option("--out", metavar="FILE", help="Write the predictions to a .parquet or .csv file."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Predict runtime and memory of an application on images, for each allocation.

    A table of requests, ``.parquet`` or ``.csv``, is predicted row by row; so are the rows of any
    table by a model of `voxcast learn TABLE`.
    """
    from voxcast.models.table_model import MODEL_FILE

    if wanted.model is not None and (Path(wanted.model) / MODEL_FILE).is_file():
        return _predict_table(images, Path(wanted.model), out, as_json)
    if not 0.5 < quantile < 1:
        raise ConfigError(f"must be between 0.5 and 1, not {quantile}", "--quantile")
    question = wanted.question(header_only=header_only, machine=machine)
    if any(is_table(path) for path in images):
        return predict_rows(images, question, quantile, explain, out, as_json=as_json)
    if out is not None and not is_table(out):
        raise ConfigError("is no name of a table", out, "end it with .parquet or .csv")
    champion = question.champion()
    results: list[dict[str, Any]] = []
    code = 0
    for image in images:
        try:
            rows = champion.request_rows(image)
            predictions = champion.predict(rows, quantile, explain=explain)
        except (ImageError, RequestError) as error:  # the other images are still predicted
            name = f"{image}: " if isinstance(error, RequestError) else ""
            logger.error("%s%s", name, one_line(error))
            code = EXIT_BAD_INPUT
            continue
        results.append({"image": str(image), "predictions": predictions})
    if out is not None:
        write_predictions(out, results)
    lines = (
        line
        for result in (results if out is None else ())
        for line in prediction_lines(result["image"], result["predictions"], quantile)
    )
    return options.show(results, lines, as_json=as_json) or code


def _predict_table(tables: list[Path], folder: Path, out: Path | None, as_json: bool) -> int:
    """Predict the rows of one table with a model of `voxcast learn TABLE`."""
    from voxcast.features.any_table import read_csv
    from voxcast.files import atomic_path
    from voxcast.models.table_model import SEPARATOR, TableModel

    if len(tables) != 1:
        raise ConfigError("needs exactly one table", "--model")
    model = TableModel.load(folder)
    predictions = model.predict(read_csv(tables[0], model.columns.read_as_text))
    if out is not None:
        with atomic_path(out) as partial:
            predictions.to_csv(partial, index=False)
        count = counted(len(predictions), "row")
        calibrated = int(predictions["calibrated"].sum())
        logger.info("%s: %s predicted, %d with a calibrated bound", out, count, calibrated)
    lists = {
        column: predictions[column].map(lambda text: text.split(SEPARATOR) if text else [])
        for column in ("out_of_range", "reason")
    }
    content = predictions.assign(**lists).to_dict("records")
    lines = (*_row_lines(predictions), *_reason_lines(predictions, model)) if out is None else ()
    return options.show(content, lines, as_json=as_json)


def _row_lines(predictions: pd.DataFrame) -> Iterator[str]:
    """Yield the predictions of a table's rows, numbered from 1, with four digits."""
    rows: list[tuple[str, ...]] = [("row", "prediction", "upper", "calibrated", "out of range")]
    for number, row in enumerate(predictions.itertuples(index=False), start=1):
        bound = "yes" if row.calibrated else "no"
        values = (f"{row.prediction:.4g}", f"{row.upper:.4g}")
        rows.append((str(number), *values, bound, str(row.out_of_range)))
    yield text_table(rows, ">>><<")


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
    yield text_table(table, "<>>>>>>", indent="  ")
    for reason in json.loads(first.get("because") or "[]"):
        yield f"  {reason['text']}"
    for line in input_lines(first):
        yield f"  {line}"
    for caveat in dict.fromkeys(c for row in predictions for c in caveats(row, quantile)):
        yield f"  {caveat}"


NAMED_ROWS = 10  # refused rows that are named in the log


def is_table(path: Path) -> bool:
    """Whether a path names a table, not an image."""
    return path.suffix in (".parquet", ".csv")


def write_predictions(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write one row for each image and configuration, as CSV unless the name says Parquet."""
    from voxcast.files import atomic_path

    rows = [
        {"image": result["image"], **prediction}
        for result in results
        for prediction in result["predictions"]
    ]
    if not rows:  # no image could be used, which was said
        return
    import pandas as pd

    table = pd.DataFrame(rows)
    with atomic_path(path) as partial:
        if path.suffix == ".parquet":
            table.to_parquet(partial, index=False)
        else:
            table.to_csv(partial, index=False)
    logger.info("%s: predictions of %s, %d rows", path, counted(len(results), "image"), len(rows))


def predict_rows(
    tables: Sequence[Path],
    question: Question,
    quantile: float,
    explain: bool,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Predict the rows of one file; return the exit code, 2 if a row was refused.

    Raises
    ------
    ConfigError
        If an option is for images only.
    VoxcastError
        If the table or the model cannot be used.
    """
    if len(tables) != 1:
        raise ConfigError("a table of rows is predicted by itself", "predict", "name it alone")
    for name in ("cpus", "gpus", "header_only"):
        if getattr(question, name):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError("is for images", option, "the rows of a table say it")
    if out is None and not as_json:
        raise ConfigError("is needed for a table", "--out", "or --json for a list on stdout")
    import pyarrow as pa

    from voxcast.log import progress
    from voxcast.serving.table_files import ERROR, open_rows, written_rows

    source = open_rows(tables[0])
    batch_predictions = question.batches(source, quantile, explain=explain)
    schema, printed = batch_predictions.schema, list[dict[str, Any]]()
    number, refused = 0, 0
    with contextlib.ExitStack() as stack:
        writer = None if out is None else stack.enter_context(written_rows(out, schema))
        bar = stack.enter_context(progress(total=source.rows, desc="predicting", unit="row"))
        for rows in batch_predictions.batches():
            for row in rows:
                number += 1
                if row[ERROR] is not None:
                    refused += 1
                    if refused <= NAMED_ROWS:
                        logger.error("%s: row %d: %s", source.path, number, row[ERROR])
            if writer is None:
                printed += rows
            else:
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
            bar.update(len(rows))
    if refused:
        named = f", {NAMED_ROWS} of them above" if refused > NAMED_ROWS else ""
        logger.error("%s: %d of %d rows refused%s", source.path, refused, number, named)
    if out is None:
        print(json.dumps(printed, indent=2, default=str))
    else:
        logger.info("%s: predictions of %d rows", out, number - refused)
    return EXIT_BAD_INPUT if refused else 0
