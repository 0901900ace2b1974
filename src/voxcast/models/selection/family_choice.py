"""The choice among families and ensembles: a baseline, unless another is better beyond chance.

The smallest of a dozen cross-validated errors over a few subjects is small by chance. A family is
therefore chosen only if the 95 % interval over subjects of its gain on the best baseline excludes
zero, as a challenger must be better than a champion. With many subjects the interval is narrow,
and the choice is that of the smallest error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import clustered_mean
from voxcast.models.families.family import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.laws.intervals import Interval

MINIMUM_GAIN = 0.01  # of the baseline's error: less is a tie, which rounding would decide


@dataclass(frozen=True)
class FamilyChoice:
    """The chosen family or ensemble.

    Attributes
    ----------
    name : str
        What is chosen.
    smallest : str
        What has the smallest error; it differs from `name` where it is not better beyond chance.
    gain : Interval or None
        Error of the best baseline minus that of `smallest`, over subjects; None without baselines.
    """

    name: str
    smallest: str
    gain: Interval | None = None


def choose_family(
    errors_by_name: Mapping[str, np.ndarray], subjects: Sequence[str]
) -> FamilyChoice:
    """Choose by cross-validated errors; ties go to single families, then to the first.

    Parameters
    ----------
    errors_by_name : mapping of str to ndarray, shape (n_runs,)
        Absolute logarithmic error of each run, by family and ensemble.
    subjects : sequence of str
        Subject of each run.
    """
    means = {name: float(errors.mean()) for name, errors in errors_by_name.items()}
    ranked = sorted(sorted(means, key=lambda name: name not in FAMILIES), key=means.__getitem__)
    baselines = [name for name in ranked if is_baseline(name)]
    if not baselines:
        return FamilyChoice(ranked[0], ranked[0])
    baseline = baselines[0]
    gains = {
        name: clustered_mean(errors_by_name[baseline] - errors_by_name[name], subjects)
        for name in ranked[: ranked.index(baseline)]
    }
    least = MINIMUM_GAIN * means[baseline]
    better = [name for name, gain in gains.items() if gain.bounded and gain.low > least]
    return FamilyChoice((*better, baseline)[0], ranked[0], gains.get(ranked[0]))


def is_baseline(name: str) -> bool:
    """Whether a name is that of a baseline; an ensemble is none."""
    return name in FAMILIES and FAMILIES[name].baseline
