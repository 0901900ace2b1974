"""What every configuration would ask for, cost and take, for many images at once.

All arrays have the shape (images, candidates). A request holds with the policy's confidence in
time, and with it in memory; `risk` is therefore at most the sum of both chances to fail. A try
that fails takes all of its request, is paid for and waited for in full, and comes on top of the
one that succeeds: expected = typical + risk × the whole request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.billing import stepped
from voxcast.allocation.pricing import BYTES_PER_GB, SECONDS_PER_HOUR, Prices
from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from voxcast.allocation.machines import Candidate, Cluster

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

# On a machine that charges nothing, cost is counted in core-hours.
CORE_HOURS = Prices(1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Policy:
    """How much risk is taken, and what time is worth.

    Attributes
    ----------
    confidence : float
        Level of the bounds that requests are made of, between 0.5 and 1.
    memory_margin : float
        Share that is added to the memory's bound.
    hour_in_core_hours : float
        What an hour of waiting for the result is worth, in core-hours of the cluster.
    """

    name: str
    confidence: float
    memory_margin: float
    hour_in_core_hours: float

    @property
    def risk(self) -> float:
        """The chance, at most, that time or memory asked for is too little."""
        return min(1.0, 2 * (1 - self.confidence))


@dataclass(frozen=True)
class Predictions:
    """What a model says, arrays of shape (images, candidates).

    Upper bounds are at the policy's confidence; those not below the medians.
    """

    runtime_median_s: Floats
    runtime_upper_s: Floats
    memory_median_bytes: Floats
    memory_upper_bytes: Floats

    def checked(self, candidates: int) -> Predictions:
        """Return the same with bounds that are not below their medians.

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
    """What each candidate means for each image.

    Attributes
    ----------
    walltime_s, memory_bytes : ndarray
        The request, rounded up to the cluster's steps.
    wait_s : ndarray
        Expected time in the queue.
    cost, cost_bound, cost_expected : ndarray
        With the median runtime; if all of the request is used; with failed tries. US dollars,
        or core-hours where the cluster is free.
    turnaround_s, turnaround_bound_s, turnaround_expected_s : ndarray
        Waiting and running together: with the median runtime; with the runtime's bound, which
        rounding the request up does not delay; with failed tries.
    too_long, too_large : ndarray of bool
        Whether the request exceeds what may be asked for.
    left_to_others : ndarray of bool
        Whether the node has GPUs, and the same configuration fits one without.
    pareto : ndarray of bool
        Whether no candidate that fits is both cheaper and faster in expectation.
    free : bool
        Whether cost is counted in core-hours.
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
    left_to_others: Flags
    pareto: Flags
    free: bool

    @property
    def fits(self) -> Flags:
        """Whether the request may be made at all."""
        return ~(self.too_long | self.too_large | self.left_to_others)

    @property
    def usd_bound(self) -> Floats:
        """What the request costs at most, in US dollars."""
        return np.zeros_like(self.cost_bound) if self.free else self.cost_bound


def assess(
    predictions: Predictions,
    candidates: Sequence[Candidate],
    cluster: Cluster,
    policy: Policy,
    *,
    shared: bool = False,
) -> Assessment:
    """Turn predictions into requests with their cost, time and limits.

    Parameters
    ----------
    shared : bool
        One request for all images, as an array job has: the largest of each candidate.
    """
    said = predictions.checked(len(candidates))
    runtime, memory = said.runtime_upper_s, said.memory_upper_bytes
    if shared:
        runtime, memory = (np.broadcast_to(a.max(axis=0), a.shape) for a in (runtime, memory))
    walltime = stepped(runtime, cluster.walltime_step_s)
    asked = stepped(memory * (1 + policy.memory_margin), cluster.memory_step_bytes)
    wait, cost, bound = (np.empty_like(walltime) for _ in range(3))
    for n, own in enumerate(candidates):
        node = replace(own.node, prices=CORE_HOURS) if cluster.free else own.node
        bill = cluster.billing.usd
        wait[:, n] = own.partition.waiting.of(walltime[:, n])
        bound[:, n] = bill(node, own.cpus, own.gpus, asked[:, n], walltime[:, n])
        used = said.runtime_median_s if node.charged == "used" else walltime
        cost[:, n] = bill(node, own.cpus, own.gpus, asked[:, n], used[:, n])
    turnaround, turnaround_bound = wait + said.runtime_median_s, wait + runtime
    too_long = walltime > np.array([own.max_walltime_s for own in candidates])
    too_large = asked > np.array([own.max_memory_bytes for own in candidates])
    possible = ~(too_long | too_large)
    left = _left_to_others(candidates, possible)
    cost_expected = cost + policy.risk * bound
    turnaround_expected = turnaround + policy.risk * (wait + walltime)
    return Assessment(
        walltime, asked, wait,
        cost, bound, cost_expected,
        turnaround, turnaround_bound, turnaround_expected,
        too_long, too_large, left,
        pareto_front(cost_expected, turnaround_expected, possible & ~left),
        cluster.free,
    )  # fmt: skip


def _left_to_others(candidates: Sequence[Candidate], possible: Flags) -> Flags:
    left = np.zeros_like(possible)
    for n, own in enumerate(candidates):
        if own.node.gpus:
            same = [
                other.configuration == own.configuration and not other.node.gpus
                for other in candidates
            ]
            left[:, n] = possible[:, same].any(axis=1)
    return left


def pareto_front(cost: Floats, time: Floats, allowed: Flags) -> Flags:
    """Tell in each row what no allowed other beats in one and equals in the other.

    Examples
    --------
    >>> pareto_front(np.array([[1, 2, 2, 3]]), np.array([[9, 5, 6, 5]]), np.ones((1, 4), bool))
    array([[ True,  True, False, False]])
    """
    beaten = ~allowed
    for n in range(cost.shape[1]):
        own_cost, own_time = cost[:, n : n + 1], time[:, n : n + 1]
        no_worse = (own_cost <= cost) & (own_time <= time)
        better = (own_cost < cost) | (own_time < time)
        beaten |= no_worse & better & allowed[:, n : n + 1]
    return ~beaten


@dataclass(frozen=True)
class Waste:
    """What was asked for and is not used when runs take their medians, summed over images."""

    core_h: float
    gb_h: float


def waste(
    predictions: Predictions,
    assessment: Assessment,
    candidates: Sequence[Candidate],
    chosen: NDArray[np.intp],
) -> Waste:
    """Return the waste of the chosen candidate of each image; images with none (-1) are left out.

    Memory counts as used at its peak as long as the run lasts.
    """
    rows = np.flatnonzero(chosen >= 0)
    at = rows, chosen[rows]
    cpus = np.array([own.cpus for own in candidates], dtype=float)[chosen[rows]]
    time, used_s = assessment.walltime_s[at], predictions.runtime_median_s[at]
    memory, used = assessment.memory_bytes[at], predictions.memory_median_bytes[at]
    return Waste(
        float((cpus * (time - used_s)).sum() / SECONDS_PER_HOUR),
        float((memory * time - used * used_s).sum() / BYTES_PER_GB / SECONDS_PER_HOUR),
    )
