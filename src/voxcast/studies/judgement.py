"""How good answers are: errors with intervals over subjects, and how often a bound held."""

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


def judged_on(answers: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the runs that ``target`` is judged on: wall time on those that nothing disturbed."""
    return answers[~answers["noisy"]] if target == "runtime_s" else answers


def errors(answers: pd.DataFrame) -> dict[str, Any]:
    """Return the errors of each target that was answered.

    Wall time is judged on runs that nothing disturbed, CPU time and memory on all.

    Returns
    -------
    dict
        By target ``mape`` with ``mape_interval`` (95 %, over subjects), ``median_ape``, ``mae``,
        ``upp``, ``ov_mape``, ``runs`` and ``subjects``; see `voxcast.models.metrics.scores`.
    """
    found = {}
    for target in TARGETS:
        if f"{target}_median" not in answers:
            continue
        judged = judged_on(answers, target)
        actual = judged[target].to_numpy(dtype=float)
        said = judged[f"{target}_median"].to_numpy()
        share = clustered_mean(100 * np.abs(said - actual) / actual, judged["subject"].tolist())
        found[target] = {
            **scores(actual, said),
            "mape_interval": bounds_of(share),
            "mae": float(np.abs(said - actual).mean()),
            "runs": len(judged),
            "subjects": share.subjects,
        }
    return found


def requests(
    answers: pd.DataFrame, target: str = "runtime_s", bound: str = "upper"
) -> dict[str, Any]:
    """Return what it means to ask for ``TARGET_BOUND``: HARP's measures of it, and its cost."""
    judged = judged_on(answers, target)
    actual, asked = judged[target].to_numpy(dtype=float), judged[f"{target}_{bound}"].to_numpy()
    found = scores(actual, asked)
    return {
        "mae": float(np.abs(asked - actual).mean()),
        "upp": found["upp"],
        "ov_mape": found["ov_mape"],
        "asked_over_used": float(asked.sum() / actual.sum()),
    }


def at_no_more_risk(
    answers: pd.DataFrame, levels: Sequence[float], upp: float
) -> dict[str, Any] | None:
    """Return the requests at the lowest level that is exceeded no more often than a rival's.

    Parameters
    ----------
    answers : DataFrame
        With ``runtime_s_at_LEVEL``.
    upp : float
        Percent of runs for which the rival asked too little.

    Returns
    -------
    dict or None
        As `requests`, with ``level``; None where even the highest level is exceeded more often.
    """
    for level in sorted(levels):
        found = requests(answers, bound=f"at_{level:g}")
        if found["upp"] <= upp:
            return {"level": level, **found}
    return None


def coverage(answers: pd.DataFrame, target: str) -> dict[str, Any]:
    """Return how often a bound held, subject by subject, and by quartile of what was measured.

    A subject counts as covered if all its runs are.
    """
    judged = judged_on(answers, target)
    actual = judged[target].to_numpy(dtype=float)
    held = actual <= judged[f"{target}_upper"].to_numpy()
    by_subject = judged.assign(held=held).groupby("subject")["held"].all()
    kept, n = int(by_subject.sum()), len(by_subject)
    order = np.argsort(np.argsort(actual, kind="stable"), kind="stable")
    quartile = order * QUARTILES // max(len(actual), 1)
    return {
        "covered": kept,
        "subjects": n,
        "rate": kept / n if n else float("nan"),
        "interval": list(binomial_interval(kept, n)),
        "by_quartile": [
            {"runs": int((quartile == q).sum()), "covered": int(held[quartile == q].sum())}
            for q in range(QUARTILES)
        ],
    }


def bounds_of(interval: Interval) -> list[float] | None:
    """Return an interval as JSON takes it; None where there is none."""
    return [interval.low, interval.high] if interval.bounded else None
