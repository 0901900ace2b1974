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

Traces of workflow engines and the published runs of SLANT are read by such maps, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

import yaml

from voxcast.errors import ConfigError, TableError, VoxcastError
from voxcast.quantities import (
    nextflow_bytes,
    nextflow_seconds,
    parse_bytes,
    parse_seconds,
    slurm_bytes,
    slurm_seconds,
)
from voxcast.records import Outcome
from voxcast.runs.imported import ImportedRun, Records, finite, parsed, require, table
from voxcast.runs.table import ADDED, DTYPES, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pydantic import ConfigDict

Value = TypeVar("Value")

SET_BY_IMPORT = ("cell_key", "source", "labels_json")  # metronomes run beside measured runs only
TARGETS = tuple(name for name in DTYPES if name not in (*SET_BY_IMPORT, *ADDED))
# Formats of programs, which are not a single unit; raw traces of Nextflow have plain ms and bytes.
_PARSERS: dict[str, dict[str, Callable[[str], float]]] = {
    "_s": {
        "": parse_seconds, "slurm": slurm_seconds,
        "nextflow": lambda text: float(text) / 1000 if _is_plain(text) else nextflow_seconds(text),
    },
    "_bytes": {
        "": parse_bytes, "slurm": slurm_bytes,
        "nextflow": lambda text: float(text) if _is_plain(text) else nextflow_bytes(text),
    },
}  # fmt: skip
_UNITS = (
    "units are ms, s, min (or m), h, d for times, B, kB, MB, GB, TB, KiB, MiB, GiB, TiB for "
    "sizes, and slurm and nextflow for both"
)
_DECIMAL_COMMA = re.compile(
    r"([+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)(?:,\d+)?)(?![\d.,])(.*)", re.DOTALL
)
_SHORT_CLOCK = re.compile(r"\d+:\d{1,2}")
_ABSENT = {"", "-", "na", "n/a", "nan", "none", "null"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Column:
    """The source of a value: a column, the unit of plain numbers, and replacements of texts."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    column: str
    unit: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def value(self, target: str, text: str, decimal: str = ".") -> Any:
        """Parse a text for the column ``target`` of the history.

        Raises
        ------
        VoxcastError, ValueError
            If the text has another type, or its unit is neither of time nor of size.
        """
        dtype = DTYPES[target]
        if dtype == "str":
            return text
        if dtype == "bool":
            if text.lower() not in _TRUTH:
                raise ConfigError(f"neither true nor false: {text[:40]!r}")
            return _TRUTH[text.lower()]
        number = self.number(target, _with_point(text) if decimal == "," else text)
        return number if dtype == "float64" else round(number)

    def number(self, target: str, text: str) -> float:
        """Parse a number for the column ``target`` of the history, in its unit.

        Raises
        ------
        VoxcastError, ValueError
            If the text is not a number, or its unit is neither of time nor of size, or a clock
            time such as 12:30 stands in a column with another unit.
        """
        parsers = _parsers(target)
        if self.unit in parsers and self.unit:
            return parsers[self.unit](text)
        if self.unit and _SHORT_CLOCK.fullmatch(text):
            raise ConfigError(
                f"{text!r} is a clock time where the unit is {self.unit}: leave out the unit for "
                "hours and minutes; unit slurm reads minutes and seconds"
            )
        is_plain = _is_plain(text.lstrip("+-"))
        if not parsers or (is_plain and not self.unit):
            return finite(text)
        return parsers[""](f"{text}{self.unit}" if is_plain else text)


Target = Literal[TARGETS]  # type: ignore[valid-type]


@dataclass(frozen=True)
class ColumnMap:
    """The column map of one kind of table; see the module."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    columns: dict[Target, Column]
    constants: dict[Target, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    study: str = ""
    delimiter: str = ","
    decimal: Literal[".", ","] | None = None


class Line:
    """The cells of one record by column, and the problems of the unreadable ones."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.unread: list[str] = []

    def text(self, name: str) -> str:
        """Return the text of a cell; empty if the value is unknown or the column missing."""
        text = self.texts.get(name, "")
        return "" if text.lower() in _ABSENT else text

    def cells(self) -> list[tuple[str, str]]:
        """Return columns and texts in alphabetical order; unknown values are empty."""
        return sorted((name, self.text(name)) for name in self.texts)

    def read(self, name: str, parse: Callable[[str], Value]) -> Value | None:
        """Return the parsed cell; None if it is unknown, or unreadable, which is noted."""
        return self._parsed(name, self.texts.get(name, ""), parse)

    def values(self, columns: Mapping[str, Column], decimal: str = ".") -> dict[str, Any]:
        """Return the values of the columns of a map."""
        values = {}
        for target, source in columns.items():
            text = self.texts.get(source.column, "")
            text = str(source.values.get(text, text))
            parse = partial(source.value, target, decimal=decimal)
            values[target] = self._parsed(source.column, text, parse)
        return values

    def _parsed(self, name: str, text: str, parse: Callable[[str], Value]) -> Value | None:
        try:
            return None if text.lower() in _ABSENT else parsed(name, text, parse)
        except TableError as error:
            self.unread.append(error.problem)
            return None


def lines(
    records: Records,
    delimiter: str,
    needed: Iterable[tuple[str, ...]],
    advice: str,
    *,
    quoted: bool = False,
) -> Iterator[tuple[int, Line]]:
    """Return the lines of the file of ``records`` with their numbers; see `table` and `require`.

    Raises
    ------
    TableError
        If the file cannot be read, or lacks a column.
    """
    names, rows = table(records.path, delimiter, records.refused, quoted=quoted)
    require(names, needed, records.path, advice)
    return ((number, Line(dict(zip(names, cells, strict=True)))) for number, cells in rows)


def load_map(path: Path) -> ColumnMap:
    """Read a column map.

    Raises
    ------
    ConfigError
        If the file, a key, a target or a unit is invalid.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and isinstance(content.get("columns"), dict):
            for target, source in content["columns"].items():
                if isinstance(source, str):
                    content["columns"][target] = {"column": source}
        columns: ColumnMap = TypeAdapter(ColumnMap).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ": ".join(str(part) for part in first["loc"] if part != "[key]")
        raise ConfigError(f"{where or 'columns'}: {first['msg']}", path) from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read: {' '.join(str(error).split())[:120]}", path) from error
    _check(columns, path)
    return columns


def _check(columns: ColumnMap, path: Path) -> None:
    if "runtime_s" not in columns.columns:
        raise ConfigError("columns: lacks runtime_s", path)
    if len(columns.delimiter) != 1 or columns.delimiter in '"\r\n\0 ':
        raise ConfigError(f"delimiter: must be one character, not {columns.delimiter!r}", path)
    if columns.decimal == columns.delimiter or (columns.delimiter, columns.decimal) == (";", None):
        problem = 'decimal: state "." or "," beside this delimiter'
        raise ConfigError(problem, path, 'in such tables 1.234 may be 1234 with "," as the mark')
    for name, value in columns.constants.items():
        # bool is a subclass of int in Python.
        if not isinstance(value, KINDS[DTYPES[name]]) or (
            isinstance(value, bool) and DTYPES[name] != "bool"
        ):
            raise ConfigError(f"constants: {name}: {value!r} has the wrong type", path)
    for target, source in columns.columns.items():
        parsers = _parsers(target)
        if source.unit and not parsers:
            raise ConfigError(f"columns: {target}: has no unit", path)
        try:
            _ = source.unit in parsers or not source.unit or parsers[""](f"1{source.unit}")
        except VoxcastError as error:
            problem = f"columns: {target}: not a unit: {source.unit!r}"
            raise ConfigError(problem, path, _UNITS) from error


def read(path: Path, app: str | None, columns: ColumnMap) -> Records:
    """Read a table by its column map.

    Raises
    ------
    TableError
        If the table lacks a column of the map, or names one twice.
    """
    records = Records("csv", path)
    needed = {source.column for source in columns.columns.values()}
    needed |= {*columns.labels.values(), *columns.identity}
    groups = [(name,) for name in sorted(needed)]
    seen: dict[tuple[str, ...], int] = {}
    for number, line in lines(
        records, columns.delimiter, groups, "change its column map", quoted=True
    ):
        names = columns.identity or tuple(sorted(line.texts))
        key = tuple(line.texts[name] for name in names)
        # Runs with an identity are duplicates if exported twice; without one, lines may be equal.
        seen[key] = 1 if columns.identity else seen.get(key, 0) + 1
        identity = [columns.study, list(names), list(key), seen[key]]
        records.record(number, partial(_run, line, identity, columns, app))
    return records


def _run(line: Line, identity: list[object], columns: ColumnMap, app: str | None) -> ImportedRun:
    values = columns.constants | line.values(columns.columns, columns.decimal or ".")
    name = values.get("app")
    outcome = values.setdefault("outcome", "completed")
    if outcome not in get_args(Outcome):
        problem = f"outcome {outcome[:40]!r} is unknown" if outcome else "no outcome"
        column = columns.columns["outcome"].column
        raise TableError(f"column {column}: {problem}; map it by `values`")
    labels = {label: line.texts[column] for label, column in columns.labels.items()}
    values["app"] = app or name
    return ImportedRun(identity, values, labels, name or "", line.unread)


def _parsers(target: str) -> dict[str, Callable[[str], float]]:
    return next((parsers for end, parsers in _PARSERS.items() if target.endswith(end)), {})


def _is_plain(text: str) -> bool:
    """Return whether a text is a plain number.

    Examples
    --------
    >>> _is_plain("12.5"), _is_plain("12.5 s")
    (True, False)
    """
    return text.replace(".", "", 1).isdecimal()


def _with_point(text: str) -> str:
    """Return a number with a decimal point in place of its decimal comma.

    Examples
    --------
    >>> _with_point("1.234,5 MB")
    '1234.5 MB'
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    if match is None and text[:1].isdigit():
        raise ConfigError(f"{text!r} is no number with a decimal comma")
    return text if match is None else match[1].replace(".", "").replace(",", ".") + match[2]
