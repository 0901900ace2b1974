"""Predicted runtimes: the law of one image, and the optimal requests of many.

The law of an image is its median times a common law of residuals to the power of its spread. Costs
scale: an optimal sequence for a median of 1 and requests that cost gamma / median each is, times
the median, optimal for all images with this ratio and spread. Both are rounded to a lattice. Each
lattice cell that has images is solved once, and its sequence is applied to its images by quantile.
The optimum is flat: the loss by rounding is far below that by errors of the law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from voxcast.allocation.recommendation import caveats, input_lines
from voxcast.allocation.requests.cost import CostModel, extended
from voxcast.allocation.requests.programme import EPSILON, grid_of, without_checkpoints
from voxcast.errors import TableError
from voxcast.laws.predicted import PredictedLaw
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

# Relative width of a cell: in the spread below the median (which matters little), the spread
# above, and gamma over median.
CELL = np.array([0.25, 0.1, 0.2])
POINTS = 300
_FIRST_SCORE = -4.0  # no request is shorter than 1 job in 30,000
_NEVER = 1e-15  # requests after one that is exceeded more rarely have no cost
# Upper quantiles to predict; the lower quantiles mirror them.
QUANTILES = (0.6, 0.75, 0.9, 0.95, 0.99)
STATED_QUANTILE = 0.95  # the notes say whether it is calibrated, as `predict` does
# With fewer calibrated quantiles, uncalibrated ones are used too.
MIN_CALIBRATED = 2


@dataclass(frozen=True, eq=False)
class RequestsPerImage:
    """A sequence for each of n images.

    Attributes
    ----------
    requests : ndarray, shape (n, k)
        Increasing in each row, with NaN after the last, which one job in ten million exceeds.
    expected_cost, normalised_cost : ndarray, shape (n,)
        Exact means under the law of each image; after the last request, requests are about
        doubled.
    """

    requests: NDArray[np.float64]
    expected_cost: NDArray[np.float64]
    normalised_cost: NDArray[np.float64]


def requests_per_image(
    residuals: PredictedLaw,
    cost: CostModel,
    median: ArrayLike,
    down: ArrayLike = 1.0,
    up: ArrayLike = 1.0,
) -> RequestsPerImage:
    """Return the optimal sequence for each image, without checkpoints.

    Parameters
    ----------
    residuals : PredictedLaw
        Law of an amount over its predicted median.
    median, down, up : array_like, shape (n,) or number
        Predicted median, and spread below and above it; see `PredictedLaw.scaled`.

    Raises
    ------
    TableError
        If a value is not positive and finite.
    """
    median, down, up = (
        np.array(a, dtype=np.float64)
        for a in np.broadcast_arrays(np.atleast_1d(median), down, up)
    )  # fmt: skip
    for name, values in (("median", median), ("down", down), ("up", up)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise TableError("must be positive and finite", name)
    laws = residuals.scaled(median, down, up)
    gamma = cost.gamma / median
    # A gamma of 0 gets the cell of a negligible one.
    logs = np.log(np.stack([down, up, np.maximum(gamma, 1e-9)], axis=1))
    lattice = np.rint(logs / CELL).astype(np.int64)
    cells, cell_of = np.unique(lattice, axis=0, return_inverse=True)
    mean = laws.moment(1)
    expected = cost.beta * mean
    solved: list[tuple[NDArray[np.intp], NDArray[np.float64]]] = []
    for number, cell in enumerate(cells):
        images = np.flatnonzero(cell_of == number)
        scores, n_listed = _solve_cell(residuals, cost, *np.exp(CELL * cell))
        cell_laws = type(laws)(laws.scores, laws.logs[images])
        t, survival = cell_laws.at_score(scores), special.ndtr(-scores)
        probability = np.concatenate([[1.0], survival[:-1]])
        mean_cost = t @ (cost.alpha * probability + cost.beta * survival)
        expected[images] += mean_cost + cost.gamma * probability.sum()
        solved.append((images, t[:, :n_listed]))
    requests = np.full((len(median), max(t.shape[1] for _, t in solved)), np.nan)
    for images, t in solved:
        requests[images, : t.shape[1]] = t
    omniscient = (cost.alpha + cost.beta) * mean + cost.gamma
    return RequestsPerImage(requests, expected, expected / omniscient)


def _solve_cell(
    residuals: PredictedLaw, cost: CostModel, down: float, up: float, gamma: float
) -> tuple[NDArray[np.float64], int]:
    """Return the normal scores of the sequence of a cell, and the number to list."""
    law = residuals.scaled(1.0, down, up)
    ends = _FIRST_SCORE, float(-special.ndtri(EPSILON))
    grid = grid_of(law, law.at_score(np.linspace(*ends, POINTS)))
    best = without_checkpoints(grid, CostModel(cost.alpha, cost.beta, gamma))
    t, _ = extended(law, best.milestones)
    scores = law.score(t)
    n_scores = 1 + int(np.argmax(special.ndtr(-scores) < _NEVER))
    return scores[:n_scores], len(best.milestones)


@dataclass(frozen=True)
class PredictedRuntime:
    """A predicted distribution of runtimes.

    Attributes
    ----------
    knots : tuple of (float, float)
        Probabilities and runtimes in seconds, both increasing.
    notes : tuple of str
        Missing inputs of the image, and why the law does not hold as stated.
    prediction : mapping
        The row of the innermost quantile that was used.
    """

    knots: tuple[tuple[float, float], ...]
    notes: tuple[str, ...]
    prediction: Mapping[str, Any]

    @classmethod
    def of(cls, predictions: Mapping[float, dict[str, Any]]) -> PredictedRuntime:
        """Return the distribution that a model's answers describe.

        Parameters
        ----------
        predictions : mapping
            One row of predictions for each of `QUANTILES`, of one question.
        """
        stated, used = predictions[STATED_QUANTILE], _believed(predictions)
        warnings, knots = caveats(stated, STATED_QUANTILE), knots_of(predictions)
        if warnings and used is not predictions:  # then it is for want of subjects
            highest, longest_s = knots[-1]
            extended = f"beyond {format_seconds(longest_s)}, the {100 * highest:g} % quantile"
            warnings = [warnings[0], f"requests {extended}, are extrapolated"]
        if warnings:
            warnings.append("so the normalised cost is an estimate only")
        first = used[min(used)]
        return cls(tuple(knots), (*input_lines(first), *warnings), first)

    @property
    def law(self) -> PredictedLaw:
        """The law through the knots.

        Raises
        ------
        TableError
            If they do not increase.
        """
        return PredictedLaw.of(*zip(*self.knots, strict=True))


def _believed(predictions: Mapping[float, dict[str, Any]]) -> Mapping[float, dict[str, Any]]:
    """Return the calibrated predictions, or all where too few are."""
    calibrated = {q: row for q, row in predictions.items() if row["calibrated"]}
    return calibrated if len(calibrated) >= MIN_CALIBRATED else predictions


def knots_of(predictions: Mapping[float, dict[str, Any]]) -> list[tuple[float, float]]:
    """Return probabilities and runtimes in seconds, both increasing.

    Parameters
    ----------
    predictions : mapping
        By upper quantile ``runtime_s_lower``, ``runtime_s_median`` and ``runtime_s_upper``, and
        whether these are ``calibrated``.
    """
    predictions = _believed(predictions)
    below: list[tuple[float, float]] = []
    above: list[tuple[float, float]] = []
    for quantile, row in predictions.items():
        # Quantiles that are not calibrated coincide, or are cut off at the same reach: of equal
        # ones only the innermost is used.
        if not below or row["runtime_s_lower"] < below[0][1]:
            below.insert(0, (1 - quantile, row["runtime_s_lower"]))
        if not above or row["runtime_s_upper"] > above[-1][1]:
            above.append((quantile, row["runtime_s_upper"]))
    return [*below, (0.5, predictions[min(predictions)]["runtime_s_median"]), *above]
