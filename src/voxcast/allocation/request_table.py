"""Requests for jobs of a trace, by number: a CSV table, with a sequence where a job has rows."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.allocation.resubmission import Resubmission
from voxcast.allocation.workload import MAX_JOBS
from voxcast.errors import TableError
from voxcast.history.imports.file_records import MAX_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.allocation.workload import Workload

MAX_BYTES = 1e18
TIME, MEMORY = "requested_s", "requested_bytes"


@dataclass(frozen=True)
class RequestTable:
    """Requests by job number, increasing: the first, and those after a failure.

    Attributes
    ----------
    times_s, memories_bytes : dict of int to tuple of float
        Memory is that of the whole job.
    """

    times_s: dict[int, tuple[float, ...]]
    memories_bytes: dict[int, tuple[float, ...]]

    def applied(self, trace: Workload) -> Workload:
        """Return the jobs of a trace with the first of these requests; others are unchanged.

        Raises
        ------
        TableError
            If the trace has no such job.
        """
        return trace.with_requests(
            {number: values[0] for number, values in self.times_s.items()},
            {number: values[0] for number, values in self._of_processors(trace).items()},
        )

    def resubmission(self, trace: Workload) -> Resubmission:
        """Return how these jobs are asked for again."""
        return Resubmission(self.times_s, self._of_processors(trace))

    def _of_processors(self, trace: Workload) -> dict[int, tuple[float, ...]]:
        wide = dict(zip(trace.numbers.tolist(), trace.processors.tolist(), strict=True))
        return {
            number: tuple(value / wide.get(number, 1) for value in values)
            for number, values in self.memories_bytes.items()
        }


def read_requests(path: Path) -> RequestTable:
    """Read a CSV table with the columns ``job``, ``requested_s`` and perhaps ``requested_bytes``.

    Raises
    ------
    TableError
        If a value is invalid; the message gives the line.
    """
    times_s: dict[int, set[float]] = {}
    memories: dict[int, set[float]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            table = csv.DictReader(stream)
            columns = set(table.fieldnames or ())
            if not {"job", TIME} <= columns:
                header = ", ".join(table.fieldnames or ())[:80]
                raise TableError(
                    f"needs the columns job and {TIME}; it has {header or 'none'}", path
                )
            for row in table:
                number = int(row["job"] or "")
                times_s.setdefault(number, set()).add(_amount(row[TIME], TIME, MAX_SECONDS))
                if MEMORY in columns:
                    memory = _amount(row[MEMORY], MEMORY, MAX_BYTES)
                    memories.setdefault(number, set()).add(memory)
                if len(times_s) > MAX_JOBS:
                    raise TableError(f"more than {MAX_JOBS} jobs", path)
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror}", path) from error
    except (ValueError, csv.Error) as error:
        raise TableError(f"line {table.line_num}: {str(error)[:80]}", path) from error
    return RequestTable(
        {number: tuple(sorted(values)) for number, values in times_s.items()},
        {number: tuple(sorted(values)) for number, values in memories.items()},
    )


def _amount(text: str | None, column: str, most: float) -> float:
    amount = float(text or "nan")
    if not 0 < amount <= most:
        raise ValueError(f"{column} is {text}")
    return amount
