"""Any CSV table, read by its column map."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any, get_args

from voxcast.errors import TableError
from voxcast.history.imports.lines import text_lines
from voxcast.history.imports.reading import Found, Reading, parsed
from voxcast.history.run_table import DTYPES
from voxcast.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.history.imports.column_map import Column, ColumnMap

SOURCE = "csv"
_ABSENT = {"", "-", "na", "n/a", "nan", "none", "null"}
_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


def read(path: Path, app: str | None, columns: ColumnMap) -> Reading:
    """Read a table by its map.

    Raises
    ------
    TableError
        If the table lacks a column of the map.
    """
    reading = Reading(SOURCE, path)
    seen: dict[tuple[str, ...], int] = {}
    for number, line in _records(reading, columns):
        names = columns.identity or tuple(sorted(line))
        key = tuple(line[name] for name in names)
        # Named runs come twice when exported twice; unnamed ones may just be equal.
        seen[key] = 1 if columns.identity else seen.get(key, 0) + 1
        identity = [columns.study, list(names), list(key), seen[key]]
        reading.record(number, lambda line=line, i=identity: _found(line, i, columns, app))  # type: ignore[misc]
    return reading


def _records(reading: Reading, columns: ColumnMap) -> Iterator[tuple[int, dict[str, str]]]:
    lines = text_lines(reading)
    number, first = next(lines, (0, ""))
    header = [name.strip() for name in _fields(first, columns.delimiter)]
    wanted = {source.column for source in columns.columns.values()}
    wanted |= {*columns.labels.values(), *columns.identity}
    if missing := sorted(wanted - set(header)):
        there = f"it has {', '.join(header)[:200]}"
        raise TableError(f"has no column {', '.join(missing)}", reading.path, there)
    for number, text in lines:
        try:
            fields = _fields(text, columns.delimiter)
        except TableError as error:
            reading.refuse(number, error.what)
            continue
        if len(fields) != len(header):
            reading.refuse(number, f"{len(fields)} columns where the header has {len(header)}")
        else:
            yield number, dict(zip(header, (field.strip() for field in fields), strict=True))


def _fields(text: str, delimiter: str) -> list[str]:
    # Line by line: read as a whole, one quote that is not closed swallows the lines after it.
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise TableError(f"quotes are wrong, every record must be one line: {error}") from error


def _found(
    line: dict[str, str], identity: list[object], columns: ColumnMap, app: str | None
) -> Found:
    known = dict(columns.constants)
    for target, source in columns.columns.items():
        known[target] = _value(target, source, line[source.column])
    known["app"] = app or known.get("app")
    if known.setdefault("outcome", "completed") is None:
        column = columns.columns["outcome"].column
        raise TableError(f"no outcome in {column}; map it by `values` if that says one")
    if known["outcome"] not in get_args(Outcome):
        raise TableError(f"outcome {known['outcome'][:40]!r} is none of ours; map it by `values`")
    known = {name: value for name, value in known.items() if value is not None}
    return Found(identity, known, {name: line[column] for name, column in columns.labels.items()})


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
            raise TableError(f"{source.column} is neither true nor false: {text[:40]!r}")
        return text.lower() in _TRUE
    number = parsed(source.column, text, lambda text: source.number(target, text))
    if not math.isfinite(number):
        raise TableError(f"{source.column} is {text[:40]}")
    return number if dtype == "float64" else round(number)
