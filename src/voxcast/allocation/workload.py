"""Workload traces: requested and used time and memory of jobs, from the Standard Workload Format.

The format is that of the Parallel Workloads Archive (Feitelson, Tsafrir and Krakov, JPDC 74,
2014), version 2.2: 18 fields per line, -1 for unknown values, comments after a semicolon.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError
from voxcast.history.imports.file_records import MAX_SECONDS, FileRecords
from voxcast.runs.delimited import text_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.history.imports.file_records import Remark

FIELDS = 18
MAX_JOBS = 1_000_000
# Positions of the fields that are used.
_NUMBER, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _TIME, _STATUS = 0, 1, 2, 3, 4, 7, 8, 10
_USED_KB, _REQUESTED_KB = 6, 9  # of memory, for each processor
BYTES_PER_KB = 1024
_CANCELLED = 5
_MAX_PROCS = re.compile(r";\s*MaxProcs:\s*(\d{1,9})\s*")


@dataclass(frozen=True)
class Workload:
    """Jobs in the order of their submission.

    Attributes
    ----------
    numbers : ndarray of int
        Job numbers of the trace.
    submit_s, runtime_s, requested_s, waited_s : ndarray of float
        Seconds; ``waited_s`` is NaN where the trace has none.
    processors : ndarray of int
        Requested, or allocated if the request is unknown.
    max_processors : int or None
        Size of the machine, if the trace has it.
    bad, skipped : tuple of Remark
        Lines that cannot be parsed, and jobs that never ran.
    used_bytes, requested_bytes : ndarray of float, or None
        Memory of each processor, NaN where it is unknown; None if the trace has none.
    """

    numbers: NDArray[np.int64]
    submit_s: NDArray[np.float64]
    runtime_s: NDArray[np.float64]
    requested_s: NDArray[np.float64]
    processors: NDArray[np.int64]
    waited_s: NDArray[np.float64]
    max_processors: int | None = None
    bad: tuple[Remark, ...] = field(default=(), repr=False)
    skipped: tuple[Remark, ...] = field(default=(), repr=False)
    used_bytes: NDArray[np.float64] | None = None
    requested_bytes: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def used_memory(self) -> NDArray[np.float64]:
        """Return the used memory of each processor in bytes, 0 where it is unknown."""
        return _or_zero(self.used_bytes, len(self))

    def packed_bytes(self) -> NDArray[np.float64]:
        """Return the requested memory of each processor in bytes, 0 where it is unknown."""
        return _or_zero(self.requested_bytes, len(self))

    def with_requests(
        self, requested_s: Mapping[int, float], requested_bytes: Mapping[int, float] | None = None
    ) -> Workload:
        """Return the same jobs with other requests by job number; others are unchanged.

        Parameters
        ----------
        requested_bytes : mapping of int to float, optional
            Memory of each processor.

        Raises
        ------
        TableError
            If the trace has no such job.
        """
        memory = requested_bytes or {}
        unknown = sorted((set(requested_s) | set(memory)) - set(self.numbers.tolist()))
        if unknown:
            raise TableError(f"the trace has no job {unknown[0]}", "requests")
        numbers = self.numbers.tolist()
        pairs = zip(numbers, self.requested_s.tolist(), strict=True)
        changed = replace(
            self, requested_s=np.array([requested_s.get(n, old_s) for n, old_s in pairs])
        )
        if not memory:
            return changed
        pairs = zip(numbers, self.packed_bytes().tolist(), strict=True)
        return replace(changed, requested_bytes=np.array([memory.get(n, old) for n, old in pairs]))


def _or_zero(values: NDArray[np.float64] | None, size: int) -> NDArray[np.float64]:
    return np.zeros(size) if values is None else np.nan_to_num(values)


def workload_of(rows: Sequence[Sequence[float]]) -> Workload:
    """Return a workload from rows of number, submit, runtime, requested time and processors."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    table = table[np.lexsort((table[:, 0], table[:, 1]))]
    counts = table[:, [0, 4]].astype(np.int64)
    unknown = np.full(len(table), np.nan)
    return Workload(counts[:, 0], table[:, 1], table[:, 2], table[:, 3], counts[:, 1], unknown)


def read_swf(path: Path) -> Workload:
    """Read a trace.

    Raises
    ------
    TableError
        If the file is not text, or has no valid job or too many.
    """
    reading = FileRecords("swf", path)
    rows: dict[int, tuple[float, ...]] = {}
    max_processors = None
    for number, line in text_lines(reading):
        if line.lstrip().startswith(";"):
            if max_procs := _MAX_PROCS.fullmatch(line.strip()):
                max_processors = int(max_procs[1]) or None
            continue
        try:
            row = _job(line)
            if row is None:
                reading.skip(number, "a job that never ran")
                continue
            if int(row[0]) in rows:
                raise TableError(f"job {row[0]:.0f} is listed twice")
            rows[int(row[0])] = row
        except TableError as error:
            reading.refuse(number, error.problem)
        if len(rows) > MAX_JOBS:
            raise TableError(f"more than {MAX_JOBS} jobs", path, "cut the trace")
    if not rows:
        first_problem = (
            f"line {reading.bad[0].line}: {reading.bad[0].reason}" if reading.bad else None
        )
        raise TableError("has no valid job", path, first_problem)
    table = np.array(sorted(rows.values(), key=lambda row: (row[1], row[0])))
    return Workload(
        table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3],
        table[:, 4].astype(np.int64), table[:, 5],
        max_processors, tuple(reading.bad), tuple(reading.skipped),
        _column_or_none(table[:, 6]), _column_or_none(table[:, 7]),
    )  # fmt: skip


def _column_or_none(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return None if np.isnan(values).all() else values


def _job(line: str) -> tuple[float, ...] | None:
    """Return number, submit, runtime, requested time, processors, wait, used and requested bytes.

    None if it never ran.
    """
    texts = line.split()
    if len(texts) != FIELDS:
        raise TableError(f"has {len(texts)} fields instead of {FIELDS}")
    try:
        values = [float(text) for text in texts]
    except ValueError as error:
        raise TableError(f"not a number: {str(error)[-40:]}") from error
    if not all(math.isfinite(v) and abs(v) <= 2**53 for v in values):
        raise TableError("a number is out of range")
    processors = values[_REQUESTED] if values[_REQUESTED] > 0 else values[_ALLOCATED]
    if values[_SUBMIT] < 0:
        raise TableError("was submitted before the start of the trace")
    if values[_RUN] < 0 or (values[_RUN] == 0 and values[_STATUS] == _CANCELLED):
        return None  # a run of 0 s that was not cancelled took less than half a second
    if values[_TIME] <= 0:
        raise TableError("has no requested time")
    if processors < 1 or processors != int(processors) or values[_NUMBER] != int(values[_NUMBER]):
        raise TableError("number of the job or of its processors is not a whole number")
    if max(values[_TIME], values[_RUN]) > MAX_SECONDS:
        raise TableError("has a time of more than ten years")
    wait = values[_WAIT] if values[_WAIT] >= 0 else math.nan
    memory = (
        values[place] * BYTES_PER_KB if values[place] > 0 else math.nan
        for place in (_USED_KB, _REQUESTED_KB)
    )
    return (
        values[_NUMBER], values[_SUBMIT], values[_RUN], values[_TIME], processors, wait, *memory
    )  # fmt: skip
