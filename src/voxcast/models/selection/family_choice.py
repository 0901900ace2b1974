"""The choice among families and ensembles: a baseline, unless another is better by a margin.

The smallest of a dozen cross-validated errors over a few subjects is small by chance. A family is
therefore chosen only if the 80 % interval over subjects of its gain on the best baseline excludes
zero. On 3 to 9 recorded subjects this loses less of what families gain than a 95 % interval, and
where there is only noise it displaces the baseline less often than one standard error does. With
many subjects the choice is that of the smallest error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import standard_error
from voxcast.models.families.family import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE = 0.9  # that the gain is above zero
MINIMUM_GAIN = 0.01  # of the baseline's error: less is a tie, which rounding would decide


@dataclass(frozen=True)
class FamilyChoice:
    """The chosen family or ensemble.

    Attributes
    ----------
    name : str
        What is chosen.
    smallest : str
        What has the smallest error; it differs from `name` where that is not better by the margin.
    """

    name: str
    smallest: str


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
    from scipy.stats import t

    means = {name: float(errors.mean()) for name, errors in errors_by_name.items()}
    ranked = sorted(sorted(means, key=lambda name: name not in FAMILIES), key=means.__getitem__)
    baselines = [name for name in ranked if is_baseline(name)]
    if not baselines:
        return FamilyChoice(ranked[0], ranked[0])
    baseline = baselines[0]
    count = len(set(subjects))
    if count < 2:
        return FamilyChoice(baseline, ranked[0])
    critical = float(t.ppf(CONFIDENCE, count - 1))
    for name in ranked[: ranked.index(baseline)]:
        gains = errors_by_name[baseline] - errors_by_name[name]
        margin = critical * standard_error(gains, subjects)
        if gains.mean() > max(margin, MINIMUM_GAIN * means[baseline]):
            return FamilyChoice(name, ranked[0])
    return FamilyChoice(baseline, ranked[0])


def is_baseline(name: str) -> bool:
    """Whether a name is that of a baseline; an ensemble is none."""
    return name in FAMILIES and FAMILIES[name].baseline
