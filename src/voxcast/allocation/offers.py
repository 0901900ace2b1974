"""Offers: the request of each image on each configuration, its cost and time, and the choice.

All arrays have the shape (images, candidates). The time and the memory of a request each suffice
with the policy's confidence, so the probability of failure is at most the sum `risk`. A failed
attempt uses its whole request, is charged and waited for in full, and is added to the attempt that
succeeds: expected = typical + risk × the whole request.

With a deadline the cheapest configuration that meets it is chosen, with a budget the fastest
within it, both at the policy's confidence (Vallabhajosyula and Ramnath, PEARC 2023). Without a
limit, or with both, cost and time are weighed by the policy's value of an hour in core-hours.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.site import SECONDS_PER_HOUR, Prices, stepped
from voxcast.errors import ConfigError, TableError
from voxcast.quantities import format_seconds, parse_seconds, slurm_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from voxcast.allocation.site import Candidate, Cluster

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

# On a cluster that charges nothing, cost is given in core-hours.
CORE_HOURS = Prices(1.0, 0.0, 0.0)
NONE = -1  # no candidate


@dataclass(frozen=True)
class Policy:
    """How much risk is accepted, and the value of time.

    Attributes
    ----------
    confidence : float
        Quantile of the upper bounds that are requested, between 0.5 and 1.
    time_margin, memory_margin : float
        Shares that are added to the upper bounds of time and memory.
    hour_in_core_hours : float
        Value of an hour of waiting for the result, in core-hours of the cluster.
    """

    name: str
    confidence: float
    time_margin: float
    memory_margin: float
    hour_in_core_hours: float

    @property
    def risk(self) -> float:
        """Upper bound of the probability that requested time or memory is too little."""
        return min(1.0, 2 * (1 - self.confidence))

    @property
    def risk_text(self) -> str:
        """The same in words, for requests whose bounds are calibrated."""
        return f"at most {100 * self.risk:.3g} % of such requests are too small"


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


def seconds_until(deadline: str, where: str = "deadline") -> float:
    """Return the seconds until a deadline as people write it.

    Parameters
    ----------
    deadline : str
        A time in ISO 8601, in this machine's zone where it names none, or a duration with a unit.
    where : str
        Name of the option or field, for messages.

    Raises
    ------
    ConfigError
        If it is neither, or in the past.

    Examples
    --------
    >>> seconds_until("2h")
    7200.0
    """
    with contextlib.suppress(ConfigError):
        return parse_seconds(deadline)
    try:
        time = datetime.fromisoformat(deadline).astimezone()
        left_s = (time - datetime.now().astimezone()).total_seconds()
    except (ValueError, OverflowError, OSError):  # years 1 and 9999, depending on the time zone
        then = "write a duration, 2h, or a time, 2026-12-24T18:00"
        raise ConfigError(f"not a duration or a time: {deadline!r}", where, then) from None
    if left_s <= 0:
        raise ConfigError(f"is in the past: {deadline}", where)
    return left_s


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model, arrays of shape (images, candidates).

    Upper bounds are at the policy's confidence.
    """

    runtime_median_s: Floats
    runtime_upper_s: Floats
    memory_median_bytes: Floats
    memory_upper_bytes: Floats

    def checked(self, candidates: int) -> Predictions:
        """Return the predictions with upper bounds raised to at least the medians.

        Raises
        ------
        TableError
            If the shapes do not agree or a number is not positive and finite.
        """
        for name, values in vars(self).items():
            if values.shape != (len(self.runtime_median_s), candidates):
                raise TableError(f"has the shape {values.shape}", name)
            if not (np.isfinite(values).all() and (values > 0).all()):
                raise TableError("must be positive and finite", name)
        return replace(
            self,
            runtime_upper_s=np.maximum(self.runtime_upper_s, self.runtime_median_s),
            memory_upper_bytes=np.maximum(self.memory_upper_bytes, self.memory_median_bytes),
        )


