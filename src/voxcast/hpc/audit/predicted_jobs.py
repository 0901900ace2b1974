"""Predictions of submitted jobs against what they used.

The file is one JSON object a line, as whoever submits a job appends it: ``job_id`` as in the
accounting (``12``, ``12_3``), and any of ``predicted_runtime_s``, ``predicted_peak_rss_bytes`` and
the bounds ``upper_runtime_s``, ``upper_peak_rss_bytes``. The last line of a job counts.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

AMOUNTS = ("runtime_s", "peak_rss_bytes")


@dataclass(frozen=True)
class AmountErrors:
    """Errors of the predictions of one amount, over completed jobs.

    Attributes
    ----------
    median_error, mean_error : float
        Of \\|predicted - used\\| / used.
    bias : float
        Median of predicted over used.
    with_bound, above_bound : int
        Jobs that had an upper bound, and those that used more.
    """

    jobs: int
    median_error: float
    mean_error: float
    bias: float
    with_bound: int
    above_bound: int


@dataclass(frozen=True)
class PredictionErrors:
    """Predictions against what was used; None for an amount that no job has."""

    predictions: int
    matched: int
    runtime_s: AmountErrors | None
    peak_rss_bytes: AmountErrors | None

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def read_predictions(path: Path) -> dict[str, dict[str, float]]:
    """Return predicted amounts by job.

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
    names = [f"{kind}_{amount}" for kind in ("predicted", "upper") for amount in AMOUNTS]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            job_id = str(fields["job_id"])
            amounts = {n: float(fields[n]) for n in names if fields.get(n) is not None}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            then = 'write {"job_id": "12_3", "predicted_runtime_s": 600}'
            raise TableError(f"line {number} is no prediction", path, then) from None
        predictions[job_id] = {n: v for n, v in amounts.items() if math.isfinite(v) and v > 0}
    if not predictions:
        raise TableError("has no prediction", path)
    return predictions


def errors_of(jobs: pd.DataFrame, predictions: dict[str, dict[str, float]]) -> PredictionErrors:
    """Compare predictions with the completed jobs of an audit."""
    matched = jobs[jobs["job_id"].isin(list(predictions))]
    completed = matched[(matched["outcome"] == "completed").to_numpy()]
    fields = [predictions[job_id] for job_id in completed["job_id"]]
    amounts: dict[str, AmountErrors | None] = {}
    for name in AMOUNTS:
        used = completed[name].to_numpy()
        predicted, upper = (
            np.array([field.get(f"{kind}_{name}", np.nan) for field in fields])
            for kind in ("predicted", "upper")
        )
        both = np.isfinite(used) & np.isfinite(predicted)
        bounded = np.isfinite(used) & np.isfinite(upper)
        amounts[name] = None
        if both.any():
            relative = np.abs(predicted[both] - used[both]) / used[both]
            amounts[name] = AmountErrors(
                int(both.sum()),
                float(np.median(relative)),
                float(relative.mean()),
                float(np.median(predicted[both] / used[both])),
                int(bounded.sum()),
                int((used[bounded] > upper[bounded]).sum()),
            )
    count = int(matched["job_id"].nunique())
    return PredictionErrors(
        len(predictions), count, amounts["runtime_s"], amounts["peak_rss_bytes"]
    )
