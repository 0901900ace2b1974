"""Scores of predictions: errors with intervals over subjects, requests, coverage of bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.laws.intervals import clustered_mean
from voxcast.models.metrics import binomial_interval, scores
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.laws.intervals import Interval

QUARTILES = 4


def scored_runs(predictions: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the runs on which ``target`` is scored: wall time excludes disturbed runs."""
    return predictions[~predictions["noisy"]] if target == "runtime_s" else predictions


def errors(predictions: pd.DataFrame) -> dict[str, Any]:
    """Return the errors of each target that was predicted.

    Wall time is scored on undisturbed runs, CPU time and memory on all.

    Returns
    -------
    dict
        By target ``mape`` with ``mape_interval`` (95 %, over subjects), ``median_ape``, ``mae``,
        ``upp``, ``ov_mape``, ``runs`` and ``subjects``; see `voxcast.models.metrics.scores`.
    """
    by_target = {}
    for target in TARGETS:
        if f"{target}_median" not in predictions:
            continue
        runs = scored_runs(predictions, target)
        actual = runs[target].to_numpy(dtype=float)
        median = runs[f"{target}_median"].to_numpy()
        share = clustered_mean(100 * np.abs(median - actual) / actual, runs["subject"].tolist())
        by_target[target] = {
            **scores(actual, median),
            "mape_interval": bounds_of(share),
            "mae": float(np.abs(median - actual).mean()),
            "runs": len(runs),
            "subjects": share.subjects,
        }
    return by_target


def requests(
    predictions: pd.DataFrame, target: str = "runtime_s", bound: str = "upper"
) -> dict[str, Any]:
    """Return HARP's measures of requests of ``TARGET_BOUND``, and requested over used."""
    runs = scored_runs(predictions, target)
    used, requested = runs[target].to_numpy(dtype=float), runs[f"{target}_{bound}"].to_numpy()
    measures = scores(used, requested)
    return {
        "mae": float(np.abs(requested - used).mean()),
        "upp": measures["upp"],
        "ov_mape": measures["ov_mape"],
        "asked_over_used": float(requested.sum() / used.sum()),
    }


def at_no_more_risk(
    predictions: pd.DataFrame, quantiles: Sequence[float], upp: float
) -> dict[str, Any] | None:
    """Return the requests at the lowest quantile that is exceeded at most as often as a rival's.

    Parameters
    ----------
    predictions : DataFrame
        With ``runtime_s_at_QUANTILE``.
    upp : float
        Percentage of runs for which the rival requested too little.

    Returns
    -------
    dict or None
        As `requests`, with the quantile as ``level``; None if the highest quantile is exceeded
        more often.
    """
    for quantile in sorted(quantiles):
        measures = requests(predictions, bound=f"at_{quantile:g}")
        if measures["upp"] <= upp:
            return {"level": quantile, **measures}
    return None


def coverage(predictions: pd.DataFrame, target: str) -> dict[str, Any]:
    """Return how often a bound held, by subject, and by quartile of the measured value.

    A subject is covered if all its runs are.
    """
    runs = scored_runs(predictions, target)
    actual = runs[target].to_numpy(dtype=float)
    is_covered = actual <= runs[f"{target}_upper"].to_numpy()
    by_subject = runs.assign(held=is_covered).groupby("subject")["held"].all()
    covered, subjects = int(by_subject.sum()), len(by_subject)
    rank = np.argsort(np.argsort(actual, kind="stable"), kind="stable")
    quartile = rank * QUARTILES // max(len(actual), 1)
    return {
        "covered": covered,
        "subjects": subjects,
        "rate": covered / subjects if subjects else float("nan"),
        "interval": list(binomial_interval(covered, subjects)),
        "by_quartile": [
            {"runs": int((quartile == q).sum()), "covered": int(is_covered[quartile == q].sum())}
            for q in range(QUARTILES)
        ],
    }


def bounds_of(interval: Interval) -> list[float] | None:
    """Return the bounds of an interval for JSON; None if it is not bounded."""
    return [interval.low, interval.high] if interval.bounded else None
