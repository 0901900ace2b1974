"""Cells of Slurm's accounting as arrays: amounts, times and sizes in all of its notations.

Each distinct text is parsed once.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.quantities import parse_bytes, slurm_bytes, slurm_seconds
from voxcast.runs.delimited import Remarks, integer, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Texts = NDArray[np.object_]

ONE_TASK = "MaxRSS of one task"
_ABSENT = frozenset({"", "unknown", "none", "none assigned", "invalid", "n/a", "(null)"})
_NO_LIMIT = ("unlimited", "partition_limit")
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
_REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTP]?)([cn]?)", re.IGNORECASE)


class SlurmCells:
    """Some records of accounting; cells of a column that is not there are unknown."""

    def __init__(
        self, titles: Sequence[str], records: Sequence[tuple[int, list[str]]], unread: Remarks
    ) -> None:
        self.lines = np.array([line for line, _ in records], dtype=np.int64)
        self.n, self._unread = len(records), unread
        self._titles = {title.lower(): title for title in titles}
        columns = zip(*(cells for _, cells in records), strict=True)
        self._columns = {
            name: np.array(column, dtype=object)
            for name, column in zip(self._titles, columns, strict=False)
        }
        ids = self.raw("jobid")
        self.ids = np.where(ids == "", self.raw("jobidraw"), ids)

    def raw(self, name: str) -> Texts:
        """Return the cells as they are; empty if the column is not there."""
        return self._columns.get(name, np.full(self.n, "", dtype=object))

    def texts(self, name: str) -> Texts:
        """Return the cells; empty where the value is unknown."""
        codes, distinct = pd.factorize(self.raw(name))
        stated = ["" if text.lower() in _ABSENT else text for text in distinct]
        return np.array([*stated, ""], dtype=object)[codes]

    def read(
        self,
        name: str,
        parse: Callable[[str], Any],
        *,
        width: int = 1,
        where: Mask | None = None,
    ) -> Floats:
        """Return the numbers in cells, shape (n,) or (width, n); NaN where unknown or unreadable.

        Parameters
        ----------
        parse : callable
            Returns the number of a text, or ``width`` numbers.
        where : ndarray of bool, optional
            Rows whose cells are needed.
        """
        codes, distinct = pd.factorize(self.raw(name))
        codes = codes if where is None else np.where(where, codes, -1)
        title = self._titles.get(name, name)
        values = np.full((len(distinct) + 1, width), np.nan)  # the last is an unknown cell
        problems = {}
        for n, text in enumerate(distinct):
            if text.lower() not in _ABSENT:
                try:
                    values[n] = parsed(title, text, parse)
                except TableError as error:
                    problems[n] = error.problem
        if problems:
            refused = np.isin(codes, list(problems))
            reasons = [
                problems[code] + (f" (step {name})" if "." in name else "")
                for code, name in zip(codes[refused], self.ids[refused], strict=True)
            ]
            self._unread.add(title, self.lines[refused], reasons)
        numbers: Floats = values[codes].T
        return numbers if width > 1 else numbers[0]

    def tres(self, name: str) -> Floats:
        """Return CPUs, memory, nodes, GPUs, and whether any amount is stated, shape (5, n)."""
        return self.read(name, _tres, width=5)

    def time_limit(self) -> Floats:
        """Return the time limits in seconds; infinite where there is none."""
        limit = self.read("timelimitraw", lambda text: _limit(text, lambda t: 60.0 * integer(t)))
        unstated = self.texts("timelimitraw") == ""
        unstated |= np.isinf(limit)
        limit_s = self.read("timelimit", lambda t: _limit(t, slurm_seconds), where=unstated)
        limit_s = np.where(unstated, limit_s, limit)
        return np.where(np.isinf(limit_s), np.nan, limit_s)

    def memory(self) -> dict[str, Any]:
        """Return the tasks of each record, the peak of all, and whether it belongs to one task."""
        tasks = np.nan_to_num(self.read("ntasks", integer))
        largest = np.nan_to_num(self.read("maxrss", _bytes))
        average = np.nan_to_num(self.read("averss", _bytes))
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


def _limit(text: str, parse: Callable[[str], float]) -> float:
    return math.inf if text.lower() in _NO_LIMIT else parse(text)


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
    """Return the exit status and the signal of ``1:0``."""
    match = _EXIT.fullmatch(text)
    if match is None:
        raise TableError(f"not an exit code: {text[:40]!r}")
    return int(match[1]), int(match[2])


def moment(text: str) -> float:
    """Return a time in seconds, of the cluster's own clock."""
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
