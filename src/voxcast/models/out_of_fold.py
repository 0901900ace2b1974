"""Out-of-fold predictions and their errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.metrics import scores
from voxcast.models.point_model import log_targets, log_targets_at_usual_speed, regressed
from voxcast.models.subject_scores import scaled
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

Metrics = dict[str, float]


@dataclass(frozen=True)
class OutOfFold:
    """Predictions of every run by a model that was fitted without its subject.

    Attributes
    ----------
    log_predictions : ndarray, shape (n_runs, targets)
        Natural logarithms.
    spread : ndarray, shape (n_runs, targets, 2)
        Uncertainty below and above, see `voxcast.models.families.regressors.Regressor.spread`.
    """

    log_predictions: np.ndarray
    spread: np.ndarray


def scaled_residuals(
    table: pd.DataFrame, out_of_fold: OutOfFold, targets: Sequence[str]
) -> np.ndarray:
    """Return measured minus predicted logarithms, shape (n_runs, targets).

    Each is divided by the spread of its prediction on the side of the error.
    """
    residuals = log_targets(table, targets) - out_of_fold.log_predictions
    return scaled(residuals, out_of_fold.spread)


def error_metrics(
    table: pd.DataFrame, log_predictions: np.ndarray, targets: Sequence[str] = TARGETS
) -> Metrics:
    """Return ``TARGET/METRIC`` of every target, and ``objective``, which tuning minimises.

    The objective is the mean absolute logarithmic error at the usual speed of machines, averaged
    over the regressed targets: wall time follows from CPU time and carries the machine's noise.
    """
    metrics: Metrics = {}
    for k, target in enumerate(targets):
        for metric, value in scores(table[target], np.exp(log_predictions[:, k])).items():
            metrics[f"{target}/{metric}"] = value
    metrics["objective"] = objective(
        log_targets_at_usual_speed(table, targets), log_predictions, targets
    )
    return metrics


def objective(
    actual: np.ndarray, log_predictions: np.ndarray, targets: Sequence[str] = TARGETS
) -> float:
    """Return the objective of `error_metrics` from logarithms, shape (n, targets)."""
    return float(run_errors(actual, log_predictions, targets).mean())


def run_errors(
    actual: np.ndarray, log_predictions: np.ndarray, targets: Sequence[str] = TARGETS
) -> np.ndarray:
    """Return the error of each run, shape (n,), whose mean is the `objective`."""
    columns = [list(targets).index(target) for target in regressed(targets)]
    errors: np.ndarray = np.abs(actual - log_predictions)[:, columns].mean(axis=1)
    return errors
