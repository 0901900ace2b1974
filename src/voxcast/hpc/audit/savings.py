"""What other requests would have saved, with intervals and what that assumes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.allocation.pricing import SECONDS_PER_HOUR
from voxcast.allocation.requests.replay import POPULATION_RUNS
from voxcast.hpc.audit.job_prices import core_hours
from voxcast.hpc.audit.ratio_intervals import Ratio, ratio_of
from voxcast.hpc.audit.request_replays import AppJobs, Objective, RequestReplay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.hpc.audit.job_prices import JobPrices

    Floats = NDArray[np.float64]

ASSUMPTIONS = (
    "a job that was killed is repeated from its start, and takes as long and as much memory again",
    "a job killed for its memory had run to its end: more is lost here than would be",
    "time and memory fail apart from each other; each failure is counted in full",
    "judged on completed jobs, without short ones; what a killed job had needed is not known",
    "jobs killed at a limit count as of that time or memory where requests are learned, which is "
    "less than they needed",
    "the waiting of jobs in the queue is not counted; shorter requests usually start sooner",
)


@dataclass(frozen=True)
class Saving:
    """One resource of judged jobs, as they asked for it and by the sequences.

    Attributes
    ----------
    evaluated : int
        Number of jobs.
    requested, proposed : float
        Requested core-hours, or GB-hours, of all attempts.
    ratio : Ratio
        Proposed over asked, with its interval.
    repeated : int
        Jobs that would have been killed at least once.
    lost_core_hours : float
        Core-hours in attempts that would have been killed.
    next_requests : tuple of float
        What to request now, by all jobs: seconds or bytes, increasing.
    """

    evaluated: int
    requested: float
    proposed: float
    ratio: Ratio
    repeated: int
    lost_core_hours: float
    next_requests: tuple[float, ...]


@dataclass(frozen=True)
class AppSavings:
    """What other requests would have saved for an application.

    Attributes
    ----------
    training_jobs : int
        Jobs before the first moment.
    too_short : int
        Later jobs that were killed at their limit, and had asked for less than the first request.
    too_small : int
        Later jobs that were killed for their memory, likewise.
    lost_core_hours : float
        Core-hours of these two.
    usd_requested, usd_proposed : float or None
        Cost of the judged jobs that state time and memory; None without prices.
    usd_ratio : Ratio or None
        Proposed over asked.
    """

    app: str
    core_hours: float
    training_jobs: int
    time: Saving | None
    memory: Saving | None
    too_short: int
    too_small: int
    lost_core_hours: float
    usd_requested: float | None = None
    usd_proposed: float | None = None
    usd_ratio: Ratio | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def savings_of(
    jobs: pd.DataFrame,
    app: str,
    objective: Objective,
    prices: JobPrices | None = None,
) -> AppSavings | None:
    """Return what other requests would have saved for the jobs of one application.

    Parameters
    ----------
    jobs : DataFrame
        Of `voxcast.hpc.audit.jobs`, all of one application, without interactive ones.
    prices : JobPrices, optional
        Of these jobs.

    Returns
    -------
    AppSavings or None
        None if there are too few jobs, or their order in time is not known.
    """
    app_jobs = AppJobs(jobs)
    if app_jobs.learnable.sum() < 2 * POPULATION_RUNS or not app_jobs.has_times:
        return None
    time = app_jobs.replayed_time(objective)
    memory = app_jobs.replayed_memory(objective)
    if time is None and memory is None:
        return None
    short, small = app_jobs.avoidable(time, memory)
    lost = core_hours(app_jobs.cpus, app_jobs.runtime_s)[short | small].sum()
    groups = app_jobs.groups()
    usd = None if prices is None else _usd(app_jobs, time, memory, prices, groups)
    return AppSavings(
        app,
        float(core_hours(app_jobs.cpus, app_jobs.runtime_s).sum()),
        int((app_jobs.learnable & (app_jobs.end_s <= app_jobs.moments[0])).sum()),
        None if time is None else _saving(time, groups),
        None if memory is None else _saving(memory, groups),
        int(short.sum()),
        int(small.sum()),
        float(lost),
        *((None, None, None) if usd is None else usd),
    )


def _saving(replayed: RequestReplay, groups: NDArray[np.int64]) -> Saving:
    mask = replayed.evaluated
    requested, proposed = replayed.requested[mask], replayed.proposed[mask]
    return Saving(
        int(mask.sum()),
        float(requested.sum()),
        float(proposed.sum()),
        ratio_of(proposed, requested, groups[mask]),
        int((replayed.kills[mask] > 0).sum()),
        float(replayed.lost_core_hours[mask].sum()),
        replayed.next_requests,
    )


def _usd(
    jobs: AppJobs,
    time: RequestReplay | None,
    memory: RequestReplay | None,
    prices: JobPrices,
    groups: NDArray[np.int64],
) -> tuple[float, float, Ratio] | None:
    """Return the cost of judged jobs as they asked, and by the sequences of both resources."""
    if time is None or memory is None:
        return None
    evaluated = time.evaluated & memory.evaluated & prices.priced
    if not evaluated.any():
        return None
    requested = prices.usd(jobs.asked_bytes, jobs.runtime_s, jobs.limit_s)
    proposed = prices.usd(memory.granted, jobs.runtime_s, time.granted)
    # What was used and requested in attempts that were killed, for time and for memory.
    with np.errstate(invalid="ignore", divide="ignore"):
        lost_s = time.lost_core_hours * SECONDS_PER_HOUR / jobs.cpus
    proposed += np.where(time.kills > 0, prices.usd(memory.granted, lost_s, lost_s), 0.0)
    small = memory.first  # of the sequence; later ones cost more, and are rare
    killed = prices.usd(small, jobs.runtime_s, time.granted)
    proposed += np.where(memory.kills > 0, memory.kills * killed, 0.0)
    requested, proposed = requested[evaluated], proposed[evaluated]
    if not requested.sum() > 0:
        return None  # a site that charges nothing
    ratio = ratio_of(proposed, requested, groups[evaluated])
    return float(requested.sum()), float(proposed.sum()), ratio


def select_apps(jobs: pd.DataFrame, most: int) -> list[str]:
    """Return the applications with most core-hours among the jobs that are not interactive."""
    batch = jobs[~jobs["interactive"]]
    hours = core_hours(batch["cpus"].to_numpy(), batch["runtime_s"].to_numpy())
    totals = pd.Series(hours).groupby(batch["app"].to_numpy(dtype=object)).sum()
    return [str(app) for app in totals.sort_values(ascending=False).index[:most]]
