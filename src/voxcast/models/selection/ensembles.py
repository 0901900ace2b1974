"""Weights of ensembles: equal votes of the best, or stacking by least squares.

Out-of-fold predictions of an ensemble follow from those of its members: nothing is fitted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.blend import weighted_mean
from voxcast.models.families.family import FAMILIES
from voxcast.models.out_of_fold import OutOfFold, objective
from voxcast.models.point_model import regressed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.models.blend import Weights

VOTERS = 3
MINIMUM_WEIGHT = 0.1  # a member with less only costs time
_SUM_PENALTY = 1e3  # how firmly the weights of a target add up to 1


def voting_weights(
    out_of_fold: Mapping[str, OutOfFold], actual: np.ndarray, targets: Sequence[str]
) -> Weights:
    """Return equal weights of the families with the smallest objective, baselines apart."""
    objectives = {
        name: objective(actual, member.log_predictions, targets)
        for name, member in out_of_fold.items()
        if not _is_baseline(name)
    }
    best = sorted(objectives, key=lambda name: (objectives[name], name))[:VOTERS]
    return {name: (1 / len(best),) * len(targets) for name in best}


def stacked_weights(
    out_of_fold: Mapping[str, OutOfFold],
    actual: np.ndarray,
    targets: Sequence[str],
    rows: np.ndarray | None = None,
) -> Weights:
    """Return the weights, not negative and 1 in sum, whose blend is closest by least squares.

    Parameters
    ----------
    rows : ndarray of int, optional
        Learn from these alone, so that others can judge.

    References
    ----------
    Breiman, "Stacked regressions", Machine Learning 24, 1996.
    """
    from scipy.optimize import nnls

    at = np.arange(len(actual)) if rows is None else rows
    names = sorted(name for name in out_of_fold if not _is_baseline(name))
    columns = []
    for k in range(len(targets)):
        logs = np.column_stack([out_of_fold[name].log_predictions[at, k] for name in names])
        goal = actual[at, k]
        # Centred on the goal's mean, so that small differences between members keep their digits.
        centre = goal.mean()
        scale = _SUM_PENALTY * np.sqrt(len(at)) * max(float(goal.std()), 1e-9)
        design = np.vstack([logs - centre, np.full((1, len(names)), scale)])
        solution, _ = nnls(design, np.append(goal - centre, scale))
        solution = np.where(solution < MINIMUM_WEIGHT, 0.0, solution)
        columns.append(solution / solution.sum() if solution.sum() > 0 else np.eye(len(names))[0])
    weights = np.column_stack(columns)
    # What is derived from another target is blended like it.
    for k, target in enumerate(targets):
        if target not in regressed(targets):
            weights[:, k] = weights[:, list(targets).index("cpu_s")]
    return {
        name: tuple(float(w) for w in by_target)
        for name, by_target in zip(names, weights, strict=True)
        if (by_target > 0).any()
    }


def blended_out_of_fold(out_of_fold: Mapping[str, OutOfFold], weights: Weights) -> OutOfFold:
    """Return the out-of-fold predictions of a blend."""
    members = {name: out_of_fold[name] for name in weights}
    return OutOfFold(
        weighted_mean({name: m.log_predictions for name, m in members.items()}, weights),
        weighted_mean({name: m.spread for name, m in members.items()}, weights),
    )


def stacked_out_of_fold(
    out_of_fold: Mapping[str, OutOfFold],
    actual: np.ndarray,
    targets: Sequence[str],
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> OutOfFold:
    """Return those of stacking, the weights of each fold learned from the other folds."""
    logs, spread = np.empty_like(actual), np.empty((*actual.shape, 2))
    for train, held_out in folds:
        weights = stacked_weights(out_of_fold, actual, targets, train)
        blend = blended_out_of_fold(out_of_fold, weights)
        logs[held_out] = blend.log_predictions[held_out]
        spread[held_out] = blend.spread[held_out]
    return OutOfFold(logs, spread)


def _is_baseline(name: str) -> bool:
    return name in FAMILIES and FAMILIES[name].baseline