@dataclass(frozen=True)
class Choice:
    """The chosen candidates.

    Attributes
    ----------
    chosen : ndarray of int, shape (images,)
        Indices of candidates; `NONE` where none qualifies.
    nearest : ndarray of int
        Where none qualifies, the candidate that exceeds the limits least; `NONE` if none fits.
    qualified : ndarray of int
        Number of candidates within the limits.
    """

    chosen: NDArray[np.intp]
    nearest: NDArray[np.intp]
    qualified: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Offers:
    """Request, cost and time of each candidate for each image; made by `offers`.

    Attributes
    ----------
    walltime_s, memory_bytes : ndarray
        The request, rounded up to the steps of the cluster, with its least memory.
    wait_s : ndarray
        Expected time in the queue.
    cost, cost_bound : ndarray
        With the median runtime, and if the whole request is used. In US dollars, or core-hours
        where the cluster is free.
    turnaround_s, turnaround_bound_s : ndarray
        Waiting and running together: with the median runtime, and with the upper bound of the
        runtime, before it is rounded up to a request.
    too_long, too_large : ndarray of bool
        Whether the request exceeds the limit of time or memory.
    wastes_gpus : ndarray of bool
        Whether the node has GPUs and the same configuration fits one without.
    """

    predictions: Predictions
    candidates: Sequence[Candidate]
    cluster: Cluster
    policy: Policy
    limits: HardLimits
    walltime_s: Floats
    memory_bytes: Floats
    wait_s: Floats
    cost: Floats
    cost_bound: Floats
    turnaround_s: Floats
    turnaround_bound_s: Floats
    too_long: Flags
    too_large: Flags
    wastes_gpus: Flags

    @property
    def cost_expected(self) -> Floats:
        """Cost with failed attempts."""
        return self.cost + self.policy.risk * self.cost_bound

    @property
    def turnaround_expected_s(self) -> Floats:
        """Waiting and running with failed attempts."""
        return self.turnaround_s + self.policy.risk * (self.wait_s + self.walltime_s)

    @property
    def usd_bound(self) -> Floats:
        """Cost in US dollars if the whole request is used."""
        return np.zeros_like(self.cost_bound) if self.cluster.free else self.cost_bound

    @property
    def fits(self) -> Flags:
        """Whether the request is allowed."""
        return ~(self.too_long | self.too_large | self.wastes_gpus)

    @cached_property
    def pareto(self) -> Flags:
        """Whether the candidate is on the Pareto front of expected cost and time."""
        return pareto_front(self.cost_expected, self.turnaround_expected_s, self.fits)

    @property
    def excess(self) -> Floats:
        """Bound over limit, for the limit that is exceeded most; at most 1 within the limits."""
        excess = np.zeros(self.cost.shape)
        if self.limits.deadline_s is not None:
            excess = np.maximum(excess, self.turnaround_bound_s / self.limits.deadline_s)
        if self.limits.budget_usd is not None:
            # With a budget of 0 a lower cost is still nearer.
            excess = np.maximum(excess, self.usd_bound / max(self.limits.budget_usd, 1e-12))
        return excess

    @cached_property
    def choice(self) -> Choice:
        """The candidate for each image."""
        cost, time_s, excess = self.cost_expected, self.turnaround_expected_s, self.excess
        fits, qualifies = self.fits, self.fits & (excess <= 1)
        deadline, budget = self.limits.deadline_s is not None, self.limits.budget_usd is not None
        first, second = cost, time_s
        if budget and not deadline:
            first, second = time_s, cost
        elif budget == deadline:
            usd_per_hour = self.policy.hour_in_core_hours * self.cluster.usd_per_core_hour
            first = cost + usd_per_hour * time_s / SECONDS_PER_HOUR
        chosen = _best(first, second, qualifies)
        nearest = np.where(chosen >= 0, NONE, _best(excess, first, fits))
        return Choice(chosen, nearest, qualifies.sum(axis=1))

    def excluded(self, image: int, column: int) -> str | None:
        """Return why a candidate cannot be requested, or None if it can."""
        candidate, at = self.candidates[column], (image, column)
        memory, most = slurm_memory(self.memory_bytes[at]), candidate.max_memory_bytes
        time, longest = format_seconds(self.walltime_s[at]), candidate.max_walltime_s
        reasons = {
            f"needs --mem={memory}, but at most {int(most // 2**20)}M is allowed": self.too_large,
            f"needs {time}, but at most {format_seconds(longest)} is allowed": self.too_long,
            "does not need a node with GPUs": self.wastes_gpus,
        }
        return ", ".join(reason for reason, holds in reasons.items() if holds[at]) or None

    def why(self, image: int = 0) -> str:
        """Return why a candidate was chosen for an image, or why not, and which is nearest."""
        if self.choice.chosen[image] >= 0:
            count = int(self.choice.qualified[image])
            others = f"{count} configurations qualify" if count > 1 else "no other qualifies"
            return f"{self._aim()}; {others}"
        column = int(self.choice.nearest[image])
        if column < 0:
            reasons = [
                f"{candidate.label} {self.excluded(image, n)}"
                for n, candidate in enumerate(self.candidates)
            ]
            return f"no configuration fits: {'; '.join(reasons)}"
        bound = format_seconds(float(self.turnaround_bound_s[image, column]))
        cost = "" if self.cluster.free else f", {self.usd_bound[image, column]:.3g} USD"
        label = self.candidates[column].label
        return f"no configuration can {self._limits()}; the nearest is {label}: {bound}{cost}"

    def _aim(self) -> str:
        deadline, budget = self.limits.deadline_s is not None, self.limits.budget_usd is not None
        worth, free = self.policy.hour_in_core_hours, self.cluster.free
        aim = "the fewest core-hours" if free else "the cheapest"
        if budget and not deadline:
            aim = "the fastest"
        elif deadline == budget and worth:
            usd = "" if free else f" ({worth * self.cluster.usd_per_core_hour:.2g} USD)"
            hour = f"each hour until the result as {worth:g} core-hours{usd}"
            aim = f"the lowest cost, counting {hour},"
        aim = f"{aim} of the configurations that {self._limits()}" if deadline or budget else aim
        return aim.removesuffix(",")

    def _limits(self) -> str:
        """Return the limits in words; waiting is an expectation, not a bound."""
        texts = []
        if self.limits.deadline_s is not None:
            texts.append(f"finish within {format_seconds(self.limits.deadline_s)}, wait included")
        if self.limits.budget_usd is not None:
            usd = f"{self.limits.budget_usd:g} USD"
            texts.append(f"cost at most {usd} even if the full request is used")
        return f"{' and '.join(texts)}, with {100 * self.policy.confidence:g} % confidence"


