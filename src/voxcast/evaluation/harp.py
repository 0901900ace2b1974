"""HARP's training sets: scaled-down runs, with an increasing share of full-scale runs.

HARP's selection among its candidates: by under-prediction first, or by mean error.

HARP: twelve fits give twenty-four candidates; one is selected.

There are three modes. ``code`` is the release (ICICLE-ai/harp, tag v2.0) with its documented
defects: scaler and components are fitted with the test rows, nothing is reduced, rows with any
number more than 3 standard deviations from the mean are dropped, candidates are scored on the test
rows, and WTM breaks ties over the whole table. ``paper`` follows the papers. ``corrected`` keeps
the method without the defects: categories are one-hot encoded, times are scaled and never
negative, validation takes whole groups, and no run scores an adjustment factor that it was used
to estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.evaluation.harp_regressors import (
    REGRESSORS,
    VARIANCE,
    Preprocessor,
    TimeRegressor,
    inliers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


SEED = 2048  # of HARP's split
FULL_SCALE_ALONE = "FS"
SHARES = {"SD": 0.0, "SD+25%FS": 0.25, "SD+50%FS": 0.5, "SD+75%FS": 0.75}
VALIDATION_SHARE = 0.25


@dataclass(frozen=True)
class Mixes:
    """Positions of runs: training sets by name, and the validation runs, which none contains.

    A position is repeated where a run was drawn repeatedly.
    """

    training: dict[str, np.ndarray]
    validation: np.ndarray


def draw_mixes(
    full_scale: Sequence[bool] | np.ndarray,
    groups: Sequence[str] | None = None,
    *,
    upsample: bool = True,
    scaled_down: bool = True,
    seed: int = SEED,
) -> Mixes:
    """Draw HARP's four training sets and its validation runs.

    A quarter of the full-scale runs is held out for validation. From the rest, a quarter, half
    and three quarters of all full-scale runs are added to the scaled-down ones.

    Parameters
    ----------
    full_scale : sequence of bool, shape (n,)
        Whether each run is at full scale; otherwise it is scaled down.
    groups : sequence of str, optional
        Groups that validation does not split; HARP itself holds out single runs.
    upsample : bool
        Draw as many full-scale runs as there are scaled-down ones, with replacement, as HARP does.
        If there are more full-scale runs, this reduces their number.
    scaled_down : bool
        False gives a single training set, `FULL_SCALE_ALONE`, of all full-scale runs that are not
        held out for validation.

    Raises
    ------
    TableError
        If there are fewer than 4 full-scale runs, or groups of them, or no scaled-down run where
        they are used.
    """
    full = np.asarray(full_scale, dtype=bool)
    down_rows, full_rows = np.flatnonzero(~full), np.flatnonzero(full)
    names = full_rows if groups is None else np.asarray(groups, dtype=str)[full_rows]
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(np.unique(names))
    if len(distinct) < 4 or (scaled_down and not len(down_rows)):
        have = f"{len(down_rows)} scaled-down and {len(distinct)} full-scale runs or groups"
        raise TableError(f"HARP needs some scaled-down runs and 4 at full scale, not {have}")
    held_out = distinct[: max(1, round(VALIDATION_SHARE * len(distinct)))]
    validation = np.isin(names, held_out)
    # By group, in the order drawn, so that a larger share contains every smaller one.
    order = {name: n for n, name in enumerate(distinct)}
    pool = sorted(
        full_rows[~validation], key=lambda n: order[names[np.searchsorted(full_rows, n)]]
    )
    if not scaled_down:
        return Mixes({FULL_SCALE_ALONE: np.array(pool, dtype=int)}, full_rows[validation])
    training = {}
    for name, share in SHARES.items():
        chosen = np.array(pool[: round(share * len(full_rows))], dtype=int)
        if upsample and len(chosen):
            chosen = rng.choice(chosen, size=len(down_rows), replace=True)
        training[name] = np.concatenate([down_rows, chosen])
    return Mixes(training, full_rows[validation])


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


Mode = Literal["paper", "code", "corrected"]


@dataclass(frozen=True)
class Harp:
    """All candidates with their scores and fits; see `fit`."""

    mode: Mode
    candidates: tuple[HarpCandidate, ...]
    fits: dict[tuple[str, str], tuple[Preprocessor, TimeRegressor]]

    def chosen(self, policy: SelectionPolicy = "WTM") -> HarpCandidate:
        """Return the candidate that ``policy`` prefers."""
        return choose(self.candidates, policy, released_ties=self.mode == "code")

    def predict(self, features: pd.DataFrame, candidate: HarpCandidate) -> np.ndarray:
        """Return the times in seconds that a candidate predicts, shape (n,)."""
        preprocessor, regressor = self.fits[candidate.mix, candidate.regressor]
        return regressor.predict(preprocessor.transform(features)) * candidate.factor


def fit(
    features: pd.DataFrame,
    times_s: Sequence[float] | np.ndarray,
    full_scale: Sequence[bool] | np.ndarray,
    *,
    mode: Mode = "corrected",
    groups: Sequence[str] | None = None,
    test: tuple[pd.DataFrame, np.ndarray] | None = None,
    scaled_down: bool = True,
    seed: int = SEED,
) -> Harp:
    """Fit HARP on a history.

    Parameters
    ----------
    features : DataFrame, n rows
        Numbers and categories that are available before a run.
    times_s : sequence of float, shape (n,)
        Wall times, or another positive amount.
    full_scale : sequence of bool, shape (n,)
        Whether each run is at full scale; otherwise it is scaled down.
    groups : sequence of str, optional
        For ``corrected``: groups that validation does not split, such as subjects.
    test : (features, times), optional
        Used by ``code`` only.
    scaled_down : bool
        Whether scaled-down runs are used. Without them HARP's regressors have a single training
        set, all full-scale runs that are not kept for validation.

    Raises
    ------
    TableError
        If there are too few runs, a time is not above zero, or ``code`` lacks the test rows.
    """
    times = np.asarray(times_s, dtype=float)
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise TableError("a time is not above zero", "HARP")
    if mode == "code" and test is None:
        raise TableError(
            "the release needs test rows to score candidates, and there are none", "HARP"
        )
    full = np.asarray(full_scale, dtype=bool)
    if mode == "code":
        inlier = inliers(features.assign(walltime=times, row=np.arange(len(times))))
        features, times, full = features[inlier], times[inlier], full[inlier]
    corrected = mode == "corrected"
    mixes = draw_mixes(full, groups if corrected else None, scaled_down=scaled_down, seed=seed)
    all_rows = None
    if mode == "code" and test is not None:
        all_rows = pd.concat([features, test[0]], ignore_index=True)
    validation_features = features.iloc[mixes.validation]
    validation_s = times[mixes.validation]
    candidates, fits = [], {}
    for name, rows in mixes.training.items():
        preprocessor = Preprocessor(
            one_hot=corrected, variance=None if mode == "code" else VARIANCE
        ).fit(features.iloc[rows] if all_rows is None else all_rows)
        x = preprocessor.transform(features.iloc[rows])
        for regressor in REGRESSORS:
            model = TimeRegressor(regressor, scaled=corrected).fit(x, times[rows])
            fits[name, regressor] = preprocessor, model
            predicted_s = model.predict(preprocessor.transform(validation_features))
            validation_factor = adjustment_factor(validation_s, predicted_s)
            for adjusted in (False, True):
                factor = validation_factor if adjusted else 1.0
                if mode == "code" and test is not None:
                    test_predicted_s = model.predict(preprocessor.transform(test[0]))
                    scores = score(test[1], test_predicted_s * factor)
                elif adjusted and corrected:
                    factors = _leave_one_out_factors(validation_s, predicted_s)
                    scores = score(validation_s, predicted_s * factors)
                else:
                    scores = score(validation_s, predicted_s * factor)
                candidates.append(HarpCandidate(name, regressor, adjusted, factor, **scores))
    return Harp(mode, tuple(candidates), fits)


def _leave_one_out_factors(actual_s: np.ndarray, predicted_s: np.ndarray) -> np.ndarray:
    """Return for each run the adjustment factor of all other runs."""
    positions = np.arange(len(actual_s))
    return np.array(
        [
            adjustment_factor(actual_s[positions != n], predicted_s[positions != n])
            for n in positions
        ]
    )
