"""Errors and coverage of predictions; subjects are counted, as runs of one are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.point_model import log_targets_at_usual_speed, queries_of, regressed
from voxcast.records import TARGETS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from voxcast.models.forecaster import Forecaster
    from voxcast.models.point_model import InputLevel

Metrics = dict[str, float]
_IDENTITY = ("cell_key", "subject", "volume_id", "app", "device", "cpus", "repeat")


def scores(actual: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Return the errors of point predictions.

    Parameters
    ----------
    actual, predictions : array_like, shape (n,)
        Positive values in the target's unit.

    Returns
    -------
    dict
        ``mape`` and ``median_ape`` in percent; ``log_mae``, the mean absolute error of the
        logarithm; ``upp``, the percentage of runs under-predicted, and ``ov_mape``, the mean
        over-prediction in percent over the over-predicted (0 if there are none), as HARP defines
        them (Vallabhajosyula and Ramnath, PEARC 2022: equality counts for neither).
    """
    y = np.asarray(actual, dtype=float)
    p = np.asarray(predictions, dtype=float)
    relative = (p - y) / y
    over = relative > 0
    return {
        "mape": float(100 * np.mean(np.abs(relative))),
        "median_ape": float(100 * np.median(np.abs(relative))),
        "log_mae": float(np.mean(np.abs(np.log(p) - np.log(y)))),
        "upp": float(100 * np.mean(relative < 0)),
        "ov_mape": float(100 * np.mean(relative[over])) if over.any() else 0.0,
    }


def under_requests(
    actual: ArrayLike, upper: ArrayLike, subjects: ArrayLike
) -> tuple[int, int, tuple[float, float]]:
    """Count the subjects with at least one run above its upper bound.

    Runs of one subject are not independent, so subjects are counted, not runs.

    Returns
    -------
    exceeded, subjects : int
        Number of subjects with a run above its bound, and of all subjects.
    interval : tuple of float
        Exact (Clopper-Pearson) 95 % interval of the rate.
    """
    names = np.asarray(subjects)
    above = np.asarray(actual, dtype=float) > np.asarray(upper, dtype=float)
    n = len(np.unique(names))
    exceeded = len(np.unique(names[above]))
    return exceeded, n, binomial_interval(exceeded, n)


def binomial_interval(hits: int, n: int, coverage: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a rate (Clopper and Pearson, Biometrika 1934).

    Examples
    --------
    >>> [round(x, 3) for x in binomial_interval(0, 10)]
    [0.0, 0.308]
    """
    if n == 0:
        return 0.0, 1.0
    from scipy.stats import beta

    tail = (1 - coverage) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return low, high


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
    return np.asarray(np.abs(actual - log_predictions)[:, columns].mean(axis=1))


def predict_runs(
    forecaster: Forecaster,
    table: pd.DataFrame,
    volumes: np.ndarray,
    lower_quantile: float,
    upper_quantile: float,
    input_level: InputLevel = "volume",
) -> pd.DataFrame:
    """Return measured and predicted targets of every run.

    Columns are the run's identity and, per target, ``TARGET_actual``, ``_lower``, ``_median`` and
    ``_upper``.
    """
    queries = queries_of(table, volumes)
    if input_level == "header":
        queries = [query.header_only() for query in queries]
    predictions = forecaster.predict(
        queries, lower_quantile=lower_quantile, upper_quantile=upper_quantile
    )
    frame = table[list(_IDENTITY)].copy()
    for target in TARGETS:
        frame[f"{target}_actual"] = table[target]
        for k, name in enumerate(("lower", "median", "upper")):
            frame[f"{target}_{name}"] = [p.quantiles[target][k] for p in predictions]
    return frame


def target_metrics(predictions: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the metrics of each target for a frame of `predict_runs`.

    ``coverage`` is the share of runs at or below the upper bound, ``inside`` the share between
    both bounds; ``under_request`` counts subjects and carries its exact 95 % interval.
    """
    metrics: dict[str, dict[str, Any]] = {}
    for target in TARGETS:
        actual, low, middle, high = (
            predictions[f"{target}_{name}"].to_numpy()
            for name in ("actual", "lower", "median", "upper")
        )
        exceeded, subjects, interval = under_requests(actual, high, predictions["subject"])
        metrics[target] = {
            **scores(actual, middle),
            "coverage": float(np.mean(actual <= high)),
            "inside": float(np.mean((actual >= low) & (actual <= high))),
            "under_request": exceeded / subjects,
            "under_request_low": interval[0],
            "under_request_high": interval[1],
            # Requested per unit used: the price of a safe bound.
            "asked_over_used": float(high.sum() / actual.sum()),
        }
    return metrics


def headline(metrics: dict[str, Any], best: str) -> dict[str, Any]:
    """Return the headline metrics of the family chosen by cross-validation.

    Parameters
    ----------
    metrics : dict
        ``runs``, ``subjects``, and the result of `judge` by family.
    best : str
        The family chosen.
    """
    headlines = ("mape", "coverage", "asked_over_used")
    return {
        "runs": metrics["runs"],
        "subjects": metrics["subjects"],
        "family": best,
        **{
            target: {name: metrics[best][target][name] for name in headlines}
            for target in (TARGETS if best in metrics else ())
        },
    }
