"""The column map of a CSV table, in YAML: maps columns of the history to columns of the table.

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

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from voxcast.errors import ConfigError, VoxcastError
from voxcast.history.run_table import DTYPES, KINDS, METRONOME
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
            If the text is no number with a decimal comma; or if `decimal` is not stated, the
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
