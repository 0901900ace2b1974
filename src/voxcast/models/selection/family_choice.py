"""The choice among families and ensembles: a baseline, unless the best is better by a margin.

The smallest of a dozen cross-validated errors over a few subjects is small by chance. The family
with the smallest error is therefore chosen only if the 80 % interval over subjects of its gain on
the best baseline excludes zero. No other family is tested: it could pass by chance where the
best does not. An interval of 80 % loses less of the gain of families than one of 95 %.

The margin applies only where one of the baselines knows the size. A table of any columns has no
such baseline, and a constant is not a cautious answer where a column drives the time: there the
smallest error decides.

Weights of ensembles: equal votes of the best, or stacking by least squares.

Out-of-fold predictions of an ensemble follow from its members'; nothing is refitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import standard_error
from voxcast.models.families.family import FAMILIES
from voxcast.models.metrics import objective
from voxcast.models.point_model import regressed, weighted_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.models.point_model import Weights


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


VOTERS = 3
MINIMUM_WEIGHT = 0.1  # a member with less is not worth its time
_SUM_PENALTY = 1e3  # weight of the constraint that the weights of a target sum to 1


def voting_weights(
    out_of_fold: Mapping[str, np.ndarray], actual: np.ndarray, targets: Sequence[str]
) -> Weights:
    """Return equal weights of the best families, excluding baselines."""
    objectives = {
        name: objective(actual, logs, targets)
        for name, logs in out_of_fold.items()
        if not is_baseline(name)
    }
    best = sorted(objectives, key=lambda name: (objectives[name], name))[:VOTERS]
    return {name: (1 / len(best),) * len(targets) for name in best}


def stacked_weights(
    out_of_fold: Mapping[str, np.ndarray],
    actual: np.ndarray,
    targets: Sequence[str],
    rows: np.ndarray | None = None,
) -> Weights:
    """Return non-negative weights with sum 1 whose blend is the least-squares fit.

    Parameters
    ----------
    rows : ndarray of int, optional
        Rows to fit; the rest can then be used for evaluation.

    References
    ----------
    Breiman, "Stacked regressions", Machine Learning 24, 1996.
    """
    from scipy.optimize import nnls

    indices = np.arange(len(actual)) if rows is None else rows
    names = sorted(name for name in out_of_fold if not is_baseline(name))
    columns = []
    for k in range(len(targets)):
        logs = np.column_stack([out_of_fold[name][indices, k] for name in names])
        target_logs = actual[indices, k]
        # Centred, so that small differences between members keep their precision.
        centre = target_logs.mean()
        scale = _SUM_PENALTY * np.sqrt(len(indices)) * max(float(target_logs.std()), 1e-9)
        design = np.vstack([logs - centre, np.full((1, len(names)), scale)])
        solution, _ = nnls(design, np.append(target_logs - centre, scale))
        solution = np.where(solution < MINIMUM_WEIGHT, 0.0, solution)
        columns.append(solution / solution.sum() if solution.sum() > 0 else np.eye(len(names))[0])
    weights = np.column_stack(columns)
    # A derived target gets the weights of the target it is derived from.
    for k, target in enumerate(targets):
        if target not in regressed(targets):
            weights[:, k] = weights[:, list(targets).index("cpu_s")]
    return {
        name: tuple(float(w) for w in by_target)
        for name, by_target in zip(names, weights, strict=True)
        if (by_target > 0).any()
    }


def stacked_out_of_fold(
    out_of_fold: Mapping[str, np.ndarray],
    actual: np.ndarray,
    targets: Sequence[str],
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Return the predictions of stacking; each fold's weights are fitted on the other folds."""
    logs = np.empty_like(actual)
    for train, held_out in folds:
        weights = stacked_weights(out_of_fold, actual, targets, train)
        logs[held_out] = weighted_mean(out_of_fold, weights)[held_out]
    return logs
