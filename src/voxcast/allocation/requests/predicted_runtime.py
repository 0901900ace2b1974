"""The law of a runtime that was predicted at several quantiles, and what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.allocation.recommendation import caveats, input_lines
from voxcast.laws.predicted import PredictedLaw
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

# Upper quantiles to predict; the lower quantiles mirror them.
QUANTILES = (0.6, 0.75, 0.9, 0.95, 0.99)
STATED_QUANTILE = 0.95  # of which the notes say whether it is calibrated, as `predict` does
# With fewer calibrated quantiles, uncalibrated ones are used too.
MIN_CALIBRATED = 2


@dataclass(frozen=True)
class PredictedRuntime:
    """A predicted distribution of runtimes.

    Attributes
    ----------
    knots : tuple of (float, float)
        Probabilities and runtimes in seconds, both increasing.
    notes : tuple of str
        What of the image was not known, and why the law does not hold as stated.
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
        stated = predictions[STATED_QUANTILE]
        calibrated = {q: row for q, row in predictions.items() if row["calibrated"]}
        warnings = caveats(stated, STATED_QUANTILE)
        if len(calibrated) >= MIN_CALIBRATED:
            predictions = calibrated
        knots = _knots(predictions)
        if warnings and predictions is calibrated:  # then it is for want of subjects
            highest, longest_s = knots[-1]
            extended = f"beyond {format_seconds(longest_s)}, the {100 * highest:g} % quantile"
            warnings = [warnings[0], f"requests {extended}, are extrapolated"]
        if warnings:
            warnings.append("so the normalised cost is an estimate only")
        first = predictions[min(predictions)]
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


def _knots(predictions: Mapping[float, Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return probabilities and runtimes, both increasing, of predictions by upper quantile."""
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
