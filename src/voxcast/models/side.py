"""The bounds of an extrapolator past one end of one feature.

They are calibrated on the subjects at that end, held out together. They widen with the distance
if the errors of these subjects do. Farther out than all of them, or in a feature that had no such
subjects, the power of the law is uncertain by `UNCERTAIN_POWER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.conformal import Calibrator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.models.distance import Distance

UNCERTAIN_POWER = 0.5
# Standard errors by which errors must grow with distance, to exceed chance.
SUPPORT = 1.645
FEWEST_SUBJECTS = 10  # that tell how errors grow
SMALLEST_RANGE = 1e-6  # of logarithmic distances; equal values differ by rounding


@dataclass(frozen=True)
class Side:
    """Calibrators for queries past one end of a feature.

    Attributes
    ----------
    calibrators : dict of str to Calibrator
        By target.
    growth : dict of str to float
        By how much of itself a target's bound is wider for each unit of logarithmic distance.
    farthest : float
        Largest distance of a held-out subject.
    """

    calibrators: dict[str, Calibrator]
    growth: dict[str, float]
    farthest: float

    def widths(self, lengths: np.ndarray, targets: Sequence[str]) -> np.ndarray:
        """Return what offsets are multiplied by at distances, (n,) to (n, targets)."""
        return widths(lengths, self.growth, targets)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        calibrators = {name: c.to_json() for name, c in self.calibrators.items()}
        return {
            "calibrators": calibrators, "growth": self.growth, "farthest": self.farthest,
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Side:
        """Read what `to_json` returned."""
        calibrators = {name: Calibrator.from_json(c) for name, c in content["calibrators"].items()}
        return cls(calibrators, content["growth"], content["farthest"])


def widths(lengths: np.ndarray, growth: Mapping[str, float], targets: Sequence[str]) -> np.ndarray:
    """Return factors of offsets, shape (n, targets), at distances of shape (n,)."""
    slopes = np.array([growth.get(target, 0.0) for target in targets])
    factors: np.ndarray = 1.0 + np.outer(lengths, slopes)
    return factors


def margins(far: Sequence[Distance], sides: Mapping[str, Side]) -> np.ndarray:
    """Return the logarithms by which bounds widen for effects that no subject shows, (n,)."""

    def untested(distance: Distance) -> float:
        return sum(
            max(length - (sides[name].farthest if name in sides else 0.0), 0.0)
            for name, length in distance.by_side.items()
        )

    return np.array([d.unknown + UNCERTAIN_POWER * untested(d) for d in far])


def growth_with_distance(
    errors: np.ndarray, lengths: np.ndarray, subjects: Sequence[str]
) -> float:
    """Return by how much of itself the error grows for each unit of distance; 0 if by chance.

    Parameters
    ----------
    errors, lengths : ndarray, shape (n_runs,)
        Absolute residuals, and distances.
    """
    import pandas as pd

    runs = pd.DataFrame({"error": errors, "length": lengths, "subject": list(subjects)})
    by_subject = runs.groupby("subject")[["error", "length"]].mean()
    x, y = by_subject["length"].to_numpy(), by_subject["error"].to_numpy()
    if len(x) < FEWEST_SUBJECTS or np.ptp(x) <= SMALLEST_RANGE:
        return 0.0
    from_mean = x - x.mean()
    slope = from_mean @ y / (from_mean @ from_mean)
    intercept = y.mean() - slope * x.mean()
    residuals = y - (intercept + slope * x)
    standard_error = np.sqrt(residuals @ residuals / (len(x) - 2) / (from_mean @ from_mean))
    if slope <= SUPPORT * standard_error:
        return 0.0
    # An intercept near zero would make the growth arbitrarily large.
    return float(slope / max(intercept, y.mean() / 4))
