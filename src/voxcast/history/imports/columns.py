"""CSV tables, read by a column map."""

from __future__ import annotations

import csv
import math
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from voxcast.errors import TableError
from voxcast.runs.delimited import parsed
from voxcast.history.imports.file_records import FileRecords, ImportedRun
from voxcast.runs.delimited import text_lines
from voxcast.history.run_table import DTYPES
from voxcast.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.history.imports.column_map import Column, ColumnMap

SOURCE = "csv"
MAX_ROW_LINES = 100
_ABSENT = {"", "-", "na", "n/a", "nan", "none", "null"}
_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


def read(path: Path, app: str | None, columns: ColumnMap) -> FileRecords:
    """Read a table by its column map.

    Raises
    ------
    TableError
        If the table lacks a column of the map, or names one twice.
    """
    records = FileRecords(SOURCE, path)
    seen: dict[tuple[str, ...], int] = {}
    for number, line in _records(records, columns):
        names = columns.identity or tuple(sorted(line))
        key = tuple(line[name] for name in names)
        # Runs with an identity are duplicates if exported twice; without one, lines may be equal.
        seen[key] = 1 if columns.identity else seen.get(key, 0) + 1
        identity = [columns.study, list(names), list(key), seen[key]]
        records.record(number, partial(imported_run, line, identity, columns, app))
    return records


def _records(records: FileRecords, columns: ColumnMap) -> Iterator[tuple[int, dict[str, str]]]:
    rows = _rows(records, columns.delimiter)
    _, header = next(rows, (0, []))
    if records.bad:
        raise TableError(f"line 1 is no header: {records.bad[0].reason}", records.path)
    if duplicates := sorted({name for name in header if name and header.count(name) > 1}):
        raise TableError(
            f"names the column {', '.join(duplicates)} twice", records.path, "rename one of them"
        )
    needed = {source.column for source in columns.columns.values()}
    needed |= {*columns.labels.values(), *columns.identity}
    if missing := sorted(needed - set(header)):
        available = f"it has {', '.join(header)[:200]}"
        raise TableError(f"has no column {', '.join(missing)}", records.path, available)
    for number, fields in rows:
        if len(fields) != len(header):
            records.refuse(number, f"{len(fields)} columns where the header has {len(header)}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _rows(records: FileRecords, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record with its first line; a quoted cell may hold line breaks.

    A quote that is not closed within `MAX_ROW_LINES` lines invalidates its own line only.
    """
    lines = text_lines(records)
    ahead: deque[tuple[int, str]] = deque()
    while True:
        ahead.extend(islice(lines, MAX_ROW_LINES - len(ahead)))
        if not ahead:
            return
        number = ahead[0][0]
        reader = csv.reader((f"{text}\n" for _, text in ahead), delimiter=delimiter, strict=True)
        try:
            fields = next(reader)
        except csv.Error as error:
            records.refuse(number, f"invalid quotes: {error}")
            ahead.popleft()
            continue
        for _ in range(reader.line_num):
            ahead.popleft()
        yield number, [field.strip() for field in fields]


def imported_run(
    line: dict[str, str], identity: list[object], columns: ColumnMap, app: str | None
) -> ImportedRun:
    """Return the run of a record, by its cells.

    Parameters
    ----------
    line : dict of str to str
        Cells by column; all columns of the map.

    Raises
    ------
    TableError
        If it has no outcome, or an unknown one.
    """
    values, unread = dict(columns.constants), []
    for target, source in columns.columns.items():
        try:
            values[target] = _value(target, source, line[source.column], columns)
        except TableError as error:
            values[target] = None
            unread.append(error.problem)
    name = values.get("app")
    values["app"] = app or name
    if "outcome" in columns.columns:
        _check_outcome(columns.columns["outcome"].column, values["outcome"])
    return ImportedRun(
        identity,
        {"outcome": "completed"} | values,
        {label: line[column] for label, column in columns.labels.items()},
        name=name or "",
        unread=unread,
    )


def _check_outcome(column: str, outcome: str | None) -> None:
    if outcome is None:
        raise TableError(f"column {column}: no outcome; map its texts by `values`")
    if outcome not in get_args(Outcome):
        problem = f"outcome {outcome[:40]!r} is unknown; map it by `values`"
        raise TableError(f"column {column}: {problem}")


def _value(target: str, source: Column, text: str, columns: ColumnMap) -> Any:
    if text in source.values:
        text = str(source.values[text])
    if text.lower() in _ABSENT:
        return None
    dtype = DTYPES[target]
    if dtype == "str":
        return text
    if dtype == "bool":
        if text.lower() not in _TRUE | _FALSE:
            raise TableError(f"column {source.column}: neither true nor false: {text[:40]!r}")
        return text.lower() in _TRUE
    number = parsed(
        source.column, text, lambda text: source.number(target, columns.with_point(text))
    )
    if not math.isfinite(number):
        raise TableError(f"column {source.column}: not a finite number: {text[:40]!r}")
    return number if dtype == "float64" else round(number)
