"""Predictions of submitted jobs against the resources they used.

The file has one JSON object a line: ``job_id`` as in the accounting (``12``, ``12_3``), and any of
``predicted_runtime_s``, ``predicted_peak_rss_bytes`` and the upper bounds ``upper_runtime_s``,
``upper_peak_rss_bytes``. The last line of a job counts. Memory is as the site counts it, see
`voxcast.allocation.site`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.errors import TableError

if TYPE_CHECKING:
    from pathlib import Path

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


def read_predictions(path: Path) -> pd.DataFrame:
    """Return the predicted amounts, NaN where unknown, by the number of the job.

    Raises
    ------
    TableError
        If the file cannot be read, with the line.
    """
    rows = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise TableError(f"cannot be read: {error}", path) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            rows[str(fields["job_id"])] = [float(fields.get(name) or "nan") for name in _NAMES]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            then = 'write {"job_id": "12_3", "predicted_runtime_s": 600}'
            raise TableError(f"line {number} is not a prediction", path, then) from None
    if not rows:
        raise TableError("has no prediction", path)
    predictions = pd.DataFrame.from_dict(rows, orient="index", columns=_NAMES)
    return predictions.where((predictions > 0) & (predictions < np.inf))


def predicted_jobs(jobs: pd.DataFrame, predictions: pd.DataFrame) -> PredictedJobs:
    """Compare predictions with the completed jobs of an audit."""
    matched = jobs.join(predictions, on="job_id", how="inner")
    completed = matched[matched["outcome"] == "completed"]
    errors = (_errors(completed, name) for name in AMOUNTS)
    return PredictedJobs(len(predictions), int(matched["job_id"].nunique()), *errors)


def _errors(jobs: pd.DataFrame, amount: str) -> PredictionErrors | None:
    ratios = (jobs[f"predicted_{amount}"] / jobs[amount]).dropna()
    if ratios.empty:
        return None
    relative = (ratios - 1).abs()
    bounded = jobs[[amount, f"upper_{amount}"]].dropna()
    above = bounded[amount] > bounded[f"upper_{amount}"]
    return PredictionErrors(
        len(ratios), float(relative.median()), float(relative.mean()), float(ratios.median()),
        len(bounded), int(above.sum()),
    )  # fmt: skip
