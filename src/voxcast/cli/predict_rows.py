"""Predictions for the rows of a table, and predictions written as a table."""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from voxcast.cli.question import parameters_of
from voxcast.errors import EXIT_BAD_INPUT, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from voxcast.cli.question import Question
    from voxcast.serving.champion import Predict
    from voxcast.serving.table_files import BatchPredictions

    Write = Callable[[list[dict[str, Any]]], None]

NAMED_ROWS = 10  # refused rows that are named in the log

logger = logging.getLogger(__name__)


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
    from voxcast.log import progress
    from voxcast.serving.table_files import ERROR, open_rows

    source = open_rows(tables[0])
    batch_predictions = _batch_predictions(question, source, quantile, explain)
    number, refused = 0, 0
    with (
        _output(out, batch_predictions) as write,
        progress(total=source.rows, desc="predicting", unit="row") as bar,
    ):
        for rows in batch_predictions.batches():
            for row in rows:
                number += 1
                if row[ERROR] is not None:
                    refused += 1
                    if refused <= NAMED_ROWS:
                        logger.error("%s: row %d: %s", source.path, number, row[ERROR])
            write(rows)
            bar.update(len(rows))
    if refused:
        named = f", {NAMED_ROWS} of them above" if refused > NAMED_ROWS else ""
        logger.error("%s: %d of %d rows refused%s", source.path, refused, number, named)
    if out is not None:
        logger.info("%s: predictions of %d rows", out, number - refused)
    return EXIT_BAD_INPUT if refused else 0


def _batch_predictions(
    question: Question, source: Any, quantile: float, explain: bool
) -> BatchPredictions:
    from voxcast.files import canonical_json
    from voxcast.serving.table_files import BatchPredictions

    predict, lab, app_parameters = _model(question)
    parameters = parameters_of(question.parameters, app_parameters)
    cells = {
        "app": question.app, "host": question.machine,
        "parameters_json": canonical_json(parameters) if parameters else None,
    }  # fmt: skip
    defaults = {name: text for name, text in cells.items() if text is not None}
    return BatchPredictions(predict, source, quantile, explain, defaults, lab)


def _model(question: Question) -> tuple[Predict, Collection[str], dict[str, Any] | None]:
    """Return what predicts, the characteristics of a laboratory, and the parameters of ``--app``.

    A server states neither.
    """
    if question.url is not None:
        from voxcast.serving.client import Client

        return Client(question.url).predict_rows, (), None
    model = question.service()
    names = [*model.bundle.facts] if question.app is None else [question.app]
    parameters = model.bundle.app_named(names[0]).parameters if len(names) == 1 else None
    return model.predict, model.bundle.lab_characteristics, parameters


@contextlib.contextmanager
def _output(path: Path | None, batch_predictions: BatchPredictions) -> Iterator[Write]:
    """Give what writes the rows: into a file, or as a JSON list on stdout."""
    schema = batch_predictions.schema
    if path is None:
        yield from _json_list()
        return
    import pyarrow as pa

    from voxcast.serving.table_files import written_rows

    with written_rows(path, schema) as writer:
        yield lambda rows: writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))


def _json_list() -> Iterator[Write]:
    separator = "[\n"

    def write(rows: list[dict[str, Any]]) -> None:
        nonlocal separator
        for row in rows:
            sys.stdout.write(separator + json.dumps(row, default=str))
            separator = ",\n"

    yield write
    print("[]" if separator == "[\n" else "\n]")
