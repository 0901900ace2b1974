"""Predictions for the rows of a table, for ``voxcast predict ROWS.parquet``."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.run_options import parameters_of
from voxcast.errors import EXIT_BAD_INPUT, ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from voxcast.serving.champion import Predict
    from voxcast.serving.table_files import BatchPredictions

    Write = Callable[[list[dict[str, Any]]], None]

NAMED_ROWS = 10  # refused rows that are named in the log

logger = logging.getLogger(__name__)


def is_table(path: Path) -> bool:
    """Whether a path names a table, not an image."""
    return path.suffix in (".parquet", ".csv")


def predict_rows(args: argparse.Namespace) -> int:
    """Predict the rows of one file; return the exit code, 2 if a row was refused.

    Raises
    ------
    ConfigError
        If an option is for images only.
    VoxcastError
        If the table or the model cannot be used.
    """
    if len(args.images) != 1:
        raise ConfigError("a table of rows is predicted by itself", "predict", "name it alone")
    for name in ("cpus", "gpus", "device", "header_only"):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError("is for images", option, "the rows of a table say it")
    if args.out is None and not args.json:
        raise ConfigError("is needed for a table", "--out", "or --json for a list on stdout")
    from voxcast.log import progress
    from voxcast.serving.table_files import ERROR, open_rows

    source = open_rows(args.images[0])
    batch_predictions = _batch_predictions(args, source)
    number, refused = 0, 0
    with (
        _output(args.out, batch_predictions) as write,
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
    if args.out is not None:
        logger.info("%s: predictions of %d rows", args.out, number - refused)
    return EXIT_BAD_INPUT if refused else 0


def _batch_predictions(args: argparse.Namespace, source: Any) -> BatchPredictions:
    from voxcast.files import canonical_json
    from voxcast.serving.table_files import BatchPredictions

    predict, lab, app_parameters = _model(args)
    parameters = parameters_of(args.parameters, app_parameters)
    cells = {
        "app": args.app, "host": args.machine,
        "parameters_json": canonical_json(parameters) if parameters else None,
    }  # fmt: skip
    defaults = {name: text for name, text in cells.items() if text is not None}
    return BatchPredictions(predict, source, args.quantile, args.explain, defaults, lab)


def _model(
    args: argparse.Namespace,
) -> tuple[Predict, Collection[str], dict[str, Any] | None]:
    """Return what predicts, the characteristics of a laboratory, and the parameters of ``--app``.

    A server states neither.
    """
    if args.url:
        from voxcast.serving.client import Client

        return Client(args.url).predict_rows, (), None
    from voxcast.serving.prediction_service import PredictionService

    model = PredictionService.of_project(project.require(args.project))
    names = [*model.bundle.facts] if args.app is None else [args.app]
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
