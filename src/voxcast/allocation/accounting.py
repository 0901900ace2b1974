"""Queueing times of jobs, from Slurm's accounting or a workload trace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.workload import read_swf
from voxcast.errors import TableError, VoxcastError
from voxcast.history.imports.file_records import FileRecords
from voxcast.runs.delimited import columns_of
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_ADVICE = "write it with `sacct -X -P --format=Submit,Eligible,Start,Timelimit,Partition,NCPUS`"
_NEEDED = (("Submit",), ("Start",), ("Timelimit", "TimelimitRaw"))
_MAX_CPUS = 10**9  # more than any machine has: not a valid number


@dataclass(frozen=True)
class QueuedJobs:
    """Jobs that have started, by column.

    Attributes
    ----------
    requested_s, waited_s : ndarray of float
    cpus : ndarray of int
        0 where the source has none.
    partitions : ndarray of str
        Empty where the source has none.
    left_out : int
        Number of records without a waiting time or a limit.
    """

    requested_s: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    cpus: NDArray[np.int64]
    partitions: NDArray[np.str_]
    left_out: int

    def of(self, partition: str, max_cpus: int) -> QueuedJobs:
        """Return the jobs of a partition with at most ``max_cpus`` CPUs.

        Jobs without a partition count for every partition.
        """
        selected = np.isin(self.partitions, ["", partition]) & (self.cpus <= max_cpus)
        return QueuedJobs(
            self.requested_s[selected], self.waited_s[selected], self.cpus[selected],
            self.partitions[selected], self.left_out,
        )  # fmt: skip


def queued_jobs(path: Path) -> QueuedJobs:
    """Read the output of ``sacct -P``, or a trace whose name ends in ``.swf``.

    Raises
    ------
    TableError
        If the file is neither.
    """
    if path.suffix.lower() == ".swf":
        trace = read_swf(path)
        has_wait = np.isfinite(trace.waited_s)
        return QueuedJobs(
            trace.requested_s[has_wait],
            trace.waited_s[has_wait],
            trace.processors[has_wait],
            np.full(int(has_wait.sum()), ""),
            int((~has_wait).sum()) + len(trace.bad) + len(trace.skipped),
        )
    reading = FileRecords("sacct", path)
    jobs = []
    left_out = 0
    for _, line in columns_of(reading, "|", _NEEDED, _ADVICE, frozenset({""})):
        if "." in line.raw("jobid"):
            continue  # a job step
        try:
            jobs.append(_job(line.texts))
        except (VoxcastError, ValueError, OverflowError):
            left_out += 1
    if not jobs:
        raise TableError("has no job with a queueing time", path, _ADVICE)
    requested, waited, cpus, partitions = zip(*jobs, strict=True)
    return QueuedJobs(
        np.array(requested),
        np.array(waited),
        np.array(cpus, dtype=np.int64),
        np.array(partitions),
        left_out + len(reading.bad),
    )


def _job(line: Mapping[str, str]) -> tuple[float, float, int, str]:
    start = _timestamp_s(line["start"])
    # A held job, or one that depends on another, is queued from the time it is eligible.
    queued_s = max(
        _timestamp_s(line["submit"]), _timestamp_s(line.get("eligible") or line["submit"])
    )
    raw = line.get("timelimitraw", "")
    requested = 60.0 * int(raw) if raw else slurm_seconds(line.get("timelimit", ""))
    if start < queued_s or requested <= 0:
        raise ValueError("started before it was submitted, or no limit")
    cpus = int(line.get("ncpus") or line.get("alloccpus") or line.get("reqcpus") or "0")
    if not 0 <= cpus <= _MAX_CPUS:
        raise ValueError("number of CPUs out of range")
    return requested, start - queued_s, cpus, line.get("partition", "")


def _timestamp_s(text: str) -> float:
    # Times have no zone (it is the cluster's); only differences are used.
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
