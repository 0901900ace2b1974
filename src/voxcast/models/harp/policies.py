"""HARP's selection among its candidates: by under-prediction first, or by mean error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

SelectionPolicy = Literal["WTM", "MAE"]
DIGITS = 4  # HARP compares rounded percentages


@dataclass(frozen=True)
class HarpCandidate:
    """One of HARP's models: training set, regressor, whether adjusted, and its scores.

    Attributes
    ----------
    factor : float
        Predictions are multiplied by this; 1 without adjustment.
    mae_s, mse_s2 : float
        Mean absolute error and mean squared error.
    mape, upp, up_mape, ov_mape : float
        In percent, see `score`.
    """

    mix: str
    regressor: str
    adjusted: bool
    factor: float
    mae_s: float
    mse_s2: float
    mape: float
    upp: float
    up_mape: float
    ov_mape: float


def score(actual_s: ArrayLike, predicted_s: ArrayLike) -> dict[str, float]:
    """Return HARP's measures, rounded as HARP does.

    UPP is the percentage of under-predicted runs. UP_MAPE and OV_MAPE are the mean percentage
    errors over the under- and the over-predicted runs, 0 where there are none. An exact prediction
    counts as neither.

    References
    ----------
    Vallabhajosyula and Ramnath, "Towards practical, generalizable machine-learning training
    pipelines to build regression models for predicting application resource needs on HPC
    systems", PEARC 2022, doi 10.1145/3491418.3535172.
    """
    a, p = np.asarray(actual_s, dtype=float), np.asarray(predicted_s, dtype=float)
    share = 100 * np.abs(p - a) / a
    under, over = p < a, p > a
    measures = {
        "mae_s": np.abs(p - a).mean(),
        "mse_s2": np.square(p - a).mean(),
        "mape": share.mean(),
        "upp": 100 * under.mean(),
        "up_mape": share[under].mean() if under.any() else 0.0,
        "ov_mape": share[over].mean() if over.any() else 0.0,
    }
    return {name: round(float(value), DIGITS) for name, value in measures.items()}


def adjustment_factor(actual_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Return HARP's VA: 1 + the mean relative error of the under-predicted, to two digits.

    Examples
    --------
    >>> adjustment_factor([100.0, 100.0, 10.0], [50.0, 100.0, 12.0])
    1.5
    """
    a, p = np.asarray(actual_s, dtype=float), np.asarray(predicted_s, dtype=float)
    under = p < a
    return 1 + round(float((np.abs(a - p)[under] / a[under]).mean()), 2) if under.any() else 1.0


def choose(
    candidates: Sequence[HarpCandidate], policy: SelectionPolicy, *, released_ties: bool = False
) -> HarpCandidate:
    """Return the candidate that a policy prefers, the first of equals.

    Parameters
    ----------
    policy : {"WTM", "MAE"}
        WTM takes the smallest UPP and breaks ties by the smallest OV_MAPE; MAE takes the smallest
        mean absolute error.
    released_ties : bool
        Break ties of WTM as HARP's release does, by the smallest OV_MAPE of all candidates. It
        is 0 for a model that under-predicts all runs, which then wins.
    """
    if policy == "MAE":
        return min(candidates, key=lambda candidate: candidate.mae_s)
    least_upp = min(candidate.upp for candidate in candidates)
    tied = [candidate for candidate in candidates if candidate.upp == least_upp]
    pool = candidates if released_ties and len(tied) > 1 else tied
    return min(pool, key=lambda candidate: candidate.ov_mape)
