"""Sequences of requests by name of strategy, each with its exact mean cost.

A request is given by the work that is completed at its end (its milestone). Checkpoints add to its
length, see `CostModel.lengths`. Where the support of a law is infinite, a sequence is listed up to
the request that one job in ten million exceeds.

References
----------
Aupy, Gainaru, Honoré, Raghavan, Robert and Sun, "Reservation strategies for stochastic jobs",
IPDPS 2019; Gainaru, Goglin, Honoré, Pallez, Raghavan, Robert and Sun, "Reservation and
checkpointing strategies for stochastic jobs", IPDPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.requests.cost import NEGLIGIBLE, CostModel
from voxcast.allocation.requests.programme import (
    EPSILON,
    POINTS,
    Optimum,
    RequestGrid,
    all_checkpoints,
    end_of,
    equal_probability,
    equal_time,
    mixed_checkpoints,
    without_checkpoints,
)
from voxcast.errors import ConfigError, one_line
from voxcast.quantities import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

ALL = "all"  # strategies
MAX_REQUESTS = 10_000  # of a rule; beyond it requests double
_HALVINGS = 53  # 1 - 2 ** -53 is the largest double below 1
CANDIDATES, MAX_CANDIDATE_REQUESTS = 5000, 1000  # of brute force
MOST_PERIODS = 1000
# Out of this range, squares and doublings of a length are out of the range of a double.
_TINY, _HUGE = 1e-100, 1e100
# The normalised cost is at least 1; less than that is an error of the functions of the law.
_ROUNDING = 1e-6
_FEW_JOBS = f"one job in {1e-6 / EPSILON:g} million"


@dataclass(frozen=True)
class Settings:
    """Choices of the strategies.

    Attributes
    ----------
    points : int
        Number of points of the discretised law, at least 1.
    format_length : callable
        How a length in the unit of the law is written in notes.
    """

    points: int = POINTS
    format_length: Callable[[float], str] = "{:.6g}".format


@dataclass(frozen=True)
class Draft:
    """A sequence before it is priced."""

    milestones: Floats
    checkpoints: Flags | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Strategy:
    """The function that makes the sequence, its meaning, and whether it uses checkpoints."""

    make: Callable[[Law, CostModel, Settings], Draft]
    meaning: str
    checkpoints: bool = False


# Rules from mean, standard deviation or median alone.


def mean_by_mean(law: Law, cost: CostModel) -> Floats:
    t = [law.mean]
    while len(t) < MAX_REQUESTS and not _negligible(law, cost, np.array(t[-1:])).any():
        next_request = law.mean_above(t[-1])
        if not next_request > t[-1]:
            break
        t.append(next_request)
    return np.array(t)


def mean_stdev(law: Law, cost: CostModel) -> Floats:
    sd = law.sd
    if not math.isfinite(sd):
        raise ConfigError("needs a finite standard deviation", "mean_stdev")
    return law.mean + sd * np.arange(MAX_REQUESTS, dtype=np.float64)


def mean_doubling(law: Law, cost: CostModel) -> Floats:
    doublings = int(math.log2(1e200 / law.mean))
    return law.mean * np.exp2(np.arange(doublings, dtype=np.float64))


def median_by_median(law: Law, cost: CostModel) -> Floats:
    return law.quantile(1 - np.exp2(-np.arange(1, _HALVINGS + 1)))


def _negligible(law: Law, cost: CostModel, t: Floats) -> Flags:
    price = (cost.alpha + cost.beta) * t + cost.gamma
    return np.asarray(price * law.sf(t) <= NEGLIGIBLE * cost.omniscient(law))


def _rule(make: Callable[[Law, CostModel], Floats], meaning: str) -> Strategy:
    """Return a strategy whose requests end where the remaining cost is negligible.

    The last request is the end of the support, where that is finite.
    """

    def draft(law: Law, cost: CostModel, settings: Settings) -> Draft:
        high = law.support[1]
        t = np.unique(np.minimum(make(law, cost), high))
        t = t[np.isfinite(t) & (t > 0)]
        small = np.flatnonzero(_negligible(law, cost, t))
        if len(small):
            t = t[: small[0] + 1]
        t = np.append(t, high) if t[-1] < high < math.inf else t
        doubled = (f"doubled after {MAX_REQUESTS} requests",)
        return Draft(t, notes=doubled if len(t) >= MAX_REQUESTS else ())

    return Strategy(draft, meaning)


def largest_first(law: Law, cost: CostModel) -> float:
    """Return a bound on the first request of an optimal sequence (IPDPS 2019, theorem 2).

    Raises
    ------
    ConfigError
        If the variance is infinite, where a bound does not exist.
    """
    low, high = law.support
    if math.isfinite(high):
        return high
    mean, square = law.mean, law.sd**2 + law.mean**2
    if not math.isfinite(square):
        raise ConfigError("needs a finite variance", "brute_force")
    unit_price = cost.alpha + cost.beta
    return (
        mean + 1 + unit_price / (2 * cost.alpha) * (square - low**2)
        + (unit_price + cost.gamma) / cost.alpha * (mean - low)
    )  # fmt: skip


def brute_force(law: Law, cost: CostModel) -> Floats:
    """Return the cheapest sequence of the recurrence, from many first requests at once.

    The density and the first request of an optimal sequence determine all others (IPDPS 2019,
    theorem 3 and proposition 1), so candidates for the first request are tried. The recurrence
    amplifies errors: for most candidates the sequence stops increasing, and they are dropped. A
    sequence ends where one job in ten million is longer.

    Raises
    ------
    ConfigError
        If the law has no density or an infinite variance, or no sequence keeps increasing.
    """
    if not law.continuous:
        then = "give one such as lognormal(3,0.5), or use equal_probability"
        raise ConfigError("needs a law with a density", "brute_force", then)
    low, high = law.support
    first = low + (largest_first(law, cost) - low) * np.arange(1, CANDIDATES + 1) / CANDIDATES
    sequences, paid, previous_sf = first[:, None], cost.alpha * first + cost.gamma, first**0
    cheapest, best = math.inf, first[:0]
    for _ in range(MAX_CANDIDATE_REQUESTS):
        sf = law.sf(sequences[:, -1])
        complete = sf <= EPSILON
        total = np.where(complete, paid, math.inf)
        if total.min() < cheapest:
            cheapest, best = total.min(), sequences[total.argmin()]
        # A sequence that costs more than the best one so far cannot become the best.
        active = ~complete & (paid < cheapest)
        sequences, paid, previous_sf, sf = (a[active] for a in (sequences, paid, previous_sf, sf))
        if not len(sequences):
            break
        with np.errstate(all="ignore"):
            requests = sequences[:, -1]
            density = law.pdf(requests)
            following = (
                previous_sf / density
                + cost.beta / cost.alpha * (sf / density - requests)
                - cost.gamma / cost.alpha
            )
            following = np.minimum(np.where(np.isnan(following), high, following), high)
            increasing = (following > requests) & np.isfinite(following)
            paid += (cost.alpha * following + cost.beta * requests + cost.gamma) * sf
        sequences = np.column_stack([sequences, following])[increasing]
        paid, previous_sf = paid[increasing], sf[increasing]
        if not len(sequences):
            break
    if not len(best):
        problem = f"no sequence of {CANDIDATES} first requests keeps increasing"
        raise ConfigError(problem, "brute_force")
    return best


def _programme(
    optimum: Callable[[RequestGrid, CostModel], Optimum],
    meaning: str,
    discretised: Callable[[Law, int], RequestGrid] = equal_time,
    checkpoints: bool = False,
) -> Strategy:
    def draft(law: Law, cost: CostModel, settings: Settings) -> Draft:
        grid = discretised(law, settings.points)
        optimal = optimum(grid, cost)
        notes = [counted(len(grid.points), "point")]
        if math.isinf(law.support[1]):
            end = settings.format_length(float(grid.points[-1]))
            notes.append(f"doubled after {end}, which {_FEW_JOBS} exceeds")
        flags = optimal.checkpoints if checkpoints else None
        return Draft(optimal.milestones, flags, tuple(notes))

    return Strategy(draft, meaning, checkpoints)


def periodic(law: Law, periods: int, *, checkpoints: bool) -> tuple[Floats, Flags]:
    """Return milestones and checkpoints of a sequence that divides the support equally.

    There is a checkpoint after each request but the last, or none.
    """
    t = np.unique(np.linspace(law.support[0], end_of(law), periods + 1)[1:])
    return t, (np.arange(len(t)) < len(t) - 1) & checkpoints


def _periodic(meaning: str, checkpoints: bool) -> Strategy:
    def draft(law: Law, cost: CostModel, settings: Settings) -> Draft:
        drafts = [periodic(law, n, checkpoints=checkpoints) for n in range(1, MOST_PERIODS + 1)]
        best = int(np.argmin([cost.expected(law, *sequence) for sequence in drafts]))
        t, flags = drafts[best]
        note = f"{counted(best + 1, 'period')}, the best of 1 to {MOST_PERIODS}"
        return Draft(t, flags if checkpoints else None, (note,))

    return Strategy(draft, meaning, checkpoints)


STRATEGIES: dict[str, Strategy] = {
    "brute_force": Strategy(
        lambda law, cost, _: Draft(brute_force(law, cost)),
        "the best of many first requests, each of which determines the rest",
    ),
    "mean_by_mean": _rule(mean_by_mean, "the mean, then the mean of the jobs that take longer"),
    "mean_stdev": _rule(mean_stdev, "the mean, then one standard deviation more each time"),
    "mean_doubling": _rule(mean_doubling, "the mean, then twice as much each time"),
    "median_by_median": _rule(
        median_by_median, "the median, then the median of the jobs that take longer"
    ),
    "equal_time": _programme(without_checkpoints, "optimal among equally spaced times"),
    "equal_probability": _programme(
        without_checkpoints, "optimal among equally probable times", equal_probability
    ),
    "no_ckpt": _programme(
        without_checkpoints, "optimal without a checkpoint: equal_time beside all_ckpt"
    ),
    "all_ckpt": _programme(
        all_checkpoints, "optimal with a checkpoint after each request", checkpoints=True
    ),
    "mixed_ckpt": _programme(
        mixed_checkpoints, "optimal, and where to write a checkpoint", checkpoints=True
    ),
    "all_periodic": _periodic("equal steps with a checkpoint after each, a baseline", True),
    "no_periodic": _periodic("equal steps without a checkpoint, a baseline", False),
}
# Strategies that jobs which cannot write a checkpoint cannot use.
CHECKPOINTING = [name for name, strategy in STRATEGIES.items() if strategy.checkpoints]


@dataclass(frozen=True)
class RequestSequence:
    """The requests of a strategy, made one after the other until one suffices.

    Attributes
    ----------
    milestones : tuple of float
        Work completed at the end of each request, in the unit of the law.
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

    def as_json(self, notes: Sequence[str] = ()) -> dict[str, Any]:
        """Return the sequence as an object that `json` can write, with further notes."""
        requests: list[Any] = list(self.lengths)
        if self.checkpoints is not None:
            requests = [
                {"request": length, "milestone": milestone, "checkpoint": checkpoint}
                for length, milestone, checkpoint in zip(
                    self.lengths, self.milestones, self.checkpoints, strict=True
                )
            ]
        return {
            "strategy": self.strategy,
            "sequence": requests,
            "expected_cost": self.expected_cost,
            "normalised_cost": self.normalised_cost,
            "notes": [*self.notes, *notes],
        }


