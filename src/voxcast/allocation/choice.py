"""Which configuration to choose: within hard limits, or by the policy's trade-off.

A hard time limit takes the cheapest configuration that is done in time, a hard cost limit the
fastest that stays within it, both at the policy's confidence (Vallabhajosyula and Ramnath, PEARC
2023). Without a limit, or with both, cost and time are weighed: an hour of waiting for the result
is worth so many core-hours.
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

NONE = -1  # in the place of a candidate's number


@dataclass(frozen=True)
class RunLimits:
    """Hard limits of one run, None for none: until when it must be done, and what it may cost.

    Raises
    ------
    ConfigError
        If a limit makes no sense.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None

    def __post_init__(self) -> None:
        deadline, budget = self.deadline_s, self.budget_usd
        if deadline is not None and not (math.isfinite(deadline) and deadline > 0):
            raise ConfigError(f"is over already or no time at all: {deadline:g} s", "deadline")
        if budget is not None and not (math.isfinite(budget) and budget >= 0):
            raise ConfigError(f"must not be negative, and finite: {budget:g} USD", "budget")


@dataclass(frozen=True)
class Choice:
    """The candidates chosen.

    Attributes
    ----------
    chosen : ndarray of int, shape (images,)
        Numbers of candidates; `NONE` where none qualifies.
    nearest : ndarray of int, shape (images,)
        Where none qualifies, the one that exceeds the limits least; `NONE` if none fits at all.
    qualified : ndarray of int, shape (images,)
        How many there were to choose from.
    """

    chosen: NDArray[np.intp]
    nearest: NDArray[np.intp]
    qualified: NDArray[np.intp]


def choose(
    assessment: Assessment, policy: Policy, limits: RunLimits, usd_per_core_hour: float
) -> Choice:
    """Choose for each image.

    Parameters
    ----------
    usd_per_core_hour : float
        What the policy's value of time is multiplied with, see
        `voxcast.allocation.machines.Cluster.usd_per_core_hour`.
    """
    cost, time = assessment.cost_expected, assessment.turnaround_expected_s
    primary, secondary = _aims(cost, time, policy, limits, usd_per_core_hour)
    qualifies = assessment.fits & _within(assessment, limits)
    chosen = _best(primary, secondary, qualifies)
    nearest = _best(_excess(assessment, limits), primary, assessment.fits)
    return Choice(chosen, np.where(chosen >= 0, NONE, nearest), qualifies.sum(axis=1))


def choose_shared(
    assessment: Assessment, policy: Policy, limits: RunLimits, usd_per_core_hour: float
) -> Choice:
    """Choose one candidate for all images; limits are those of each. The result has one row.

    Parameters
    ----------
    assessment : Assessment
        Made with ``shared=True``.
    """
    cost, time_s = assessment.cost_expected, assessment.turnaround_expected_s
    primary, secondary = _aims(
        cost.sum(axis=0)[None], time_s.sum(axis=0)[None], policy, limits, usd_per_core_hour
    )
    fits = np.asarray(assessment.fits.all(axis=0))[None]
    qualifies = fits & np.asarray(_within(assessment, limits).all(axis=0))[None]
    chosen = _best(primary, secondary, qualifies)
    nearest = _best(_excess(assessment, limits).max(axis=0)[None], primary, fits)
    return Choice(chosen, np.where(chosen >= 0, NONE, nearest), qualifies.sum(axis=1))


def _aims(
    cost: Floats, time_s: Floats, policy: Policy, limits: RunLimits, usd_per_core_hour: float
) -> tuple[Floats, Floats]:
    """Return what is made small, and what decides between equals."""
    if limits.deadline_s is not None and limits.budget_usd is None:
        return cost, time_s
    if limits.budget_usd is not None and limits.deadline_s is None:
        return time_s, cost
    worth = policy.hour_in_core_hours * usd_per_core_hour
    return cost + worth * time_s / 3600, time_s


def _within(assessment: Assessment, limits: RunLimits) -> Flags:
    kept = np.ones(assessment.cost.shape, dtype=bool)
    if limits.deadline_s is not None:
        kept &= assessment.turnaround_bound_s <= limits.deadline_s
    if limits.budget_usd is not None:
        kept &= assessment.usd_bound <= limits.budget_usd
    return kept


def _excess(assessment: Assessment, limits: RunLimits) -> Floats:
    """Return by what factor the limits are exceeded, that which is exceeded most."""
    excess = np.zeros(assessment.cost.shape)
    if limits.deadline_s is not None:
        excess = np.maximum(excess, assessment.turnaround_bound_s / limits.deadline_s)
    if limits.budget_usd is not None:
        # Against a budget of nothing, what costs less is nearer all the same.
        least = max(limits.budget_usd, 1e-12)
        excess = np.maximum(excess, assessment.usd_bound / least)
    return excess


def _best(primary: Floats, secondary: Floats, allowed: Flags) -> NDArray[np.intp]:
    """Return in each row the allowed place of the least ``primary``, then ``secondary``."""
    masked = np.where(allowed, primary, np.inf)
    least = masked.min(axis=1, keepdims=True)
    tied = allowed & (masked <= least * (1 + 1e-12))
    found = np.where(tied, secondary, np.inf).argmin(axis=1)
    return np.where(allowed.any(axis=1), found, NONE)
