"""Which runs to make next: those that teach most for what they cost.

A Gaussian process knows its uncertainty without knowing the outcomes. A run is worth the reduction
in uncertainty over all runs that may be asked about, divided by its expected time; the best is
taken, counted as made, and the next one chosen (Cohn, Ghahramani and Jordan, JAIR 1996).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.families.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.features.rows import Row

LENGTH = 1.5  # of the kernel, in standard deviations of a column, times the root of their number
NOISE = 0.1  # of a run, in units of the prior standard deviation
MAXIMUM_CANDIDATES = 3000  # more are sampled


@dataclass(frozen=True)
class Proposal:
    """A candidate by its position, and what it is worth.

    Attributes
    ----------
    position : int
        Among the candidates.
    gain : float
        Share of the present uncertainty (mean variance over the candidates) that it removes.
    expected_s : float
        Its expected time.
    """

    position: int
    gain: float
    expected_s: float


def propose(
    recorded: Sequence[Row],
    candidates: Sequence[Row],
    expected_s: Sequence[float],
    count: int,
    *,
    seed: int = 0,
) -> list[Proposal]:
    """Return the runs to make, best first.

    Parameters
    ----------
    recorded, candidates : sequence of Row
        Features of the runs on record and of those that could be made.
    expected_s : sequence of float
        Seconds of each candidate, above zero.
    count : int
        At most.

    Examples
    --------
    >>> rows = [{"header.log_voxels": float(n)} for n in range(9)]
    >>> [proposal.position for proposal in propose(rows[:2], rows, [1.0] * 9, 1)]
    [7]
    """
    if not candidates:
        return []
    order = np.arange(len(candidates))
    if len(order) > MAXIMUM_CANDIDATES:
        shuffled = np.random.default_rng(seed).permutation(order)
        order = np.sort(shuffled[:MAXIMUM_CANDIDATES])
    rows = [*recorded, *(candidates[int(n)] for n in order)]
    cost_s = np.asarray(expected_s, dtype=float)[order]
    raw = Encoder.fit(rows, content=True).transform(rows)
    x = (raw - raw.mean(axis=0)) / np.where(raw.std(axis=0) > 0, raw.std(axis=0), 1.0)
    covariance = _conditional(x[len(recorded) :], x[: len(recorded)])
    before = max(float(np.trace(covariance)), 1e-12)
    proposals: list[Proposal] = []
    free = np.ones(len(order), dtype=bool)
    for _ in range(min(count, len(order))):
        gain = np.square(covariance).sum(axis=0) / (np.diag(covariance) + NOISE**2)
        best = int(np.argmax(np.where(free, gain / cost_s, -np.inf)))
        free[best] = False
        share = float(gain[best]) / before
        proposals.append(Proposal(int(order[best]), share, float(cost_s[best])))
        column = covariance[:, best]
        covariance = covariance - np.outer(column, column) / (column[best] + NOISE**2)
    return proposals


def _conditional(candidates: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """Return the covariance of the candidates, given the recorded runs."""
    from scipy.linalg import cho_factor, cho_solve

    covariance = _kernel(candidates, candidates)
    if len(recorded):
        between = _kernel(recorded, candidates)
        inner = cho_factor(_kernel(recorded, recorded) + NOISE**2 * np.eye(len(recorded)))
        covariance -= between.T @ cho_solve(inner, between)
    return covariance


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import cdist

    length = LENGTH * max(a.shape[1], 1) ** 0.5
    kernel: np.ndarray = np.exp(-0.5 * cdist(a, b, "sqeuclidean") / length**2)
    return kernel
