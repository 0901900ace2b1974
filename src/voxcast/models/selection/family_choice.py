"""The choice among families and ensembles: a baseline, unless the best is better by a margin.

The smallest of a dozen cross-validated errors over a few subjects is small by chance. The family
with the smallest error is therefore chosen only if the 80 % interval over subjects of its gain on
the best baseline excludes zero. No other family is tested: it could pass by chance where the
best does not. An interval of 80 % loses less of the gain of families than one of 95 %.

The margin applies only where one of the baselines knows the size. A table of any columns has no
such baseline, and a constant is not a cautious answer where a column drives the time: there the
smallest error decides.
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
SIZE_BASELINE = "voxels"  # the baseline that knows the size
MINIMUM_GAIN = 0.01  # of the baseline's error: less is a tie, which rounding would decide


@dataclass(frozen=True)
class FamilyChoice:
    """The chosen family or ensemble.

    Attributes
    ----------
    name : str
        The choice.
    smallest : str
        The candidate with the smallest error; it differs from `name` where its gain is below the
        margin.
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
    smallest = ranked[0]
    if SIZE_BASELINE not in means:
        return FamilyChoice(smallest, smallest)
    baseline = next(name for name in ranked if is_baseline(name))
    count = len(set(subjects))
    if count < 2:
        return FamilyChoice(baseline, smallest)
    gains = errors_by_name[baseline] - errors_by_name[smallest]
    margin = float(t.ppf(CONFIDENCE, count - 1)) * standard_error(gains, subjects)
    is_better = gains.mean() > max(margin, MINIMUM_GAIN * means[baseline])
    return FamilyChoice(smallest if is_better else baseline, smallest)


def is_baseline(name: str) -> bool:
    """Whether a name is a baseline's; an ensemble is not one."""
    return name in FAMILIES and FAMILIES[name].baseline
