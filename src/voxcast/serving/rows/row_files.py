"""Files of request rows, Parquet or CSV, read and written batch by batch."""

from __future__ import annotations

import contextlib
import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet

PARQUET, CSV = ".parquet", ".csv"
SUFFIXES = (PARQUET, CSV)
_BLOCK_BYTES = 2**20  # of a CSV file at a time
# Each row group costs memory until the file is closed, and the reader's time.
_ROW_GROUP_BYTES = 2**24


class Writer(Protocol):
    """Takes the batches of a file; of pyarrow."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""


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
        with _readable(self.path):
            for batch in self._stored_batches(size):
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)

    def _stored_batches(self, size: int) -> Iterator[pa.RecordBatch]:
        if self.path.suffix == CSV:
            yield from _csv_reader(self.path, self.schema.names)
            return
        import pyarrow.parquet

        # Without reading ahead, which would hold the whole file.
        with pyarrow.parquet.ParquetFile(self.path, pre_buffer=False) as file:
            yield from file.iter_batches(size, use_threads=False)


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


class _RowGroups:
    """Puts batches together to row groups of a Parquet file."""

    def __init__(self, writer: pyarrow.parquet.ParquetWriter) -> None:
        self._writer = writer
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows."""
        import pyarrow as pa

        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._batches, self._bytes = [], 0


@contextlib.contextmanager
def written_rows(path: Path, schema: pa.Schema) -> Iterator[Writer]:
    """Give a writer of a new file, which replaces ``path`` when the block succeeds.

    Raises
    ------
    ConfigError
        If it is to be neither Parquet nor CSV, or CSV cannot have a column.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError("is no name of a table", path, f"end it with {' or '.join(SUFFIXES)}")
    import pyarrow.types
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

    is_csv = path.suffix == CSV
    for column in schema if is_csv else ():
        if pyarrow.types.is_nested(column.type):
            raise ConfigError(f"CSV cannot have the column {column.name}", path, "write .parquet")
    with atomic_path(path) as partial:
        if is_csv:
            with CSVWriter(partial, schema) as writer:
                yield writer
            return
        with ParquetWriter(partial, schema) as writer:
            row_groups = _RowGroups(writer)
            yield row_groups
            row_groups.flush()
