"""CSV tables, read by a column map: columns of the history from columns of the table.

.. code-block:: yaml

    delimiter: ","                      # the default
    decimal: "."                        # the default; "," for 1.234,5
    columns:
      app: tool                         # column of the history: column of the table
      runtime_s: {column: wall, unit: min}
      peak_rss_bytes: {column: mem, unit: GiB}
      outcome: {column: status, values: {ok: completed, killed: out_of_memory}}
    constants: {device: cpu, cpus: 4}
    labels: {dataset: study}            # name of a label: column of the table
    identity: [job]                     # columns that identify a run; all of them by default
    study: atlas-2                      # distinguishes tables with equal identities
"""

from __future__ import annotations

import csv
import math
import re
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

import yaml

from voxcast.errors import ConfigError, TableError, VoxcastError
from voxcast.quantities import (
    nextflow_bytes,
    nextflow_seconds,
    parse_bytes,
    parse_seconds,
    pbs_bytes,
    pbs_seconds,
    sge_bytes,
    sge_seconds,
    slurm_bytes,
    slurm_seconds,
)
from voxcast.records import Outcome
from voxcast.runs.delimited import parsed, text_lines
from voxcast.runs.imported import ImportedRun, Records
from voxcast.runs.table import DTYPES, KINDS, METRONOME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

SET_BY_IMPORT = ("cell_key", "source", "labels_json")  # metronomes run beside measured runs only
TARGETS = tuple(name for name in DTYPES if name not in (*SET_BY_IMPORT, *METRONOME))
# Formats of programs, which are not a single unit.
_PARSERS: dict[str, dict[str, Callable[[str], float]]] = {
    "_s": {
        "": parse_seconds, "slurm": slurm_seconds, "nextflow": nextflow_seconds,
        "pbs": pbs_seconds, "sge": sge_seconds,
    },
    "_bytes": {
        "": parse_bytes, "slurm": slurm_bytes, "nextflow": nextflow_bytes,
        "pbs": pbs_bytes, "sge": sge_bytes,
    },
}  # fmt: skip
_PROGRAMS = ("slurm", "nextflow", "pbs", "sge")
_NUMBER = re.compile(r"([+-]?\d[\d.,]*)(.*)", re.DOTALL)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+")  # 1.234: thousands, or a decimal point
_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)(?:,\d+)?")
_SHORT_CLOCK = re.compile(r"\d+:\d{1,2}")


@dataclass(frozen=True)
class Column:
    """The source of a value: a column, the unit of plain numbers, and replacements of texts."""

    column: str
    unit: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def number(self, target: str, text: str) -> float:
        """Parse a number for the column ``target`` of the history, in its unit.

        Raises
        ------
        ConfigError, ValueError
            If the text is not a number, or its unit is neither of time nor of size, or a clock
            time such as 12:30 stands in a column with another unit.
        """
        if self.unit and self.unit not in _PROGRAMS and _SHORT_CLOCK.fullmatch(text):
            raise ConfigError(
                f"{text!r} is a clock time where the unit is {self.unit}: leave out the unit for "
                "hours and minutes; unit slurm reads minutes and seconds"
            )
        parsers = _parsers(target)
        is_plain = text[-1:].isdecimal() or text.endswith(".")
        if not parsers or (not self.unit and is_plain and ":" not in text):
            return float(text)
        if self.unit in parsers:
            return parsers[self.unit](text)
        return parsers[""](f"{text}{self.unit}" if is_plain and ":" not in text else text)


