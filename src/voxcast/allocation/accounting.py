"""How long jobs were queued: from Slurm's accounting, or from a workload trace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.workload import read_swf
from voxcast.errors import TableError, VoxcastError
from voxcast.history.imports.file_records import FileRecords
from voxcast.history.imports.lines import columns_of
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_ADVICE = "write it with `sacct -X -P --format=Submit,Eligible,Start,Timelimit,Partition,NCPUS`"
_NEEDED = (("Submit",), ("Start",), ("Timelimit", "TimelimitRaw"))
_MOST_CPUS = 10**9  # more than any machine has: a number that is none


@dataclass(frozen=True)
class QueuedJobs:
    """Jobs that have started, as columns.

    Attributes
    ----------
    requested_s, waited_s : ndarray of float
    cpus : ndarray of int
        0 where the source does not say.
    partitions : ndarray of str
        Empty where the source does not say.
    left_out : int
        Records that say no waiting time or no limit.
    """

    requested_s: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    cpus: NDArray[np.int64]
    partitions: NDArray[np.str_]
    left_out: int

    def of(self, partition: str, most_cpus: int) -> QueuedJobs:
        """Return the jobs of a partition with at most so many CPUs.

        Jobs whose partition is not known belong to all.
        """
        own = np.isin(self.partitions, ["", partition]) & (self.cpus <= most_cpus)
        return QueuedJobs(
            self.requested_s[own], self.waited_s[own], self.cpus[own], self.partitions[own],
            self.left_out,
        )  # fmt: skip


def queued_jobs(path: Path) -> QueuedJobs:
    """Read what ``sacct -P`` wrote, or a trace whose name ends in ``.swf``.

    Raises
    ------
    TableError
        If it is neither.
    """
    if path.suffix.lower() == ".swf":
        trace = read_swf(path)
        known = np.isfinite(trace.waited_s)
        return QueuedJobs(
            trace.requested_s[known],
            trace.waited_s[known],
            trace.processors[known],
            np.full(int(known.sum()), ""),
            int((~known).sum()) + len(trace.bad) + len(trace.skipped),
        )
    reading = FileRecords("sacct", path)
    found = []
    left_out = 0
    for _, line in columns_of(reading, "|", _NEEDED, _ADVICE):
        if "." in line.get("jobid", ""):
            continue  # a step, which is no job
        try:
            found.append(_job(line))
        except (VoxcastError, ValueError, OverflowError):
            left_out += 1
    if not found:
        raise TableError("no job in it says how long it was queued", path, _ADVICE)
    requested, waited, cpus, partitions = zip(*found, strict=True)
    return QueuedJobs(
        np.array(requested),
        np.array(waited),
        np.array(cpus, dtype=np.int64),
        np.array(partitions),
        left_out + len(reading.bad),
    )


def _job(line: dict[str, str]) -> tuple[float, float, int, str]:
    start = _moment(line["start"])
    # A job that had to wait for another one, or was held, was not queued until it was eligible.
    since = max(_moment(line["submit"]), _moment(line.get("eligible") or line["submit"]))
    raw = line.get("timelimitraw", "")
    requested = 60.0 * int(raw) if raw else slurm_seconds(line.get("timelimit", ""))
    if start < since or requested <= 0:
        raise ValueError("started before it was submitted, or no limit")
    cpus = int(line.get("ncpus") or line.get("alloccpus") or line.get("reqcpus") or "0")
    if not 0 <= cpus <= _MOST_CPUS:
        raise ValueError("no number of CPUs")
    return requested, start - since, cpus, line.get("partition", "")


def _moment(text: str) -> float:
    # The zone is the cluster's and not written; only differences are used.
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
