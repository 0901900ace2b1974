"""Who won, by how much and how surely, as numbers; the sentences are in `findings`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import Interval, clustered_mean
from voxcast.records import TARGETS
from voxcast.report.inputs import HEADER_ONLY

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.report.inputs import Evidence

BASELINES = ("median", "voxels")


@dataclass(frozen=True)
class Verdict:
    """The comparison that the report is about.

    Attributes
    ----------
    winner : str
        The best family by cross-validation.
    champion, version : str or None
        Family and version that the registry holds now.
    registered : bool
        Whether the winner became champion in this pass.
    reason, detail : str
        Why, or why not.
    calibrated : bool
        Whether the upper bound's risk is promised, and not only a stated multiple.
    subjects_needed : int
        How many training subjects a promise takes.
    baseline : str or None
        The better of the baselines by cross-validated error of CPU time, the winner left out.
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
    test_openings: int
    baseline: str | None
    cross_validated: dict[str, dict[str, float]]
    tested: dict[str, dict[str, Interval]]
    gain: dict[str, Interval]
    voxels_gain: Interval | None

    @classmethod
    def of(cls, evidence: Evidence) -> Verdict:
        """Read the comparison out of the evidence."""
        receipt, challenger = evidence.receipt, evidence.receipt["challenger"]
        winner, level = str(challenger["family"]), float(receipt["upper_quantile"])
        board = evidence.leaderboard.set_index("family")
        validated = {
            str(name): {t: float(row[f"cv_{t}_mape"]) for t in TARGETS}
            for name, row in board.iterrows()
        }
        others = [name for name in BASELINES if name in validated and name != winner]
        baseline = min(others, key=lambda name: validated[name]["cpu_s"], default=None)
        families = evidence.predictions["family"].unique()
        own = evidence.predicted(winner)
        gain, voxels_gain = {}, None
        if len(own) and baseline in families:
            rival = evidence.predicted(str(baseline))
            gain = {t: _gain(own, rival, t) for t in TARGETS}
        if len(own) and HEADER_ONLY in families:
            voxels_gain = _gain(own, evidence.predicted(HEADER_ONLY), "cpu_s")
        version = receipt.get("version")
        return cls(
            winner=winner,
            champion=receipt.get("champion"),
            version=None if version is None else str(version),
            registered=bool(receipt["registered"]),
            reason=str(receipt["reason"]),
            detail=str(receipt["detail"]),
            calibrated=bool(challenger["calibrated"]),
            upper_quantile=level,
            subjects_needed=math.ceil(1 / (1 - level) - 1e-9) - 1,
            training_subjects=int(receipt["training"]["subjects"]),
            test_subjects=int(evidence.metrics.get("subjects", 0)),
            test_runs=int(evidence.metrics.get("runs", 0)),
            test_openings=int(receipt.get("test_openings", 0)),
            baseline=baseline,
            cross_validated=validated,
            tested={
                str(name): {t: error_of(evidence.predicted(str(name)), t) for t in TARGETS}
                for name in families
            },
            gain=gain,
            voxels_gain=voxels_gain,
        )


def ape(predicted: pd.DataFrame, target: str) -> pd.Series:
    """Return absolute errors of the median in percent of what was measured."""
    actual = predicted[f"{target}_actual"]
    return 100 * np.abs(predicted[f"{target}_median"] - actual) / actual


def error_of(predicted: pd.DataFrame, target: str) -> Interval:
    """Return the mean absolute percentage error with its interval over subjects."""
    return clustered_mean(ape(predicted, target), predicted["subject"].tolist())


def _gain(own: pd.DataFrame, rival: pd.DataFrame, target: str) -> Interval:
    both = own.merge(rival, on="cell_key", suffixes=("", "_rival"))
    rivals = both[[f"{target}_actual", f"{target}_median_rival"]].set_axis(
        [f"{target}_actual", f"{target}_median"], axis=1
    )
    return clustered_mean(ape(rivals, target) - ape(both, target), both["subject"].tolist())
