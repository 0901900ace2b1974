"""The cheapest sequence of points of a grid, with and without checkpoints.

All three programmes go from the last point to the first. The term that does not depend on the
requests, beta times the mean, is added at the end. All costs are weighted by the probability that
they are incurred, so nothing is divided by a vanishing probability. The best next request after
point i is then the lowest of lines in P(X > i), with slope alpha v_j and the cost after j as
intercept.

References
----------
Aupy et al., IPDPS 2019, theorem 5; Gainaru et al., IPDPS 2020 (Dyn-Prog-Count), see
`voxcast.allocation.requests.cost_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.discretisation import RequestGrid

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    v, survival, n = grid.points, grid.survival, len(grid.points)
    slope = cost.alpha * v + cost.gamma
    cost_after = cost.beta * v * survival  # the loss if v is too short, plus the cost after it
    probability = np.concatenate([[1.0], survival[:-1]])
    chosen = np.empty(n, dtype=np.intp)
    lines = np.empty(n)
    for i in range(n - 1, -1, -1):
        costs = lines[i:]
        np.multiply(slope[i:], probability[i], out=costs)
        costs += cost_after[i:]
        j = int(costs.argmin())
        chosen[i] = i + j
        if i:
            cost_after[i - 1] += costs[j]
    value = float(lines[chosen[0]]) + cost.beta * grid.mean
    path = _path(chosen)
    return Optimum(v[path], np.zeros(len(path), bool), value)


def all_checkpoints(grid: RequestGrid, cost: CostModel) -> Optimum:
    """Return the cheapest sequence in which each request but the last ends with a checkpoint."""
    v, survival, n = grid.points, grid.survival, len(grid.points)
    slope = cost.alpha * (v + cost.checkpoint)
    slope[-1] = cost.alpha * v[-1]
    cost_after = cost.beta * cost.checkpoint * survival
    probability = np.concatenate([[1.0], survival[:-1]])
    starts = np.concatenate([[0.0], v[:-1]])
    restart = np.where(np.arange(n) > 0, cost.restart, 0.0)
    fixed = probability * ((cost.alpha + cost.beta) * restart - cost.alpha * starts + cost.gamma)
    chosen = np.empty(n, dtype=np.intp)
    lowest = 0.0
    for i in range(n - 1, -1, -1):
        costs = slope[i:] * probability[i] + cost_after[i:]
        j = int(costs.argmin())
        chosen[i] = i + j
        lowest = float(costs[j]) + float(fixed[i])
        if i:
            cost_after[i - 1] += lowest
    path = _path(chosen)
    flags = np.arange(len(path)) < len(path) - 1
    return Optimum(v[path], flags, lowest + cost.beta * grid.mean)


def mixed_checkpoints(grid: RequestGrid, cost: CostModel) -> Optimum:
    """Return the cheapest sequence in which each request ends with a checkpoint or not.

    A state is the last point with a checkpoint and the last point tried. The cost of a next
    request that ends with a checkpoint depends on the last checkpoint only by a constant, so these
    choices are made once per point tried; the others are made for all last checkpoints at once.
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


def _path(chosen: NDArray[np.intp]) -> list[int]:
    """Return the points of a sequence, from the best next point after each point."""
    path, i = [], 0
    while i < len(chosen):
        path.append(int(chosen[i]))
        i = path[-1] + 1
    return path
