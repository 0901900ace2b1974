"""CSV tables, read by a column map."""

from __future__ import annotations

import csv
import math
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from voxcast.errors import TableError
from voxcast.history.imports.cells import parsed
from voxcast.history.imports.file_records import FileRecords, ImportedRun
from voxcast.history.imports.lines import text_lines
from voxcast.history.run_table import DTYPES
from voxcast.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.history.imports.column_map import Column, ColumnMap

SOURCE = "csv"
_ABSENT = {"", "-", "na", "n/a", "nan", "none", "null"}
_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


def read(path: Path, app: str | None, columns: ColumnMap) -> FileRecords:
    """Read a table by its column map.

    Raises
    ------
    TableError
        If the table lacks a column of the map.
    """
    records = FileRecords(SOURCE, path)
    seen: dict[tuple[str, ...], int] = {}
    for number, line in _records(records, columns):
        names = columns.identity or tuple(sorted(line))
        key = tuple(line[name] for name in names)
        # Runs with an identity are duplicates if exported twice; without one, lines may be equal.
        seen[key] = 1 if columns.identity else seen.get(key, 0) + 1
        identity = [columns.study, list(names), list(key), seen[key]]
        records.record(number, partial(_imported_run, line, identity, columns, app))
    return records


def _records(records: FileRecords, columns: ColumnMap) -> Iterator[tuple[int, dict[str, str]]]:
    lines = text_lines(records)
    number, header_line = next(lines, (0, ""))
    header = [name.strip() for name in _fields(header_line, columns.delimiter)]
    needed = {source.column for source in columns.columns.values()}
    needed |= {*columns.labels.values(), *columns.identity}
    if missing := sorted(needed - set(header)):
        available = f"it has {', '.join(header)[:200]}"
        raise TableError(f"has no column {', '.join(missing)}", records.path, available)
    for number, text in lines:
        try:
            fields = _fields(text, columns.delimiter)
        except TableError as error:
            records.refuse(number, error.problem)
            continue
        if len(fields) != len(header):
            records.refuse(number, f"{len(fields)} columns where the header has {len(header)}")
        else:
            yield number, dict(zip(header, (field.strip() for field in fields), strict=True))


def _fields(text: str, delimiter: str) -> list[str]:
    # Line by line, so that an unclosed quote does not swallow the lines after it.
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise TableError(f"invalid quotes; every record must be on one line: {error}") from error


def _imported_run(
    line: dict[str, str], identity: list[object], columns: ColumnMap, app: str | None
) -> ImportedRun:
    values, unread = dict(columns.constants), []
    for target, source in columns.columns.items():
        try:
            values[target] = _value(target, source, line[source.column])
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


def _value(target: str, source: Column, text: str) -> Any:
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
    number = parsed(source.column, text, lambda text: source.number(target, text))
    if not math.isfinite(number):
        raise TableError(f"column {source.column}: not a finite number: {text[:40]!r}")
    return number if dtype == "float64" else round(number)
