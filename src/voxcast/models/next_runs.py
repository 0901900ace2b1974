"""Which runs to make next: those that teach most for what they cost.

A Gaussian process knows how unsure it is without knowing the outcomes. A run is worth what it
takes from the uncertainty of all runs that may be asked about, by its expected time; the best is
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
NOISE = 0.1  # of a run, in units of what the process knows nothing of
MOST = 3000  # candidates; of more a sample is looked at


@dataclass(frozen=True)
class Proposal:
    """A candidate by its position, and what it is worth.

    Attributes
    ----------
    position : int
        Among the candidates.
    gain : float
        Share of the present uncertainty (mean variance over the candidates) that it takes.
    expected_s : float
        Its expected time.
    """

    position: int
    gain: float
    expected_s: float


def propose(
    known: Sequence[Row],
    candidates: Sequence[Row],
    expected_s: Sequence[float],
    count: int,
    *,
    seed: int = 0,
) -> list[Proposal]:
    """Return the runs to make, best first.

    Parameters
    ----------
    known, candidates : sequence of Row
        Features of the runs on record and of those that could be made.
    expected_s : sequence of float
        Seconds of each candidate, above zero.
    count : int
        So many at most.

    Examples
    --------
    >>> rows = [{"header.log_voxels": float(n)} for n in range(9)]
    >>> [one.position for one in propose(rows[:2], rows, [1.0] * 9, 1)]
    [7]
    """
    if not candidates:
        return []
    order = np.arange(len(candidates))
    if len(order) > MOST:
        order = np.sort(np.random.default_rng(seed).permutation(order)[:MOST])
    asked = [candidates[int(n)] for n in order]
    cost_s = np.asarray(expected_s, dtype=float)[order]
    encoder = Encoder.fit([*known, *asked], content=True)
    raw = encoder.transform([*known, *asked])
    x = (raw - raw.mean(axis=0)) / np.where(raw.std(axis=0) > 0, raw.std(axis=0), 1.0)
    covariance = _conditional(x[len(known) :], x[: len(known)])
    before = max(float(np.trace(covariance)), 1e-12)
    found: list[Proposal] = []
    free = np.ones(len(order), dtype=bool)
    for _ in range(min(count, len(order))):
        worth = np.square(covariance).sum(axis=0) / (np.diag(covariance) + NOISE**2)
        best = int(np.argmax(np.where(free, worth / cost_s, -np.inf)))
        free[best] = False
        found.append(Proposal(int(order[best]), float(worth[best]) / before, float(cost_s[best])))
        own = covariance[:, best]
        covariance = covariance - np.outer(own, own) / (own[best] + NOISE**2)
    return found


def _conditional(asked: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the covariance of what is asked, given that all that is known was measured."""
    from scipy.linalg import cho_factor, cho_solve

    covariance = _kernel(asked, asked)
    if len(known):
        between = _kernel(known, asked)
        inner = cho_factor(_kernel(known, known) + NOISE**2 * np.eye(len(known)))
        covariance -= between.T @ cho_solve(inner, between)
    return covariance


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import cdist

    length = LENGTH * max(a.shape[1], 1) ** 0.5
    found: np.ndarray = np.exp(-0.5 * cdist(a, b, "sqeuclidean") / length**2)
    return found