def request_sequence(
    strategy: str, law: Law, cost: CostModel, settings: Settings | None = None
) -> RequestSequence:
    """Return the sequence that a strategy of `STRATEGIES` makes for a law.

    Raises
    ------
    ConfigError
        If the strategy is unknown, or cannot work with this law.

    Examples
    --------
    >>> from voxcast.laws.families import uniform
    >>> sequence = request_sequence("brute_force", uniform(10, 20), CostModel())
    >>> sequence.milestones, round(sequence.normalised_cost, 4)
    ((20.0,), 1.3333)
    """
    if strategy not in STRATEGIES:
        raise ConfigError("unknown strategy", strategy, f"choose from {', '.join(STRATEGIES)}")
    if law.support[0] < 0:
        raise ConfigError("allows negative lengths", "the law", "use one on positive lengths")
    # SciPy's functions overflow before they return a valid 0 or inf; the result is checked below.
    with np.errstate(all="ignore"):
        if not (_TINY < law.mean < _HUGE and _TINY < end_of(law) < _HUGE):
            raise ConfigError("its mean or its end is out of range", "the law")
        draft = STRATEGIES[strategy].make(law, cost, settings or Settings())
        t, flags, notes = draft.milestones, draft.checkpoints, draft.notes
        expected = cost.expected(law, t, flags)
        normalised = expected / cost.omniscient(law)
        survival = law.sf(t)
    if not (math.isfinite(normalised) and normalised >= 1 - _ROUNDING):
        raise ConfigError("the mean cost is out of the range of a double", strategy)
    if math.isinf(law.support[1]):
        sufficient = np.flatnonzero(survival <= EPSILON * (1 + 1e-6))
        listed = 1 + int(sufficient[0]) if len(sufficient) else len(t)
        if listed < len(t):
            notes = (*notes, f"listed up to the request that {_FEW_JOBS} exceeds")
        t, flags = t[:listed], None if flags is None else flags[:listed]
    flag_list = None if flags is None else tuple(flags.tolist())
    lengths = tuple(cost.lengths(t, flags).tolist())
    return RequestSequence(
        strategy, tuple(t.tolist()), flag_list, lengths, expected, normalised, notes
    )


def alternatives(
    strategy: str, law: Law, cost: CostModel, settings: Settings, *, can_checkpoint: bool
) -> tuple[list[RequestSequence], list[str]]:
    """Return the sequence of a strategy, or of each that can work with the law.

    Parameters
    ----------
    strategy : str
        A name of `STRATEGIES`, or ``all``.
    can_checkpoint : bool
        Whether the lengths of a checkpoint and of a restart are known.

    Returns
    -------
    list of RequestSequence
        In the order of `STRATEGIES`.
    list of str
        Why strategies cannot work with this law.

    Raises
    ------
    ConfigError
        If the strategy is unknown or cannot work, or none can.
    """
    if strategy in CHECKPOINTING and not can_checkpoint:
        raise ConfigError("needs --checkpoint WRITE,RESTART", strategy)
    every = [name for name in STRATEGIES if can_checkpoint or name not in CHECKPOINTING]
    names = every if strategy == ALL else [strategy]
    sequences: list[RequestSequence] = []
    refused: list[str] = []
    for name in names:
        try:
            sequences.append(request_sequence(name, law, cost, settings))
        except ConfigError as error:  # the other strategies are still computed
            if not sequences and name == names[-1]:
                raise
            refused.append(one_line(error))
    return sequences, refused
