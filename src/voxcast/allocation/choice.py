"""The choice of a configuration: within hard limits, or by the policy's trade-off.

With a deadline the cheapest configuration that meets it is chosen, with a budget the fastest
within it, both at the policy's confidence (Vallabhajosyula and Ramnath, PEARC 2023). Without a
limit, or with both, cost and time are weighed by the policy's value of an hour in core-hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.assessment import Assessment, Flags, Floats, Policy

NONE = -1  # no candidate


@dataclass(frozen=True)
class HardLimits:
    """Hard limits of a run, its deadline and its budget; None for no limit.

    Raises
    ------
    ConfigError
        If a limit is out of range.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None

    def __post_init__(self) -> None:
        deadline, budget = self.deadline_s, self.budget_usd
        if deadline is not None and not (math.isfinite(deadline) and deadline > 0):
            raise ConfigError(f"must be in the future and finite, not {deadline:g} s", "deadline")
        if budget is not None and not (math.isfinite(budget) and budget >= 0):
            raise ConfigError(f"must be at least 0 and finite, not {budget:g} USD", "budget")


@dataclass(frozen=True)
class Choice:
    """The chosen candidates.

    Attributes
    ----------
    chosen : ndarray of int, shape (images,)
        Indices of candidates; `NONE` where none qualifies.
    nearest : ndarray of int, shape (images,)
        Where none qualifies, the candidate that exceeds the limits least; `NONE` if none fits.
    qualified : ndarray of int, shape (images,)
        Number of candidates within the limits.
    """

    chosen: NDArray[np.intp]
    nearest: NDArray[np.intp]
    qualified: NDArray[np.intp]


def choose(
    assessment: Assessment, policy: Policy, limits: HardLimits, usd_per_core_hour: float
) -> Choice:
    """Choose a candidate for each image.

    Parameters
    ----------
    usd_per_core_hour : float
        Converts the policy's value of time, see
        `voxcast.allocation.site.Cluster.usd_per_core_hour`.
    """
    cost, time = assessment.cost_expected, assessment.turnaround_expected_s
    primary, secondary = _objectives(cost, time, policy, limits, usd_per_core_hour)
    qualifies = assessment.fits & within_limits(assessment, limits)
    chosen = _best(primary, secondary, qualifies)
    nearest = _best(_excess(assessment, limits), primary, assessment.fits)
    return Choice(chosen, np.where(chosen >= 0, NONE, nearest), qualifies.sum(axis=1))


def choose_shared(
    assessment: Assessment, policy: Policy, limits: HardLimits, usd_per_core_hour: float
) -> Choice:
    """Choose one candidate for all images; limits apply to each image. The result has one row.

    Parameters
    ----------
    assessment : Assessment
        Of `assess` with ``shared=True``.
    """
    cost, time_s = assessment.cost_expected, assessment.turnaround_expected_s
    primary, secondary = _objectives(
        cost.sum(axis=0)[None], time_s.sum(axis=0)[None], policy, limits, usd_per_core_hour
    )
    fits = np.asarray(assessment.fits.all(axis=0))[None]
    qualifies = fits & np.asarray(within_limits(assessment, limits).all(axis=0))[None]
    chosen = _best(primary, secondary, qualifies)
    nearest = _best(_excess(assessment, limits).max(axis=0)[None], primary, fits)
    return Choice(chosen, np.where(chosen >= 0, NONE, nearest), qualifies.sum(axis=1))


def _objectives(
    cost: Floats, time_s: Floats, policy: Policy, limits: HardLimits, usd_per_core_hour: float
) -> tuple[Floats, Floats]:
    """Return the objective to minimise, and the tie-breaker."""
    if limits.deadline_s is not None and limits.budget_usd is None:
        return cost, time_s
    if limits.budget_usd is not None and limits.deadline_s is None:
        return time_s, cost
    usd_per_hour = policy.hour_in_core_hours * usd_per_core_hour
    return cost + usd_per_hour * time_s / 3600, time_s


def within_limits(assessment: Assessment, limits: HardLimits) -> Flags:
    """Return whether the bound of each candidate is within the limits."""
    within = np.ones(assessment.cost.shape, dtype=bool)
    if limits.deadline_s is not None:
        within &= assessment.turnaround_bound_s <= limits.deadline_s
    if limits.budget_usd is not None:
        within &= assessment.usd_bound <= limits.budget_usd
    return within


def _excess(assessment: Assessment, limits: HardLimits) -> Floats:
    """Return the factor by which the most exceeded limit is exceeded."""
    excess = np.zeros(assessment.cost.shape)
    if limits.deadline_s is not None:
        excess = np.maximum(excess, assessment.turnaround_bound_s / limits.deadline_s)
    if limits.budget_usd is not None:
        # With a budget of 0 a lower cost is still nearer.
        budget_usd = max(limits.budget_usd, 1e-12)
        excess = np.maximum(excess, assessment.usd_bound / budget_usd)
    return excess


def _best(primary: Floats, secondary: Floats, allowed: Flags) -> NDArray[np.intp]:
    """Return for each row the allowed index with the least ``primary``, then ``secondary``."""
    masked = np.where(allowed, primary, np.inf)
    least = masked.min(axis=1, keepdims=True)
    tied = allowed & (masked <= least * (1 + 1e-12))
    best = np.where(tied, secondary, np.inf).argmin(axis=1)
    return np.where(allowed.any(axis=1), best, NONE)
