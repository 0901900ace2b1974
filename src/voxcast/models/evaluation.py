"""A forecaster on held-out runs: predictions, errors, coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.models.metrics import scores, under_requests
from voxcast.models.query import queries_of
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.point_model import InputLevel

_IDENTITY = ("cell_key", "subject", "volume_id", "app", "device", "cpus", "repeat")


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
