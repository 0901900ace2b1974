"""Predictions of submitted jobs against the resources they used.

The file has one JSON object a line: ``job_id`` as in the accounting (``12``, ``12_3``), and any of
``predicted_runtime_s``, ``predicted_peak_rss_bytes`` and the upper bounds ``upper_runtime_s``,
``upper_peak_rss_bytes``. The last line of a job counts. Memory is as the site counts it, see
`voxcast.allocation.site`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

AMOUNTS = ("runtime_s", "peak_rss_bytes")
_NAMES = [f"{kind}_{amount}" for kind in ("predicted", "upper") for amount in AMOUNTS]


@dataclass(frozen=True)
class PredictionErrors:
    """Errors of the predictions of one amount, over completed jobs.

    Attributes
    ----------
    median_error, mean_error : float
        Of \\|predicted - used\\| / used.
    bias : float
        Median of predicted over used.
    with_bound, above_bound : int
        Jobs that had an upper bound, and how many of them used more.
    """

    jobs: int
    median_error: float
    mean_error: float
    bias: float
    with_bound: int
    above_bound: int


@dataclass(frozen=True)
class PredictedJobs:
    """Number of predictions, of jobs that have one, and errors; None without a used amount."""

    predictions: int
    matched: int
    runtime_s: PredictionErrors | None
    peak_rss_bytes: PredictionErrors | None


def read_predictions(path: Path) -> dict[str, dict[str, float]]:
    """Return the predicted amounts of each job.

    Raises
    ------
    TableError
        If the file cannot be read, with the line.
    """
    predictions: dict[str, dict[str, float]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise TableError(f"cannot be read: {error}", path) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            amounts = {n: float(fields[n]) for n in _NAMES if fields.get(n) is not None}
            predictions[str(fields["job_id"])] = {
                n: v for n, v in amounts.items() if math.isfinite(v) and v > 0
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            then = 'write {"job_id": "12_3", "predicted_runtime_s": 600}'
            raise TableError(f"line {number} is not a prediction", path, then) from None
    if not predictions:
        raise TableError("has no prediction", path)
    return predictions


def predicted_jobs(jobs: pd.DataFrame, predictions: dict[str, dict[str, float]]) -> PredictedJobs:
    """Compare predictions with the completed jobs of an audit."""
    matched = jobs[jobs["job_id"].isin(list(predictions))]
    completed = matched[(matched["outcome"] == "completed").to_numpy()]
    errors = (_errors(completed, name, predictions) for name in AMOUNTS)
    return PredictedJobs(len(predictions), int(matched["job_id"].nunique()), *errors)


def _errors(
    jobs: pd.DataFrame, amount: str, predictions: dict[str, dict[str, float]]
) -> PredictionErrors | None:
    used = jobs[amount].to_numpy()
    fields = [predictions[job] for job in jobs["job_id"]]
    predicted = np.array([field.get(f"predicted_{amount}", np.nan) for field in fields])
    upper = np.array([field.get(f"upper_{amount}", np.nan) for field in fields])
    both = np.isfinite(used) & np.isfinite(predicted)
    if not both.any():
        return None
    ratios, bounded = predicted[both] / used[both], np.isfinite(used) & np.isfinite(upper)
    relative = np.abs(ratios - 1)
    return PredictionErrors(
        len(ratios), float(np.median(relative)), float(relative.mean()), float(np.median(ratios)),
        int(bounded.sum()), int((used[bounded] > upper[bounded]).sum()),
    )  # fmt: skip
