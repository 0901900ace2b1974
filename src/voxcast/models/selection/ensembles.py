"""Weights of ensembles: equal votes of the best, or stacking by least squares.

Out-of-fold predictions of an ensemble follow from its members'; nothing is refitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.out_of_fold import objective
from voxcast.models.point_model import regressed, weighted_mean
from voxcast.models.selection.family_choice import is_baseline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.models.point_model import Weights

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