@dataclass(frozen=True)
class ColumnMap:
    """The column map of one kind of table; see the module."""

    columns: dict[str, Column]
    constants: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    study: str = ""
    delimiter: str = ","
    decimal: str | None = None

    def with_point(self, text: str) -> str:
        """Return a number with a decimal point and without marks of thousands.

        Raises
        ------
        ConfigError
            If the text does not have a decimal comma; or if `decimal` is not stated, the
            delimiter is a semicolon, as where the comma is decimal, and the text such as 1.234
            could be either.

        Examples
        --------
        >>> ColumnMap({}, decimal=",").with_point("1.234,5 MB")
        '1234.5 MB'
        """
        match = _NUMBER.fullmatch(text)
        if match is None:
            return text
        number, rest = match.groups()
        if self.decimal == ",":
            if not _COMMA.fullmatch(number):
                raise ConfigError(f"{text!r} is no number with a decimal comma")
            return number.replace(".", "").replace(",", ".") + rest
        if self.decimal is None and self.delimiter == ";" and _GROUPED.fullmatch(number):
            plain = number.replace(".", "")
            raise ConfigError(
                f'{text!r} may be {plain}: state `decimal: "."` or `decimal: ","` in the map'
            )
        return text


def load_map(path: Path) -> ColumnMap:
    """Read a column map.

    Raises
    ------
    ConfigError
        If the file, a key, a target or a unit is invalid.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read: {' '.join(str(error).split())[:120]}", path) from error
    keys = ("columns", "constants", "labels", "identity", "study", "delimiter", "decimal")
    if not isinstance(content, dict) or not isinstance(content.get("columns"), dict):
        raise ConfigError("has no mapping `columns`", path, f"write the keys {', '.join(keys)}")
    _check_names(path, content, keys, "key")
    columns = {
        str(target): _column(path, str(target), source)
        for target, source in content["columns"].items()
    }
    constants = _mapping(path, content, "constants")
    _check_names(path, [*columns, *constants], TARGETS, "column of the history")
    if "runtime_s" not in columns:
        raise ConfigError("columns: lacks runtime_s", path)
    delimiter = content.get("delimiter", ",")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0 ':
        raise ConfigError(f"delimiter: must be one character, not {delimiter!r}", path)
    decimal = content.get("decimal")
    if decimal not in (None, ".", ",") or (decimal == "," and delimiter == ","):
        raise ConfigError(
            f'decimal: must be ".", or "," with another delimiter, not {decimal!r}', path
        )
    identity = content.get("identity") or []
    if not isinstance(identity, list):
        raise ConfigError("identity: must be a list of columns", path)
    return ColumnMap(
        columns,
        {name: _constant(path, name, value) for name, value in constants.items()},
        {str(name): str(column) for name, column in _mapping(path, content, "labels").items()},
        tuple(str(name) for name in identity),
        str(content.get("study") or ""),
        delimiter,
        decimal,
    )


def _column(path: Path, target: str, source: Any) -> Column:
    if isinstance(source, str):
        return Column(source)
    if not isinstance(source, dict) or not isinstance(source.get("column"), str):
        raise ConfigError(f"columns: {target}: lacks the name of the column", path)
    _check_names(path, source, ("column", "unit", "values"), "key")
    column = Column(
        source["column"],
        str(source.get("unit", "")),
        {str(key): value for key, value in _mapping(path, source, "values").items()},
    )
    if column.unit:
        parsers = _parsers(target)
        if not parsers:
            raise ConfigError(f"columns: {target}: has no unit", path)
        try:
            _ = column.unit in parsers or parsers[""](f"1{column.unit}")
        except VoxcastError as error:
            raise ConfigError(
                f"columns: {target}: not a unit: {column.unit!r}",
                path,
                "units are ms, s, min, h, d, slurm, nextflow, pbs, sge for times; B, kB, MB, "
                "GB, TB, KiB, MiB, GiB, TiB, slurm, nextflow, pbs, sge for sizes",
            ) from error
    return column


def _parsers(target: str) -> dict[str, Callable[[str], float]]:
    return next((parsers for end, parsers in _PARSERS.items() if target.endswith(end)), {})


def _constant(path: Path, name: str, value: Any) -> Any:
    dtype = DTYPES[name]
    # bool is a subclass of int in Python.
    if not isinstance(value, KINDS[dtype]) or (isinstance(value, bool) and dtype != "bool"):
        raise ConfigError(f"constants: {name}: {value!r} has the wrong type", path)
    return value


def _mapping(path: Path, content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigError(f"{key}: must be a mapping", path)
    return value


def _check_names(path: Path, names: Iterable[Any], valid: Iterable[str], noun: str) -> None:
    for name in names:
        if name not in valid:
            raise ConfigError(f"{name!r} is not a {noun}", path, f"valid are {', '.join(valid)}")


MAX_ROW_LINES = 100
_ABSENT = {"", "-", "na", "n/a", "nan", "none", "null"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read(path: Path, app: str | None, columns: ColumnMap) -> Records:
    """Read a table by its column map.

    Raises
    ------
    TableError
        If the table lacks a column of the map, or names one twice.
    """
    table = Records("csv", path)
    rows = _rows(table, columns.delimiter)
    _, header = next(rows, (0, []))
    if problems := table.refused.listed():
        raise TableError(f"line 1 is no header: {problems[0][1]}", path)
    if duplicates := sorted({name for name in header if name and header.count(name) > 1}):
        problem = f"names the column {', '.join(duplicates)} twice"
        raise TableError(problem, path, "rename one of them")
    needed = {source.column for source in columns.columns.values()}
    needed |= {*columns.labels.values(), *columns.identity}
    if missing := sorted(needed - set(header)):
        available = f"it has {', '.join(header)[:200]}"
        raise TableError(f"has no column {', '.join(missing)}", path, available)
    names = columns.identity or tuple(sorted(header))
    seen: dict[tuple[str, ...], int] = {}
    for number, fields in rows:
        if len(fields) != len(header):
            reason = f"{len(fields)} columns where the header has {len(header)}"
            table.refused.add(reason, [number])
            continue
        line = dict(zip(header, fields, strict=True))
        key = tuple(line[name] for name in names)
        # Runs with an identity are duplicates if exported twice; without one, lines may be equal.
        seen[key] = 1 if columns.identity else seen.get(key, 0) + 1
        identity = [columns.study, list(names), list(key), seen[key]]
        table.record(number, partial(_run, line, identity, columns, app))
    return table


def _rows(table: Records, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record with its first line; a quoted cell may hold line breaks.

    A quote that is not closed within `MAX_ROW_LINES` lines invalidates its own line only.
    """
    lines = text_lines(table.path, table.refused)
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
            table.refused.add(f"invalid quotes: {error}", [number])
            ahead.popleft()
            continue
        for _ in range(reader.line_num):
            ahead.popleft()
        yield number, [field.strip() for field in fields]


