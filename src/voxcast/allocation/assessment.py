"""Request, cost and time of every configuration, for many images at once.

All arrays have the shape (images, candidates). The time and the memory of a request each suffice
with the policy's confidence, so the probability of failure is at most the sum `risk`. A failed
attempt uses its whole request, is charged and waited for in full, and is added to the attempt that
succeeds: expected = typical + risk × the whole request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.site import BYTES_PER_GB, SECONDS_PER_HOUR, Prices, stepped
from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from voxcast.allocation.site import Candidate, Cluster

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

# On a cluster that charges nothing, cost is given in core-hours.
CORE_HOURS = Prices(1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Policy:
    """How much risk is accepted, and the value of time.

    Attributes
    ----------
    confidence : float
        Quantile of the upper bounds that are requested, between 0.5 and 1.
    memory_margin : float
        Share that is added to the upper bound of memory.
    hour_in_core_hours : float
        Value of an hour of waiting for the result, in core-hours of the cluster.
    """

    name: str
    confidence: float
    memory_margin: float
    hour_in_core_hours: float

    @property
    def risk(self) -> float:
        """Upper bound of the probability that requested time or memory is too little."""
        return min(1.0, 2 * (1 - self.confidence))


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
            if values.ndim != 2 or values.shape != (len(self.runtime_median_s), candidates):
                raise TableError(f"has the shape {values.shape}", name)
            if not (np.isfinite(values).all() and (values > 0).all()):
                raise TableError("must be positive and finite", name)
        return replace(
            self,
            runtime_upper_s=np.maximum(self.runtime_upper_s, self.runtime_median_s),
            memory_upper_bytes=np.maximum(self.memory_upper_bytes, self.memory_median_bytes),
        )


@dataclass(frozen=True)
class Assessment:
    """Request, cost and time of each candidate for each image.

    Attributes
    ----------
    walltime_s, memory_bytes : ndarray
        The request, rounded up to the steps of the cluster, with its least memory.
    wait_s : ndarray
        Expected time in the queue.
    cost, cost_bound, cost_expected : ndarray
        With the median runtime; if the whole request is used; with failed attempts. In US
        dollars, or core-hours where the cluster is free.
    turnaround_s, turnaround_bound_s, turnaround_expected_s : ndarray
        Waiting and running together: with the median runtime; with the upper bound of the
        runtime, before it is rounded up to a request; with failed attempts.
    too_long, too_large : ndarray of bool
        Whether the request exceeds the limit of time or memory.
    wastes_gpus : ndarray of bool
        Whether the node has GPUs and the same configuration fits one without.
    pareto : ndarray of bool
        Whether the candidate is on the Pareto front of expected cost and time.
    free : bool
        Whether cost is given in core-hours.
    """

    walltime_s: Floats
    memory_bytes: Floats
    wait_s: Floats
    cost: Floats
    cost_bound: Floats
    cost_expected: Floats
    turnaround_s: Floats
    turnaround_bound_s: Floats
    turnaround_expected_s: Floats
    too_long: Flags
    too_large: Flags
    wastes_gpus: Flags
    pareto: Flags
    free: bool

    @property
    def fits(self) -> Flags:
        """Whether the request is allowed."""
        return ~(self.too_long | self.too_large | self.wastes_gpus)

    @property
    def usd_bound(self) -> Floats:
        """Cost in US dollars if the whole request is used."""
        return np.zeros_like(self.cost_bound) if self.free else self.cost_bound


def assess(
    predictions: Predictions,
    candidates: Sequence[Candidate],
    cluster: Cluster,
    policy: Policy,
    *,
    shared: bool = False,
) -> Assessment:
    """Return the requests for the predictions, with their cost, time and limits.

    Parameters
    ----------
    shared : bool
        One request for all images, as for an array job: the largest for each candidate.
    """
    checked = predictions.checked(len(candidates))
    runtime, memory = checked.runtime_upper_s, checked.memory_upper_bytes
    if shared:
        runtime, memory = (np.broadcast_to(a.max(axis=0), a.shape) for a in (runtime, memory))
    walltime = stepped(runtime, cluster.walltime_step_s)
    counted = cluster.counted_bytes(memory * (1 + policy.memory_margin))
    needed = np.maximum(counted, cluster.memory_floor_bytes)
    memory_bytes = stepped(needed, cluster.memory_step_bytes)
    for n, candidate in enumerate(candidates):
        if candidate.partition.memory_per_cpu:  # Slurm takes whole M for each CPU
            step = candidate.cpus * max(2**20, cluster.memory_step_bytes)
            memory_bytes[:, n] = stepped(memory_bytes[:, n], step)
    wait, cost, bound = (np.empty_like(walltime) for _ in range(3))
    for n, candidate in enumerate(candidates):
        node = candidate.node
        if cluster.free:
            node = replace(node, prices=CORE_HOURS)
        cpus, gpus = candidate.cpus, candidate.gpus
        bill = cluster.billing.usd
        wait[:, n] = candidate.partition.waiting.of(walltime[:, n])
        bound[:, n] = bill(node, cpus, gpus, memory_bytes[:, n], walltime[:, n])
        used_s = checked.runtime_median_s if node.charged == "used" else walltime
        cost[:, n] = bill(node, cpus, gpus, memory_bytes[:, n], used_s[:, n])
    turnaround, turnaround_bound = wait + checked.runtime_median_s, wait + runtime
    too_long = walltime > np.array([candidate.max_walltime_s for candidate in candidates])
    too_large = memory_bytes > np.array([c.max_memory_bytes for c in candidates])
    possible = ~(too_long | too_large)
    wastes_gpus = _wastes_gpus(candidates, possible)
    cost_expected = cost + policy.risk * bound
    turnaround_expected = turnaround + policy.risk * (wait + walltime)
    return Assessment(
        walltime, memory_bytes, wait,
        cost, bound, cost_expected,
        turnaround, turnaround_bound, turnaround_expected,
        too_long, too_large, wastes_gpus,
        pareto_front(cost_expected, turnaround_expected, possible & ~wastes_gpus),
        cluster.free,
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


@dataclass(frozen=True)
class Waste:
    """Requested but unused resources if runs take their medians, summed over images."""

    core_h: float
    gb_h: float


def waste(
    predictions: Predictions,
    assessment: Assessment,
    candidates: Sequence[Candidate],
    chosen: NDArray[np.intp],
) -> Waste:
    """Return the waste of the chosen candidates; images without one (-1) are left out.

    Memory counts as used at its peak for the whole run.
    """
    rows = np.flatnonzero(chosen >= 0)
    indices = rows, chosen[rows]
    cpus = np.array([candidate.cpus for candidate in candidates], dtype=float)[chosen[rows]]
    time, used_s = assessment.walltime_s[indices], predictions.runtime_median_s[indices]
    memory, used = assessment.memory_bytes[indices], predictions.memory_median_bytes[indices]
    return Waste(
        float((cpus * (time - used_s)).sum() / SECONDS_PER_HOUR),
        float((memory * time - used * used_s).sum() / BYTES_PER_GB / SECONDS_PER_HOUR),
    )
