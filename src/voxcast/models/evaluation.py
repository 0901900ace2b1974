"""A forecaster on held-out runs: predictions, errors, coverage."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.models.distribution_metrics import crps, pinball_losses, reliability
from voxcast.models.metrics import scores, under_requests
from voxcast.models.query import queries_of
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.point_model import InputLevel

# With their mirror images and the median, the quantiles whose reliability is measured.
UPPER_QUANTILES = (0.55, 0.6, 0.7, 0.8, 0.9, 0.95)
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


def distribution_metrics(
    forecaster: Forecaster, table: pd.DataFrame, volumes: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Return how good the quantiles of each target are on the runs of a table.

    Returns
    -------
    dict
        By target ``crps_log``, a relative error; ``pinball_log``, by probability; and
        ``reliability``, a list of `voxcast.models.distribution_metrics.Reliability` as dict.
    """
    queries = queries_of(table, volumes)
    probabilities = [*(1 - q for q in reversed(UPPER_QUANTILES)), 0.5, *UPPER_QUANTILES]
    by_pair = [
        forecaster.predict(queries, lower_quantile=1 - q, upper_quantile=q)
        for q in UPPER_QUANTILES
    ]
    metrics = {}
    for target in TARGETS:
        triples = [np.log([p.quantiles[target] for p in pair]) for pair in by_pair]
        lower, upper = ([triple[:, k] for triple in triples] for k in (0, 2))
        quantiles = np.stack([*reversed(lower), triples[0][:, 1], *upper], axis=1)
        actual = np.log(table[target].to_numpy(dtype=float))
        losses = pinball_losses(actual, quantiles, probabilities)
        points = reliability(actual, quantiles, probabilities, table["subject"])
        metrics[target] = {
            "crps_log": crps(actual, quantiles, probabilities),
            "pinball_log": {
                f"{p:g}": float(loss) for p, loss in zip(probabilities, losses, strict=True)
            },
            "reliability": [asdict(point) for point in points],
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
