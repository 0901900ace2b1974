"""Errors of out-of-fold predictions: of runs by models that were fitted without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.metrics import scores
from voxcast.models.point_model import log_targets_at_usual_speed, regressed
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

Metrics = dict[str, float]


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
