"""Cells of Slurm's accounting as arrays: amounts, times and sizes in all of its notations.

Each distinct text is parsed once. Where many texts are distinct, Arrow parses the usual notation,
and only the other texts are parsed one by one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.errors import TableError, VoxcastError
from voxcast.quantities import parse_bytes, slurm_bytes, slurm_seconds
from voxcast.runs.delimited import Remarks, integer, parsed, true

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from voxcast.runs.delimited import Block

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

ONE_TASK = "MaxRSS of one task"
_ABSENT = frozenset({"", "unknown", "none", "none assigned", "invalid", "n/a", "(null)"})
_NO_LIMIT = ("unlimited", "partition_limit")
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
_REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTP]?)([cn]?)", re.IGNORECASE)
FEW = 1000  # distinct texts that are parsed one by one without a loss
_CLOCK = (
    r"^(?:(?:(?P<d>[0-9]{1,6})-)?(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,3}):"
    r"(?P<s>[0-9]{1,2}(?:\.[0-9]{1,9})?)$"
)
_SIZE = r"^(?P<v>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<u>[KkMmGgTt]?)$"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$"


class SlurmCells:
    """Some records of a block; cells of a column that is not there are unknown."""

    def __init__(self, block: Block, rows: Mask, ids: pa.StringArray, unread: Remarks) -> None:
        selected = block.select(rows)
        self.columns, self.lines, self.n = selected.columns, selected.lines, len(selected.lines)
        self.ids, self._unread = ids.filter(pa.array(rows)), unread
        self._titles = dict(zip(block.header.names, block.header.titles, strict=True))

    def raw(self, name: str) -> pa.StringArray:
        return self.columns.get(name, pa.nulls(self.n, pa.string()))

    def texts(self, name: str, parse: Callable[[str], object] | None = None) -> pa.StringArray:
        """Return the cells; null where the value is unknown, or ``parse`` fails."""
        distinct = self.raw(name).dictionary_encode()
        stated = [
            None if text.lower() in _ABSENT or (parse and not _parses(text, parse)) else text
            for text in distinct.dictionary.to_pylist()
        ]
        return pa.array(stated, type=pa.string()).take(distinct.indices)

    def read(
        self,
        name: str,
        parse: Callable[[str], Any],
        fast: Callable[[pa.StringArray], Floats] | None = None,
        *,
        width: int = 1,
        where: Mask | None = None,
    ) -> Floats:
        """Return the numbers in cells, shape (n,) or (width, n); NaN where unknown or unreadable.

        Parameters
        ----------
        parse : callable
            Returns the number of a text, or ``width`` numbers.
        fast : callable, optional
            Parses an array of texts in the usual notation; NaN for those it leaves to ``parse``.
        where : ndarray of bool, optional
            Rows whose cells are needed.
        """
        if name not in self.columns:
            return np.full((width, self.n), np.nan) if width > 1 else np.full(self.n, np.nan)
        cells = self.texts(name)
        if where is not None:
            cells = pc.if_else(pa.array(where), cells, None)
        distinct = cells.dictionary_encode()
        texts = distinct.dictionary
        values = np.full((len(texts) + 1, width), np.nan)  # the last is an unknown cell
        if fast is not None and len(texts) > FEW:
            values[:-1] = fast(texts).reshape(len(texts), width)
        problems = {}
        for n in np.flatnonzero(np.isnan(values[:-1]).all(axis=1)).tolist():
            try:
                value = parsed(self._titles[name], texts[n].as_py(), parse)
                values[n] = np.nan if value is None else value
            except TableError as error:
                problems[n] = error.problem
        places = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        if problems:
            self._note(self._titles[name], np.isin(places, list(problems)), places, problems)
        numbers: Floats = values[places].T
        return numbers if width > 1 else numbers[0]

    def tres(self, name: str) -> Floats:
        """Return CPUs, memory, nodes, GPUs, and whether any amount is stated, shape (5, n)."""
        return self.read(name, _tres, _tres_columns, width=5)

    def time_limit(self) -> Floats:
        def minutes(text: str) -> float | None:
            return None if text.lower() in _NO_LIMIT else 60.0 * integer(text)

        def clock(text: str) -> float | None:
            return None if text.lower() in _NO_LIMIT else slurm_seconds(text)

        raw = self.texts("timelimitraw")
        unlimited = true(pc.is_in(pc.utf8_lower(raw), pa.array(_NO_LIMIT)))
        stated = true(raw.is_valid()) & ~unlimited
        limit = self.read("timelimitraw", minutes, lambda texts: 60.0 * integers(texts))
        limit_s = self.read("timelimit", clock, clock_seconds, where=~stated)
        return np.where(stated, limit, limit_s)

    def memory(self) -> dict[str, Any]:
        """Return the tasks of each record, the peak of all, and whether it belongs to one task."""
        tasks = np.nan_to_num(self.read("ntasks", integer, integers))
        largest = np.nan_to_num(self.read("maxrss", _bytes, _sizes))
        average = np.nan_to_num(self.read("averss", _bytes, _sizes))
        total = np.nan_to_num(self.tres("tresusageintot")[1])
        total = np.where(total > 0, total, average * tasks)
        tasks = np.where(tasks == 0, 1.0, tasks)
        of_one_task = (largest > 0) & (tasks > 1) & (total == 0)
        self._unread.add(ONE_TASK, self.lines[of_one_task], [
            f"MaxRSS: that of one of {n:.0f} tasks; export TRESUsageInTot for that of all"
            for n in tasks[of_one_task]
        ])  # fmt: skip
        return {
            "tasks": tasks, "peak_bytes": np.maximum(largest, total), "of_one_task": of_one_task,
        }  # fmt: skip

    def _note(self, title: str, refused: Mask, places: Any, problems: dict[int, str]) -> None:
        names = self.ids.filter(pa.array(refused)).to_pylist()
        reasons = [
            problems[place] + (f" (step {name})" if "." in name else "")
            for place, name in zip(places[refused].tolist(), names, strict=True)
        ]
        self._unread.add(title, self.lines[refused], reasons)


def _parses(text: str, parse: Callable[[str], object]) -> bool:
    try:
        parse(text)
    except (VoxcastError, ValueError, OverflowError):
        return False
    return True


def _bytes(text: str) -> int:
    # With `--noconvert` the number has no unit and is in bytes.
    return parse_bytes(f"{text}B") if text[-1].isdigit() else slurm_bytes(text)


def requested_memory(text: str) -> tuple[float, float]:
    """Return bytes, and 1 if they are per CPU, ``4Gc``, 2 if per node, ``4Gn`` (up to 20.11)."""
    match = _REQUESTED_MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"not a size: {text[:40]!r}")
    return _bytes(match[1]), {"c": 1, "n": 2, "": 0}[match[2].lower()]


def exit_code(text: str) -> tuple[int, int]:
    match = _EXIT.fullmatch(text)
    if match is None:
        raise TableError(f"not an exit code: {text[:40]!r}")
    return int(match[1]), int(match[2])


def moment(text: str) -> float:
    # The time zone is not written; only differences and minutes are used.
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _tres(text: str) -> tuple[float, ...]:
    """Return the amounts of ``cpu=2,mem=8G,gres/gpu=1`` as `SlurmCells.tres` does."""
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == "mem":
            amounts[name] = _bytes(value) if value else 0
        elif value.isdecimal() and len(value) < 16:
            # GPUs are listed by type, with or without their sum.
            if name.startswith("gres/gpu:") and "gres/gpu=" not in text:
                amounts["gres/gpu"] = amounts.get("gres/gpu", 0) + int(value)
            amounts[name] = int(value)
    listed = (amounts.get(name, np.nan) for name in ("cpu", "mem", "node", "gres/gpu"))
    return (*listed, float(bool(amounts)))


# The same notations, many texts at a time; NaN for texts left to the functions above.


def _tres_columns(texts: pa.StringArray) -> Floats:
    cpus, nodes, gpus = (
        _field(texts, rf"(?:^|,){name}=(?P<v>[0-9]{{1,15}})(?:,|$)")
        for name in ("cpu", "node", "gres/gpu")
    )
    memory_text = pc.struct_field(pc.extract_regex(texts, r"(?:^|,)mem=(?P<v>[^,]*)"), "v")
    memory, has_memory = _sizes(memory_text), true(memory_text.is_valid())
    stated = true(pc.match_substring_regex(texts, r"=[0-9]{1,15}(?:,|$)")) | has_memory
    amounts = np.column_stack([cpus, memory, nodes, gpus, stated])
    by_type = true(pc.match_substring(texts, "gres/gpu:"))
    twice = true(pc.greater(pc.count_substring(texts, "mem="), 1))
    amounts[by_type | twice | (has_memory & np.isnan(memory))] = np.nan
    return amounts


def clock_seconds(texts: pa.StringArray) -> Floats:
    fields = pc.extract_regex(texts, _CLOCK)
    days, hours, minutes, rest = (_floats(pc.struct_field(fields, name)) for name in "dhms")
    total: Floats = np.nan_to_num(days) * 86400 + np.nan_to_num(hours) * 3600 + minutes * 60 + rest
    return total


def _sizes(texts: pa.StringArray) -> Floats:
    fields = pc.extract_regex(texts, _SIZE)
    unit = pc.utf8_lower(pc.struct_field(fields, "u")).dictionary_encode()
    factors = np.array([_UNITS[u] for u in unit.dictionary.to_pylist()] + [np.nan])
    places = unit.indices.fill_null(len(factors) - 1).to_numpy(zero_copy_only=False)
    sizes: Floats = np.rint(_floats(pc.struct_field(fields, "v")) * factors[places])
    return sizes


def integers(texts: pa.StringArray) -> Floats:
    return _field(texts, r"^(?P<v>[0-9]{1,15})$")


def clock_times(texts: pa.StringArray) -> Floats:
    usual = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, None)
    times = pc.strptime(usual, format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
    since = times.cast(pa.int64()).cast(pa.float64())
    seconds = np.asarray(since.to_numpy(zero_copy_only=False), dtype=np.float64)
    # It takes 30 February for 2 March, and a 61st second for the next minute.
    for start, part in ((8, pc.day(times)), (17, pc.second(times))):
        written = integers(pc.utf8_slice_codeunits(texts, start, start + 2))
        read_as = part.cast(pa.float64()).to_numpy(zero_copy_only=False)
        seconds = np.where(written == read_as, seconds, np.nan)
    return seconds


def _field(texts: pa.StringArray, pattern: str) -> Floats:
    return _floats(pc.struct_field(pc.extract_regex(texts, pattern), "v"))


def _floats(texts: pa.StringArray) -> Floats:
    """Return numbers, NaN for null and empty texts."""
    filled = pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.float64())
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