def _run(
    line: dict[str, str], identity: list[object], columns: ColumnMap, app: str | None
) -> ImportedRun:
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
        column, outcome = columns.columns["outcome"].column, values["outcome"]
        if outcome is None:
            raise TableError(f"column {column}: no outcome; map its texts by `values`")
        if outcome not in get_args(Outcome):
            problem = f"outcome {outcome[:40]!r} is unknown; map it by `values`"
            raise TableError(f"column {column}: {problem}")
    labels = {label: line[column] for label, column in columns.labels.items()}
    values = {"outcome": "completed"} | values
    return ImportedRun(identity, values, labels, name=name or "", unread=unread)


def _value(target: str, source: Column, text: str, columns: ColumnMap) -> Any:
    if text in source.values:
        text = str(source.values[text])
    if text.lower() in _ABSENT:
        return None
    dtype = DTYPES[target]
    if dtype == "str":
        return text
    if dtype == "bool":
        if text.lower() not in _TRUTH:
            raise TableError(f"column {source.column}: neither true nor false: {text[:40]!r}")
        return _TRUTH[text.lower()]
    number = parsed(source.column, text, lambda t: source.number(target, columns.with_point(t)))
    if not math.isfinite(number):
        raise TableError(f"column {source.column}: not a finite number: {text[:40]!r}")
    return number if dtype == "float64" else round(number)
