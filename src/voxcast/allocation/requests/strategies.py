"""Sequences of requests by name of strategy, each with its exact mean cost.

A request is given by the work that is completed at its end (its milestone). Checkpoints add to its
length, see `CostModel.lengths`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests import dynamic_programme, heuristics
from voxcast.allocation.requests.brute_force import brute_force
from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.discretisation import (
    DISCRETISATIONS,
    EPSILON,
    POINTS,
    end_of,
    points_for,
)
from voxcast.allocation.requests.periodic import MOST_PERIODS, best_periods, periodic
from voxcast.errors import ConfigError
from voxcast.quantities import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

ACCURACY = 0.1
# More points take seconds without a gain; with mixed checkpoints also much memory.
MOST_POINTS, MOST_MIXED_POINTS = 10_000, 2000
_MOST_GIVEN_PERIODS = 100_000
# Out of this range, squares and doublings of a length are out of the range of a double.
_TINY, _HUGE = 1e-100, 1e100
# The normalised cost is at least 1; less than that is an error of the functions of the law.
_ROUNDING = 1e-6
_FEW_JOBS = f"one job in {1e-6 / EPSILON:g} million"


@dataclass(frozen=True)
class RequestSequence:
    """The requests of a strategy, made one after the other until one suffices.

    Attributes
    ----------
    milestones : tuple of float
        Work completed at the end of each request, in the unit of the law. For an infinite support
        the list ends at the request that one job in ten million exceeds.
    checkpoints : tuple of bool or None
        Whether each ends with a checkpoint; None for a strategy without checkpoints.
    lengths : tuple of float
        Requested lengths: work, with the restart before and the checkpoint after it.
    expected_cost : float
        Exact mean, of the complete sequence.
    normalised_cost : float
        Expected cost over the cost of requesting exactly the length of each job.
    notes : tuple of str
        Choices and truncations of the strategy, for display.
    """

    strategy: str
    milestones: tuple[float, ...]
    checkpoints: tuple[bool, ...] | None
    lengths: tuple[float, ...]
    expected_cost: float
    normalised_cost: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Choices of the strategies.

    Attributes
    ----------
    points : int
        Number of points of the discretised law.
    periods : int or None
        Number of periods; None for the best.
    format_length : callable
        How a length in the unit of the law is written in notes.
    """

    points: int = POINTS
    periods: int | None = None
    format_length: Callable[[float], str] = "{:.6g}".format

    def __post_init__(self) -> None:
        if self.points < 1:
            raise ConfigError(f"must be at least 1, not {self.points}", "points")
        if self.periods is not None and not 1 <= self.periods <= _MOST_GIVEN_PERIODS:
            limits = f"between 1 and {_MOST_GIVEN_PERIODS}"
            raise ConfigError(f"must be {limits}, not {self.periods}", "periods")


@dataclass(frozen=True)
class Draft:
    """A sequence before it is priced."""

    milestones: NDArray[np.float64]
    checkpoints: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Strategy:
    """The function that makes the sequence, its meaning, and whether it uses checkpoints."""

    make: Callable[[Law, CostModel, Settings], Draft]
    meaning: str
    checkpoints: bool = False


def _rule(make: Callable[[Law, CostModel], NDArray[np.float64]], meaning: str) -> Strategy:
    def draft(law: Law, cost: CostModel, settings: Settings) -> Draft:
        t = make(law, cost)
        truncation = f"doubled after {heuristics.MAX_REQUESTS} requests"
        return Draft(t, notes=(truncation,) if len(t) >= heuristics.MAX_REQUESTS else ())

    return Strategy(draft, meaning)


def _programme(
    name: str, meaning: str, discretisation: str = "equal_time", checkpoints: bool = False
) -> Strategy:
    optimum = getattr(dynamic_programme, name)
    max_points = MOST_MIXED_POINTS if name == "mixed_checkpoints" else MOST_POINTS

    def draft(law: Law, cost: CostModel, settings: Settings) -> Draft:
        points = min(settings.points, max_points)
        grid = DISCRETISATIONS[discretisation](law, points)
        optimal = optimum(grid, cost)
        capped = f" of {settings.points} requested" if points < settings.points else ""
        notes = [f"{counted(len(grid.points), 'point')}{capped}"]
        if math.isinf(law.support[1]):
            end = settings.format_length(float(grid.points[-1]))
            notes.append(f"doubled after {end}, which {_FEW_JOBS} exceeds")
        if checkpoints:
            points_needed = points_for(law, cost, ACCURACY)
            if points_needed > points:
                number = (
                    f"{points_needed:.0f} would"
                    if math.isfinite(points_needed)
                    else "no number could"
                )
                notes.append(f"{number} guarantee at most {100 * ACCURACY:g} % above the optimum")
        return Draft(
            optimal.milestones, optimal.checkpoints if checkpoints else None, tuple(notes)
        )

    return Strategy(draft, meaning, checkpoints)


