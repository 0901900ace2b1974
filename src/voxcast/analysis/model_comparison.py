"""The best model against the baselines: errors, gains, and the decision of the registry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.laws.intervals import Interval, clustered_mean
from voxcast.records import TARGETS

if TYPE_CHECKING:
    import pandas as pd

CONSTANT = "median"  # the baseline that predicts the same for every image
BASELINES = (CONSTANT, "voxels", "law")
HEADER_ONLY = "header_only"


@dataclass(frozen=True)
class ModelComparison:
    """The comparison that is the main result of the report.

    Attributes
    ----------
    winner : str
        The best family by cross-validation.
    champion, version : str or None
        Family and version that the registry holds now.
    registered : bool
        Whether the winner was registered as champion in this pass.
    reason, detail : str
        Reason of the registry's decision.
    calibrated : bool
        Whether the upper bound is calibrated, rather than the largest residual times a factor.
    subjects_needed : int
        Number of training subjects that a calibrated bound needs.
    baseline : str or None
        The better of the baselines by cross-validated error of CPU time, the winner excluded.
    cross_validated : dict of str to dict
        Percentage errors (MAPE) by family and target, on the training side.
    tested : dict of str to dict
        The same on unseen subjects, with intervals; empty without a test side.
    gain : dict of str to Interval
        By target: the baseline's error minus the winner's on the same test runs, in points.
    voxels_gain : Interval or None
        Error of CPU time from headers alone minus the winner's, in points.
    """

    winner: str
    champion: str | None
    version: str | None
    registered: bool
    reason: str
    detail: str
    calibrated: bool
    upper_quantile: float
    subjects_needed: int
    training_subjects: int
    test_subjects: int
    test_runs: int
    baseline: str | None
    cross_validated: dict[str, dict[str, float]]
    tested: dict[str, dict[str, Interval]]
    gain: dict[str, Interval]
    voxels_gain: Interval | None


def compare_models(
    leaderboard: pd.DataFrame,
    predictions: pd.DataFrame,
    metrics: dict[str, Any],
    receipt: dict[str, Any],
) -> ModelComparison:
    """Compare the best family with the baselines.

    Parameters
    ----------
    leaderboard, predictions : DataFrame
        As written by tune and evaluate.
    metrics, receipt : dict
        As written by evaluate and register.
    """
    challenger = receipt["challenger"]
    winner, upper_quantile = str(challenger["family"]), float(receipt["upper_quantile"])
    cross_validated = {
        str(name): {t: float(row[f"cv_{t}_mape"]) for t in TARGETS}
        for name, row in leaderboard.set_index("family").iterrows()
    }
    baselines = [name for name in BASELINES if name in cross_validated and name != winner]
    baseline = min(baselines, key=lambda name: cross_validated[name]["cpu_s"], default=None)
    by_family = {
        str(name): rows.sort_values("cell_key", ignore_index=True)
        for name, rows in predictions.groupby("family", sort=False)
    }
    gain, voxels_gain = {}, None
    if winner in by_family and baseline in by_family:
        gain = {t: _gain(by_family[winner], by_family[str(baseline)], t) for t in TARGETS}
    if winner in by_family and HEADER_ONLY in by_family:
        voxels_gain = _gain(by_family[winner], by_family[HEADER_ONLY], "cpu_s")
    version = receipt.get("version")
    return ModelComparison(
        winner=winner,
        champion=receipt.get("champion"),
        version=None if version is None else str(version),
        registered=bool(receipt["registered"]),
        reason=str(receipt["reason"]),
        detail=str(receipt["detail"]),
        calibrated=bool(challenger["calibrated"]),
        upper_quantile=upper_quantile,
        subjects_needed=math.ceil(1 / (1 - upper_quantile) - 1e-9) - 1,
        training_subjects=int(receipt["training"]["subjects"]),
        test_subjects=int(metrics.get("subjects", 0)),
        test_runs=int(metrics.get("runs", 0)),
        baseline=baseline,
        cross_validated=cross_validated,
        tested={
            name: {t: mean_error(rows, t) for t in TARGETS} for name, rows in by_family.items()
        },
        gain=gain,
        voxels_gain=voxels_gain,
    )


def absolute_percentage_errors(predictions: pd.DataFrame, target: str) -> pd.Series[float]:
    """Return the absolute error of the median of each run, in percent of the measured value."""
    actual = predictions[f"{target}_actual"]
    errors: pd.Series[float] = 100 * np.abs(predictions[f"{target}_median"] - actual) / actual
    return errors


def mean_error(predictions: pd.DataFrame, target: str) -> Interval:
    """Return the mean absolute percentage error with its 95 % interval over subjects."""
    errors = absolute_percentage_errors(predictions, target)
    return clustered_mean(errors, predictions["subject"].tolist())


def _gain(winner: pd.DataFrame, rival: pd.DataFrame, target: str) -> Interval:
    both = winner.merge(rival, on="cell_key", suffixes=("", "_rival"))
    rivals = both[[f"{target}_actual", f"{target}_median_rival"]].set_axis(
        [f"{target}_actual", f"{target}_median"], axis=1
    )
    gains = absolute_percentage_errors(rivals, target) - absolute_percentage_errors(both, target)
    return clustered_mean(gains, both["subject"].tolist())
