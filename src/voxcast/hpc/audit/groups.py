"""Requested and used resources of groups of jobs, and their failures by cause."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.allocation.pricing import BYTES_PER_GB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CAUSES = ("timeout", "out_of_memory", "failed", "cancelled", "preempted", "node_failure")
KEYS = ("user", "account", "partition", "app")
ALL = "all jobs"
NOT_STATED = "(not stated)"
# CPU time of more than this multiple of what was allocated is a fault of the accounting.
MOST_EFFICIENCY = 2.0


@dataclass(frozen=True)
class GroupAudit:
    """What the jobs of a group asked for and used; None where the source does not tell.

    Attributes
    ----------
    jobs : int
        Attempts of jobs that have run and ended.
    ended : dict of str to int
        Number of jobs by outcome.
    core_hours, gpu_hours : float
        Allocated, over all jobs.
    lost_core_hours : dict of str to float
        Allocated by jobs that did not complete, by cause.
    cpu_efficiency : float or None
        CPU time over allocated core time, of completed jobs with both; see `efficiency_hours`.
    efficiency_hours : float
        Allocated core-hours of the jobs whose CPU efficiency is known.
    requested_core_hours : float or None
        Requested time times cores, of completed jobs with a time limit; and
        ``used_of_requested_core_hours`` what these jobs used of it.
    time_ratio : tuple of float or None
        Quartiles of requested over used time, of completed jobs that are not short.
    requested_gb_hours : float or None
        Requested memory times run time, of completed jobs whose peak memory is known; and
        ``used_gb_hours`` their peak memory times run time.
    memory_ratio : tuple of float or None
        Quartiles of requested over used memory, of the same jobs.
    usd, lost_usd : float or None
        Cost of all jobs, and of those that did not complete; None without prices.
    """

    key: str
    jobs: int
    ended: dict[str, int]
    core_hours: float
    gpu_hours: float
    lost_core_hours: dict[str, float]
    cpu_efficiency: float | None
    efficiency_hours: float
    requested_core_hours: float | None
    used_of_requested_core_hours: float | None
    time_ratio: tuple[float, float, float] | None
    requested_gb_hours: float | None
    used_gb_hours: float | None
    memory_ratio: tuple[float, float, float] | None
    usd: float | None
    lost_usd: float | None

    @property
    def completed(self) -> int:
        """Number of completed jobs."""
        return self.ended.get("completed", 0)

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def audit_by(jobs: pd.DataFrame, key: str | None, usd: Floats | None = None) -> list[GroupAudit]:
    """Return the audit of each group, most core-hours first.

    Parameters
    ----------
    jobs : DataFrame
        Of `voxcast.hpc.audit.jobs`, with ``app``.
    key : str or None
        One of `KEYS`; None for all jobs together.
    usd : ndarray, shape (n,), optional
        Cost of each job.
    """
    if key is None:
        codes, names = np.zeros(len(jobs), dtype=np.int64), [ALL]
    else:
        codes, names = _codes(jobs[key])
    sums = _Sums(jobs, codes, len(names), usd)
    groups = [sums.group(n, name) for n, name in enumerate(names)]
    return sorted((g for g in groups if g.jobs), key=lambda g: (-g.core_hours, g.key))


def _codes(column: pd.Series) -> tuple[NDArray[np.int64], list[str]]:
    names = [str(name) or NOT_STATED for name in column.cat.categories]
    codes = column.cat.codes.to_numpy().astype(np.int64)
    if (codes < 0).any():
        codes = np.where(codes < 0, len(names), codes)
        names.append(NOT_STATED)
    return codes, names


class _Sums:
    """Sums over the jobs of each group, computed for all groups at once."""

    def __init__(
        self, jobs: pd.DataFrame, codes: NDArray[np.int64], n: int, usd: Floats | None
    ) -> None:
        def total(values: Floats, mask: NDArray[np.bool_] | None = None) -> Floats:
            weights = np.nan_to_num(values)
            if mask is not None:
                weights = np.where(mask, weights, 0.0)
            return np.bincount(codes, weights, n).astype(np.float64)

        runtime, cpus = jobs["runtime_s"].to_numpy(), jobs["cpus"].to_numpy()
        outcome = jobs["outcome"].to_numpy(dtype=object)
        hours = runtime / SECONDS_PER_HOUR
        core_h = cpus * hours
        completed = outcome == "completed"
        self.jobs = np.bincount(codes, minlength=n)
        self.outcomes = {
            name: np.bincount(codes[outcome == name], minlength=n)
            for name in ("completed", *CAUSES)
        }
        self.core_hours, self.gpu_hours = total(core_h), total(jobs["gpus"].to_numpy() * hours)
        self.lost = {name: total(core_h, outcome == name) for name in CAUSES}
        cpu_h = jobs["cpu_s"].to_numpy() / SECONDS_PER_HOUR
        counted = plausible_cpu(jobs) & completed
        self.efficiency_hours, self.cpu_hours = total(core_h, counted), total(cpu_h, counted)
        limit = jobs["limit_s"].to_numpy()
        has_limit = completed & np.isfinite(limit) & (limit > 0) & (cpus > 0)
        self.requested_core_hours = total(cpus * limit / SECONDS_PER_HOUR, has_limit)
        self.used_core_hours = total(core_h, has_limit)
        requested, used = requested_memory(jobs), jobs["peak_rss_bytes"].to_numpy()
        has_memory = completed & np.isfinite(requested) & np.isfinite(used)
        self.requested_gb_hours = total(requested / BYTES_PER_GB * hours, has_memory)
        self.used_gb_hours = total(used / BYTES_PER_GB * hours, has_memory)
        long = jobs["long"].to_numpy()
        self.time_ratio = _quartiles(limit / runtime, has_limit & long, codes, n)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.memory_ratio = _quartiles(requested / used, has_memory & long, codes, n)
        self.usd = None if usd is None else total(usd)
        self.lost_usd = None if usd is None else total(usd, ~completed)

    def group(self, n: int, key: str) -> GroupAudit:
        requested_h, requested_gb = self.requested_core_hours[n], self.requested_gb_hours[n]
        return GroupAudit(
            key,
            int(self.jobs[n]),
            {name: int(counts[n]) for name, counts in self.outcomes.items() if counts[n]},
            float(self.core_hours[n]),
            float(self.gpu_hours[n]),
            {name: float(hours[n]) for name, hours in self.lost.items() if hours[n]},
            _ratio(self.cpu_hours[n], self.efficiency_hours[n]),
            float(self.efficiency_hours[n]),
            float(requested_h) if requested_h else None,
            float(self.used_core_hours[n]) if requested_h else None,
            self.time_ratio.get(n),
            float(requested_gb) if requested_gb else None,
            float(self.used_gb_hours[n]) if requested_gb else None,
            self.memory_ratio.get(n),
            None if self.usd is None else float(self.usd[n]),
            None if self.lost_usd is None else float(self.lost_usd[n]),
        )


def requested_memory(jobs: pd.DataFrame) -> Floats:
    """Return the memory that each job asked for, NaN where it asked for all of its nodes."""
    requested: Floats = jobs["mem_limit_bytes"].to_numpy(copy=True)
    requested[jobs["all_memory"].to_numpy()] = np.nan
    return requested


def plausible_cpu(jobs: pd.DataFrame) -> NDArray[np.bool_]:
    """Tell which jobs have a CPU time that their CPUs can have used."""
    allocated = jobs["cpus"].to_numpy() * jobs["runtime_s"].to_numpy()
    cpu_s = jobs["cpu_s"].to_numpy()
    counted: NDArray[np.bool_] = (allocated > 0) & (cpu_s <= MOST_EFFICIENCY * allocated)
    return counted


def _quartiles(
    ratios: Floats, mask: NDArray[np.bool_], codes: NDArray[np.int64], n: int
) -> dict[int, tuple[float, float, float]]:
    selected, of_group = ratios[mask], codes[mask]
    order = np.argsort(of_group, kind="stable")
    selected, ends = selected[order], np.cumsum(np.bincount(of_group, minlength=n))
    quartiles = {}
    for group, values in enumerate(np.split(selected, ends[:-1])):
        if len(values):
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
            quartiles[group] = (float(low), float(middle), float(high))
    return quartiles


def _ratio(numerator: float, denominator: float) -> float | None:
    return float(numerator / denominator) if denominator > 0 else None
