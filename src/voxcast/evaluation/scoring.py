"""Scores of predictions: errors with intervals over subjects, requests, coverage of bounds.

Floors: the error that repeats of the same run leave to any model, by protocol.

The logarithms of two runs of one cell differ by noise, and on two days also by the speed of the
machine. Half the mean square of the differences is the variance of one run that no model can
predict; the mean error of the best model is about √(2/π) times its standard deviation, as
logarithms are about normal.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.features.rows import SPEED_DEVIATION, TIMES
from voxcast.laws.intervals import clustered_mean
from voxcast.models.metrics import binomial_interval, scores
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from voxcast.evaluation.protocols import Protocol
    from voxcast.laws.intervals import Interval


MINIMUM_PAIRS = 5
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)  # deviation of a normal quantity, of its standard deviation


def floor_percent(runs: pd.DataFrame, target: str, protocol: Protocol) -> float:
    """Return the floor of the mean absolute percentage error; NaN if too little was repeated.

    Parameters
    ----------
    runs : DataFrame
        The runs that are judged, with ``cell`` (equal for repeats), ``sitting``, ``day`` and the
        target.
    protocol : Protocol
        With local runs the speed is known as well as they can tell it, by the variances of noise
        and of days. One new machine does not show how much machines differ: there is no
        floor without local runs, and with them it is the noise of the run and of these.
    """
    within, between = _variance(runs, target), _variance(runs, target, apart=True)
    if protocol.place == "known sitting":
        return 100 * MEAN_ABSOLUTE * math.sqrt(within)
    if protocol.place == "new machine":
        count = protocol.local_runs
        return 100 * MEAN_ABSOLUTE * math.sqrt(within * (1 + 1 / count)) if count else float("nan")
    speed = max(between - within, 0.0)
    if protocol.local_runs and speed > 0:
        speed = 1 / (1 / speed + protocol.local_runs / within)
    return 100 * MEAN_ABSOLUTE * math.sqrt(within + speed)


def _variance(runs: pd.DataFrame, target: str, *, apart: bool = False) -> float:
    """Return half the mean square of differences within cells: in one sitting, or between days."""
    by_cell = []
    pairs = 0
    for _, repeats in runs.groupby("cell", sort=True):
        logs = np.log(repeats[target].to_numpy())
        places = repeats["day" if apart else "sitting"].tolist()
        squares = [
            (logs[a] - logs[b]) ** 2
            for a, b in combinations(range(len(logs)), 2)
            if (places[a] != places[b]) is apart
        ]
        pairs += len(squares)
        if squares:
            by_cell.append(np.mean(squares))
    return float(np.mean(by_cell)) / 2 if pairs >= MINIMUM_PAIRS else float("nan")


QUARTILES = 4
TRIMMED_SHARE = 0.05  # of the subjects, the ones with the largest error


def scored_runs(predictions: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the runs on which ``target`` is scored: wall time excludes disturbed runs."""
    return predictions[~predictions["noisy"]] if target == "runtime_s" else predictions


def errors(predictions: pd.DataFrame) -> dict[str, Any]:
    """Return the errors of each target that was predicted.

    Wall time is scored on undisturbed runs, CPU time and memory on all.

    Returns
    -------
    dict
        By target ``mape`` with ``mape_interval`` (95 %, over subjects), ``trimmed_mape`` without
        the subjects with the largest errors (`TRIMMED_SHARE`), ``median_ape``, ``mae``, ``upp``,
        ``ov_mape``, ``runs`` and ``subjects``; see `voxcast.models.metrics.scores`. For times
        ``normalised_mape``, its interval and its trimmed mean are against what the run would
        have taken at the usual speed of its machine, if the predictions have `SPEED_DEVIATION`.
    """
    by_target = {}
    for target in TARGETS:
        if f"{target}_median" not in predictions:
            continue
        runs = scored_runs(predictions, target)
        actual = runs[target].to_numpy(dtype=float)
        median = runs[f"{target}_median"].to_numpy()
        shares = percentage_errors(runs, target)
        share = clustered_mean(shares, runs["subject"].tolist())
        by_target[target] = {
            **scores(actual, median),
            "mape_interval": bounds_of(share),
            "trimmed_mape": _trimmed_mean(shares, runs["subject"]),
            "mae": float(np.abs(median - actual).mean()),
            "runs": len(runs),
            "subjects": share.subjects,
            **_normalised(runs, target),
        }
    return by_target


def percentage_errors(
    predictions: pd.DataFrame, target: str, *, normalised: bool = False
) -> np.ndarray:
    """Return the absolute error of the median of each run, in percent of the measured value.

    Parameters
    ----------
    normalised : bool
        Whether the measured time is that at the usual speed of the machine.
    """
    actual = predictions[target].to_numpy(dtype=float)
    if normalised:
        actual = actual * np.exp(predictions[SPEED_DEVIATION].to_numpy(dtype=float))
    shares: np.ndarray = 100 * np.abs(predictions[f"{target}_median"] - actual) / actual
    return np.asarray(shares)


def _normalised(runs: pd.DataFrame, target: str) -> dict[str, Any]:
    if SPEED_DEVIATION not in runs or target not in TIMES:
        return {}
    shares = percentage_errors(runs, target, normalised=True)
    mean = clustered_mean(shares, runs["subject"].tolist())
    return {
        "normalised_mape": mean.value,
        "normalised_mape_interval": bounds_of(mean),
        "normalised_trimmed_mape": _trimmed_mean(shares, runs["subject"]),
    }


def _trimmed_mean(shares: np.ndarray, subjects: pd.Series) -> float:
    """Return the mean error of runs without the subjects whose mean error is largest."""
    means = pd.Series(shares).groupby(subjects.to_numpy()).mean().sort_values()
    remaining = means.index[: len(means) - math.floor(TRIMMED_SHARE * len(means))]
    return float(shares[subjects.isin(remaining).to_numpy()].mean())


def paired(
    predictions: pd.DataFrame, rival: pd.DataFrame, target: str, confidence: float = 0.95
) -> dict[str, Any]:
    """Return the error of a rival minus that error of other predictions, in points.

    Returns
    -------
    dict
        ``points`` (positive: the rival is worse) with ``interval`` over subjects, and ``ratio``,
        the error of the rival over the other.
    """
    runs = scored_runs(predictions, target).set_index("cell_key")
    rivals = rival.set_index("cell_key").loc[runs.index]
    errors_of_runs, errors_of_rival = (percentage_errors(t, target) for t in (runs, rivals))
    mean = clustered_mean(
        errors_of_rival - errors_of_runs, runs["subject"].tolist(), confidence=confidence
    )
    return {
        "points": mean.value,
        "interval": bounds_of(mean),
        "ratio": float(errors_of_rival.mean() / errors_of_runs.mean()),
    }


def requests(predictions: pd.DataFrame, target: str = "runtime_s") -> dict[str, Any]:
    """Return HARP's measures of requests of the upper bound, and requested over used."""
    runs = scored_runs(predictions, target)
    used, requested = runs[target].to_numpy(dtype=float), runs[f"{target}_upper"].to_numpy()
    measures = scores(used, requested)
    return {
        "mae": float(np.abs(requested - used).mean()),
        "upp": measures["upp"],
        "ov_mape": measures["ov_mape"],
        "asked_over_used": float(requested.sum() / used.sum()),
    }


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
