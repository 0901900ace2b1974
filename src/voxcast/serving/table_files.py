"""Predictions for the rows of a table of any length, Parquet or CSV, batch by batch.

A row that the model refuses has no prediction, and the reason in a column ``error``; all other
rows are predicted.
"""

from __future__ import annotations

import contextlib
import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, ModelError, RequestError, TableError, one_line
from voxcast.files import atomic_path
from voxcast.serving.champion import predicted_or_refused
from voxcast.serving.rows import Row
from voxcast.serving.signature import INPUT_TYPES, OUTPUT_TYPES, REQUIRED_COLUMNS, VOLUME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet

    from voxcast.serving.champion import Predict

    Cells = dict[str, Any]

PARQUET, CSV = ".parquet", ".csv"
SUFFIXES = (PARQUET, CSV)
_BLOCK_BYTES = 2**20  # of a CSV file at a time
# At a time. Each is a row group of Parquet, which costs memory until the file is closed.
ROWS, ROWS_WITH_VOLUME = 1000, 50
ERROR = "error"
_NUMBERED = re.compile(r"^row \d+: ")


@dataclass(frozen=True)
class RowFile:
    """A file of rows that is open for reading.

    Attributes
    ----------
    schema : pyarrow.Schema
        Names and types of its columns; columns of a CSV file are texts.
    rows : int or None
        Number of rows, if the file states it.
    """

    path: Path
    schema: pa.Schema
    rows: int | None

    def batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order, at most ``size`` at a time.

        Raises
        ------
        TableError
            If the file is damaged.
        """
        import pyarrow.parquet

        with _readable(self.path), contextlib.ExitStack() as stack:
            if self.path.suffix == CSV:
                stored = stack.enter_context(_csv_reader(self.path, self.schema.names))
            else:
                # Without reading ahead, which would hold the whole file.
                file = pyarrow.parquet.ParquetFile(self.path, pre_buffer=False)
                stored = stack.enter_context(file).iter_batches(size, use_threads=False)
            for batch in stored:
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)


def open_rows(path: Path) -> RowFile:
    """Open a file of rows.

    Raises
    ------
    TableError
        If it is missing, damaged, of another kind, or names a column twice.
    """
    import pyarrow as pa

    if path.suffix not in SUFFIXES:
        raise TableError("is no table of rows", path, f"save it as {' or '.join(SUFFIXES)}")
    rows = None
    with _readable(path):
        if path.suffix == CSV:
            with path.open(newline="", encoding="utf-8-sig") as stream:
                names = [name.strip() for name in next(csv.reader(stream), [])]
            schema = pa.schema([(name, pa.string()) for name in names])
        else:
            import pyarrow.parquet

            with pyarrow.parquet.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
    if not schema.names:
        raise TableError("is empty", path)
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise TableError(f"names the column {name} twice", path, "rename one of them")
    return RowFile(path, schema, rows)


def _csv_reader(path: Path, names: list[str]) -> Any:
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, ReadOptions, open_csv

    # Texts throughout: the model gives the types, and a cell that has another refuses its row.
    types = dict.fromkeys(names, pa.string())
    convert = ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
    read = ReadOptions(block_size=_BLOCK_BYTES, column_names=names, skip_rows=1)
    return open_csv(path, read_options=read, convert_options=convert)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise TableError("no such file", path) from None
    except (pa.ArrowException, UnicodeDecodeError, csv.Error, OSError) as error:
        raise TableError(f"cannot be read: {one_line(error)}", path) from None


@contextlib.contextmanager
def written_rows(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Give a writer of batches of a new file, which replaces ``path`` when the block succeeds.

    Raises
    ------
    ConfigError
        If it is to be neither Parquet nor CSV, or CSV cannot have a column.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            "not the name of a table file", path, f"end it with {' or '.join(SUFFIXES)}"
        )
    import pyarrow.types
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

    is_csv = path.suffix == CSV
    for column in schema if is_csv else ():
        if pyarrow.types.is_nested(column.type):
            raise ConfigError(f"CSV cannot have the column {column.name}", path, "write .parquet")
    kind = CSVWriter if is_csv else ParquetWriter
    with atomic_path(path) as partial, kind(partial, schema) as writer:
        yield writer


@dataclass(frozen=True)
class BatchPredictions:
    """The predictions of a file.

    Attributes
    ----------
    predict : callable
        See `voxcast.serving.champion.Champion`.
    source : RowFile
        Rows with the columns of `voxcast.serving.signature`. Columns that the model does not have,
        such as the name of a subject, are copied.
    quantile, explain
        See `voxcast.serving.prediction_service.PredictionService.predict`.
    defaults : mapping of str to str
        Cells of rows in which they are missing, such as ``app``.
    """

    predict: Predict
    source: RowFile
    quantile: float
    explain: bool
    defaults: Mapping[str, str]

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns of `batches`.

        Raises
        ------
        TableError
            If the file lacks a column that is required.
        """
        import pyarrow as pa

        if missing := sorted(REQUIRED_COLUMNS - set(self.source.schema.names)):
            names = ", ".join(missing)
            then = "see docs/predicting.md; for a model of `voxcast learn TABLE` give --model"
            raise TableError(f"has no column {names}", self.source.path, then)
        kinds = {
            "string": pa.string(), "double": pa.float64(), "long": pa.int64(),
            "boolean": pa.bool_(),
        }  # fmt: skip
        predicted = [(name, kinds[kind]) for name, kind in OUTPUT_TYPES.items()]
        copied = [self.source.schema.field(name) for name in self._copied]
        return pa.schema([*copied, *predicted, (ERROR, pa.string())])

    @property
    def _copied(self) -> list[str]:
        """Columns of the file that neither the model nor an answer has."""
        taken = {*INPUT_TYPES, *OUTPUT_TYPES, ERROR}
        return [name for name in self.source.schema.names if name not in taken]

    def batches(self) -> Iterator[list[Cells]]:
        """Yield the rows of the answer in the order of the file, some at a time.

        Raises
        ------
        TableError
            If the file is damaged.
        ModelError
            If the model cannot be read, or a server does not answer.
        """
        size = ROWS_WITH_VOLUME if VOLUME in self.source.schema.names else ROWS
        for batch in self.source.batches(size):
            cells = batch.to_pylist()
            stated = [{n: cell for n, cell in row.items() if cell is not None} for row in cells]
            answers = self._answers([{**self.defaults, **row} for row in stated])
            yield [
                {name: row[name] for name in self._copied} | answer
                for row, answer in zip(cells, answers, strict=True)
            ]

    def _answers(self, rows: Sequence[Cells]) -> list[Cells]:
        """Return an answer or an error for each row."""
        answers: list[Cells] = [{} for _ in rows]
        # MLflow's protocol has no missing bytes: rows with a volume are a request of their own.
        requests: dict[bool, dict[int, Cells]] = {False: {}, True: {}}
        for n, row in enumerate(rows):
            try:
                cells = Row.of(row).cells()
            except ModelError as error:
                answers[n] = {ERROR: one_line(error)}
                continue
            sent = {name: cell for name, cell in cells.items() if name in INPUT_TYPES}
            requests[VOLUME in sent][n] = sent
        for request in requests.values():
            rows_asked = list(request.values())
            predicted = predicted_or_refused(
                self.predict, rows_asked, self.quantile, explain=self.explain
            )
            for n, answer in zip(request, predicted, strict=True):
                if isinstance(answer, RequestError):
                    answers[n] = {ERROR: _NUMBERED.sub("", answer.problem)}
                else:
                    answers[n] = {**answer, ERROR: None}
        return answers