def _periodic(meaning: str, checkpoints: bool) -> Strategy:
    def draft(law: Law, cost: CostModel, settings: Settings) -> Draft:
        periods = settings.periods or best_periods(law, cost, checkpoints=checkpoints)
        t, flags = periodic(law, periods, checkpoints=checkpoints)
        choice = "as requested" if settings.periods else f"the best of 1 to {MOST_PERIODS}"
        note = f"{counted(periods, 'period')}, {choice}"
        return Draft(t, flags if checkpoints else None, (note,))

    return Strategy(draft, meaning, checkpoints)


STRATEGIES: dict[str, Strategy] = {
    "brute_force": _rule(
        brute_force, "the best of many first requests, each of which determines the rest"
    ),
    "mean_by_mean": _rule(
        heuristics.mean_by_mean, "the mean, then the mean of the jobs that take longer"
    ),
    "mean_stdev": _rule(
        heuristics.mean_stdev, "the mean, then one standard deviation more each time"
    ),
    "mean_doubling": _rule(heuristics.mean_doubling, "the mean, then twice as much each time"),
    "median_by_median": _rule(
        heuristics.median_by_median, "the median, then the median of the jobs that take longer"
    ),
    "equal_time": _programme(
        "without_checkpoints", "optimal among equally spaced times"
    ),
    "equal_probability": _programme(
        "without_checkpoints", "optimal among equally probable times",
        "equal_probability",
    ),
    "no_ckpt": _programme(
        "without_checkpoints", "optimal without a checkpoint: equal_time beside all_ckpt"
    ),
    "all_ckpt": _programme(
        "all_checkpoints", "optimal with a checkpoint after each request", checkpoints=True
    ),
    "mixed_ckpt": _programme(
        "mixed_checkpoints", "optimal, and where to write a checkpoint", checkpoints=True
    ),
    "all_periodic": _periodic(
        "equal steps with a checkpoint after each, a baseline", checkpoints=True
    ),
    "no_periodic": _periodic(
        "equal steps without a checkpoint, a baseline", checkpoints=False
    ),
}  # fmt: skip


def request_sequence(
    strategy: str, law: Law, cost: CostModel, settings: Settings | None = None
) -> RequestSequence:
    """Return the sequence that a strategy of `STRATEGIES` makes for a law.

    Raises
    ------
    ConfigError
        If there is no such strategy, or it cannot work with this law.

    Examples
    --------
    >>> from voxcast.laws.families import uniform
    >>> sequence = request_sequence("brute_force", uniform(10, 20), CostModel())
    >>> sequence.milestones, round(sequence.normalised_cost, 4)
    ((20.0,), 1.3333)
    """
    if strategy not in STRATEGIES:
        raise ConfigError("unknown strategy", strategy, f"choose from {', '.join(STRATEGIES)}")
    # SciPy's functions overflow before they return a valid 0 or inf; the result is checked below.
    with np.errstate(all="ignore"):
        _check(law)
        draft = STRATEGIES[strategy].make(law, cost, settings or Settings())
        t, flags, notes = draft.milestones, draft.checkpoints, draft.notes
        expected = cost.expected(law, t, flags)
        normalised = cost.normalised(law, expected)
        survival = law.sf(t)
    if not (math.isfinite(normalised) and normalised >= 1 - _ROUNDING):
        raise ConfigError("the mean cost is out of the range of a double", strategy)
    if math.isinf(law.support[1]):
        sufficient = np.flatnonzero(survival <= EPSILON * (1 + 1e-6))
        n_listed = 1 + int(sufficient[0]) if len(sufficient) else len(t)
        if n_listed < len(t):
            notes = (*notes, f"listed up to the request that {_FEW_JOBS} exceeds")
        t, flags = t[:n_listed], None if flags is None else flags[:n_listed]
    return RequestSequence(
        strategy,
        tuple(t.tolist()),
        None if flags is None else tuple(flags.tolist()),
        tuple(cost.lengths(t, flags).tolist()),
        expected,
        normalised,
        notes,
    )


def _check(law: Law) -> None:
    if law.support[0] < 0:
        raise ConfigError("allows negative lengths", "the law", "use one on positive lengths")
    if not (_TINY < law.mean < _HUGE and _TINY < end_of(law) < _HUGE):
        raise ConfigError("its mean or its end is out of range", "the law")
