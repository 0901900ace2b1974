"""The cheapest sequence of amounts of a grid, with and without checkpoints.

A law is first discretised to a grid of amounts that can be requested; where its support is
infinite it is truncated where one job in ten million is longer. The three programmes then go from
the last amount to the first. The term that does not depend on the requests, beta times the mean,
is added at the end. All costs are weighted by the probability that they are incurred, so nothing
is divided by a vanishing probability. The best next request after point i is then the lowest of
lines in P(X > i), with slope alpha v_j and the cost after j as intercept.

References
----------
Aupy et al., IPDPS 2019, theorem 5; Gainaru et al., IPDPS 2020 (Dyn-Prog-Count), see
`voxcast.allocation.requests.cost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost import CostModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

    Floats = NDArray[np.float64]

EPSILON = 1e-7
POINTS = 1000


@dataclass(frozen=True)
class RequestGrid:
    """Amounts that can be requested, and the probability that more is needed.

    Attributes
    ----------
    points : ndarray, shape (n,)
        Increasing; the last suffices under the truncated law.
    survival : ndarray, shape (n,)
        Probability of more than each, under the truncated law; the last is 0.
    """

    points: Floats
    survival: Floats

    @property
    def mean(self) -> float:
        """Mean of the discretised law."""
        return float(-np.diff(self.survival, prepend=1.0) @ self.points)


def end_of(law: Law, epsilon: float = EPSILON) -> float:
    """Return the end of the support, or the 1 - ``epsilon`` quantile if it is infinite."""
    high = law.support[1]
    return high if math.isfinite(high) else float(law.quantile(1 - epsilon))


def equal_time(law: Law, points: int = POINTS, epsilon: float = EPSILON) -> RequestGrid:
    """Return equally spaced amounts, from the start of the support to its end.

    A discrete law is discretised by `equal_probability`, as requests between its amounts have no
    benefit.
    """
    if not law.continuous:
        return equal_probability(law, points, epsilon)
    return grid_of(law, np.linspace(law.support[0], end_of(law, epsilon), points + 1)[1:])


def equal_probability(law: Law, points: int = POINTS, epsilon: float = EPSILON) -> RequestGrid:
    """Return the distinct quantiles at equally spaced probabilities, up to the end."""
    end = end_of(law, epsilon)
    probabilities = float(law.cdf(end)) * np.arange(1, points + 1) / points
    return grid_of(law, np.append(law.quantile(probabilities[:-1]), end))


def grid_of(law: Law, amounts: Floats) -> RequestGrid:
    """Return the grid of ``amounts``, for the law truncated at the largest of them."""
    amounts = np.unique(amounts)
    truncated = float(law.sf(amounts[-1]))
    survival = (law.sf(amounts) - truncated) / (1 - truncated)
    survival[-1] = 0.0  # exactly, regardless of rounding
    return RequestGrid(amounts, survival)


@dataclass(frozen=True)
class Optimum:
    """An optimal sequence of points.

    Attributes
    ----------
    milestones : ndarray, shape (k,)
        Work completed at the end of each request.
    checkpoints : ndarray of bool, shape (k,)
        Whether each request ends with a checkpoint.
    value : float
        Mean cost under the discretised law.
    """

    milestones: NDArray[np.float64]
    checkpoints: NDArray[np.bool_]
    value: float


def without_checkpoints(grid: RequestGrid, cost: CostModel) -> Optimum:
    """Return the cheapest sequence in which no request ends with a checkpoint."""
    v = grid.points
    lost = cost.beta * v * grid.survival  # if v is too short
    path, lowest = _cheapest(grid, cost.alpha * v + cost.gamma, lost, np.zeros(len(v)))
    return Optimum(v[path], np.zeros(len(path), bool), lowest + cost.beta * grid.mean)


def all_checkpoints(grid: RequestGrid, cost: CostModel) -> Optimum:
    """Return the cheapest sequence in which each request but the last ends with a checkpoint."""
    v, n = grid.points, len(grid.points)
    slope = cost.alpha * (v + cost.checkpoint)
    slope[-1] = cost.alpha * v[-1]
    starts = np.concatenate([[0.0], v[:-1]])
    restart = np.where(np.arange(n) > 0, cost.restart, 0.0)
    fixed = (cost.alpha + cost.beta) * restart - cost.alpha * starts + cost.gamma
    path, lowest = _cheapest(grid, slope, cost.beta * cost.checkpoint * grid.survival, fixed)
    flags = np.arange(len(path)) < len(path) - 1
    return Optimum(v[path], flags, lowest + cost.beta * grid.mean)


def _cheapest(
    grid: RequestGrid, slope: Floats, lost: Floats, fixed: Floats
) -> tuple[list[int], float]:
    """Return the points of the cheapest sequence, and its cost.

    Parameters
    ----------
    slope : ndarray, shape (n,)
        Price of a request up to each point.
    lost : ndarray, shape (n,)
        Price if that point is not enough, times its probability; overwritten.
    fixed : ndarray, shape (n,)
        Price of the first request after each point.
    """
    n, cost_after = len(grid.points), lost
    probability = np.concatenate([[1.0], grid.survival[:-1]])
    fixed = probability * fixed
    following = np.empty(n, dtype=np.intp)
    lines, lowest = np.empty(n), 0.0
    for i in range(n - 1, -1, -1):
        costs = lines[i:]
        np.multiply(slope[i:], probability[i], out=costs)
        costs += cost_after[i:]
        j = int(costs.argmin())
        following[i] = i + j
        lowest = float(costs[j]) + float(fixed[i])
        if i:
            cost_after[i - 1] += lowest
    path, i = [], 0
    while i < n:
        path.append(int(following[i]))
        i = path[-1] + 1
    return path, lowest


def mixed_checkpoints(grid: RequestGrid, cost: CostModel) -> Optimum:
    """Return the cheapest sequence in which each request ends with a checkpoint or not.

    A state is the last point with a checkpoint and the last point tried. The cost of a next
    request that ends with a checkpoint depends on the last checkpoint only by a constant, so these
    choices are made once per point tried; all other choices, for all last checkpoints at once.
    """
    n = len(grid.points)
    v = np.concatenate([[0.0], grid.points])  # v[0] is the start
    survival = np.concatenate([[1.0], grid.survival])
    restart = np.where(np.arange(n + 1) > 0, cost.restart, 0.0)
    per_request = (cost.alpha + cost.beta) * restart - cost.alpha * v + cost.gamma
    # Cost after j, by last checkpoint and j, with the loss of the work since the checkpoint.
    cost_after = cost.beta * survival * (v - v[:, None])
    cost_after_saved = cost.beta * cost.checkpoint * survival
    slope, slope_saved = cost.alpha * v, cost.alpha * (v + cost.checkpoint)
    chosen = np.zeros((n + 1, n + 1), dtype=np.intp)  # negative: with a checkpoint
    lowest = np.zeros(1)
    for i in range(n - 1, -1, -1):
        plain = cost_after[: i + 1, i + 1 :] + slope[i + 1 :] * survival[i]
        saved = slope_saved[i + 1 :] * survival[i] + cost_after_saved[i + 1 :]
        j, j_saved = plain.argmin(axis=1), int(saved.argmin())
        best = np.take_along_axis(plain, j[:, None], axis=1)[:, 0]
        saves = saved[j_saved] < best
        chosen[: i + 1, i] = np.where(saves, -(i + 1 + j_saved), i + 1 + j)
        lowest = np.where(saves, saved[j_saved], best) + survival[i] * per_request[: i + 1]
        cost_after[: i + 1, i] += lowest
        cost_after_saved[i] += lowest[i]
    value = float(lowest[0]) + cost.beta * grid.mean
    milestones, flags = [], []
    last, i = 0, 0
    while i < n:
        j = int(chosen[last, i])
        i = abs(j)
        last = i if j < 0 else last
        milestones.append(v[i])
        flags.append(j < 0)
    return Optimum(np.array(milestones), np.array(flags), value)
