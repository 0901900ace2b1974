"""The waiting time of a job in the queue, as an affine function of its requested time.

Fitted as in Aupy, Gainaru, Honoré, Raghavan, Robert and Sun, "Reservation Strategies for
Stochastic Jobs" (IPDPS 2019), from jobs of similar size: they are divided into twenty groups by
requested time, and a line is fitted to the means of the groups. The line is that of Theil and
Sen, which is robust to outliers such as a week of maintenance in one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

GROUPS = 20
LEAST_IN_GROUP = 5
NEEDED = (("Submit",), ("Start",), ("Timelimit", "TimelimitRaw"))
ADVICE = "write it with `sacct -X -P --format=Submit,Eligible,Start,Timelimit,Partition,NCPUS`"
_MAX_CPUS = 10**9  # more than any machine has: not a valid number


@dataclass(frozen=True)
class Waiting:
    """Waiting time ``alpha`` × requested time + ``gamma_s``, never below 0; seconds."""

    alpha: float = 0.0
    gamma_s: float = 0.0

    def of(self, requested_s: ArrayLike) -> NDArray[np.float64]:
        """Return the expected waiting time of a request.

        Examples
        --------
        On Intrepid, 409 processors for an hour (the paper's figures):

        >>> round(Waiting(0.95, 3771.84).of(3600.0).item() / 3600, 2)
        2.0
        """
        return np.maximum(self.alpha * np.asarray(requested_s, dtype=float) + self.gamma_s, 0.0)


@dataclass(frozen=True)
class WaitingFit:
    """A fitted line of waiting times.

    Attributes
    ----------
    waiting : Waiting
        The line; ``alpha`` is 0 where longer requests did not wait longer.
    jobs, groups : int
        Numbers of jobs and groups that were used.
    typical_error_s : float
        Median distance between the means of the groups and the line.
    """

    waiting: Waiting
    jobs: int
    groups: int
    typical_error_s: float


def fit_waiting(requested_s: ArrayLike, waited_s: ArrayLike, groups: int = GROUPS) -> WaitingFit:
    """Fit waiting times of jobs of similar size that have started.

    Parameters
    ----------
    requested_s, waited_s : array_like, shape (jobs,)
        Requested time and time in the queue; jobs with a NaN are left out.
    groups : int
        Number of groups of equal size.

    Raises
    ------
    TableError
        If there are too few jobs, or nearly all requested the same time.
    """
    from scipy import stats

    requested, waited = np.asarray(requested_s, dtype=float), np.asarray(waited_s, dtype=float)
    valid = np.isfinite(requested) & np.isfinite(waited) & (requested > 0) & (waited >= 0)
    requested, waited = requested[valid], waited[valid]
    least = groups * LEAST_IN_GROUP
    if len(requested) < least:
        raise TableError(f"{len(requested)} jobs are too few", "waiting", f"{least} are needed")
    order = np.argsort(requested, kind="stable")
    members = np.array_split(order, groups)
    means = np.array([[requested[part].mean(), waited[part].mean()] for part in members])
    if len(np.unique(means[:, 0])) < 3:
        raise TableError(
            "nearly all jobs requested the same time", "waiting", "no line can be fitted"
        )
    slope = float(stats.theilslopes(means[:, 1], means[:, 0])[0])
    alpha = max(slope, 0.0)
    gamma_s = float(np.median(means[:, 1] - alpha * means[:, 0]))
    fitted = Waiting(alpha, gamma_s)
    error = np.abs(fitted.of(means[:, 0]) - means[:, 1])
    return WaitingFit(fitted, len(requested), groups, float(np.median(error)))


@dataclass(frozen=True)
class QueuedJobs:
    """Jobs that have started, by column.

    Attributes
    ----------
    requested_s, waited_s : ndarray of float
    cpus : ndarray of int
        0 where the source does not state them.
    partitions : ndarray of str
        Empty where the source does not state them.
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
    """Read the jobs in the output of ``sacct -P``.

    Raises
    ------
    TableError
        If it has no job with a queueing time.
    """
    from voxcast.runs.slurm import accounting

    jobs = accounting(path, needed=NEEDED, advice=ADVICE)
    frame, cpus = jobs.frame, jobs.frame["cpus"].to_numpy()
    # A held job, or one that depends on another, is queued from the time it is eligible.
    queued_s = frame["submit_s"]
    if "eligible_s" in jobs.columns:
        queued_s = frame[["submit_s", "eligible_s"]].max(axis=1, skipna=False)
    waited_s, requested_s = (frame["start_s"] - queued_s).to_numpy(), frame["limit_s"].to_numpy()
    usable = (waited_s >= 0) & (requested_s > 0) & (cpus >= 0) & (cpus <= _MAX_CPUS)
    if not usable.any():
        raise TableError("has no job with a queueing time", path, ADVICE)
    return QueuedJobs(
        requested_s[usable], waited_s[usable], cpus[usable].astype(np.int64),
        frame["partition"].to_numpy(dtype=str)[usable],
        int((~usable).sum()) + jobs.refused.counts().total(),
    )  # fmt: skip