def offers(
    predictions: Predictions,
    candidates: Sequence[Candidate],
    cluster: Cluster,
    policy: Policy,
    limits: HardLimits | None = None,
) -> Offers:
    """Return the requests for the predictions, with their cost, time and limits."""
    checked = predictions.checked(len(candidates))
    runtime, memory = checked.runtime_upper_s, checked.memory_upper_bytes
    walltime = stepped(runtime * (1 + policy.time_margin), cluster.walltime_step_s)
    needed = cluster.counted_bytes(memory * (1 + policy.memory_margin))
    memory_bytes = stepped(
        np.maximum(needed, cluster.memory_floor_bytes), cluster.memory_step_bytes
    )
    wait, cost, bound = (np.empty_like(walltime) for _ in range(3))
    bill = cluster.billing.usd
    for n, candidate in enumerate(candidates):
        if candidate.partition.memory_per_cpu:  # Slurm takes whole M for each CPU
            step = candidate.cpus * max(2**20, cluster.memory_step_bytes)
            memory_bytes[:, n] = stepped(memory_bytes[:, n], step)
        node, cpus, gpus = candidate.node, candidate.cpus, candidate.gpus
        node = replace(node, prices=CORE_HOURS) if cluster.free else node
        used_s = checked.runtime_median_s if node.charged == "used" else walltime
        wait[:, n] = candidate.partition.waiting.of(walltime[:, n])
        bound[:, n] = bill(node, cpus, gpus, memory_bytes[:, n], walltime[:, n])
        cost[:, n] = bill(node, cpus, gpus, memory_bytes[:, n], used_s[:, n])
    too_long = walltime > np.array([candidate.max_walltime_s for candidate in candidates])
    too_large = memory_bytes > np.array([c.max_memory_bytes for c in candidates])
    return Offers(
        checked, candidates, cluster, policy, limits or HardLimits(),
        walltime, memory_bytes, wait, cost, bound,
        wait + checked.runtime_median_s, wait + runtime,
        too_long, too_large, _wastes_gpus(candidates, ~(too_long | too_large)),
    )  # fmt: skip


def _wastes_gpus(candidates: Sequence[Candidate], possible: Flags) -> Flags:
    unneeded = np.zeros_like(possible)
    for n, candidate in enumerate(candidates):
        if candidate.node.gpus:
            without_gpus = [
                other.configuration == candidate.configuration and not other.node.gpus
                for other in candidates
            ]
            unneeded[:, n] = possible[:, without_gpus].any(axis=1)
    return unneeded


def pareto_front(cost: Floats, time: Floats, allowed: Flags) -> Flags:
    """Return a mask of the allowed entries that no allowed entry of their row dominates.

    Examples
    --------
    >>> pareto_front(np.array([[1, 2, 2, 3]]), np.array([[9, 5, 6, 5]]), np.ones((1, 4), bool))
    array([[ True,  True, False, False]])
    """
    dominated = ~allowed
    for n in range(cost.shape[1]):
        other_cost, other_time = cost[:, n : n + 1], time[:, n : n + 1]
        no_worse = (other_cost <= cost) & (other_time <= time)
        better = (other_cost < cost) | (other_time < time)
        dominated |= no_worse & better & allowed[:, n : n + 1]
    return ~dominated


def _best(primary: Floats, secondary: Floats, allowed: Flags) -> NDArray[np.intp]:
    """Return for each row the allowed index with the least ``primary``, then ``secondary``."""
    masked = np.where(allowed, primary, np.inf)
    least = masked.min(axis=1, keepdims=True)
    tied = allowed & (masked <= least * (1 + 1e-12))
    best = np.where(tied, secondary, np.inf).argmin(axis=1)
    return np.where(allowed.any(axis=1), best, NONE)
