"""HARP: twelve fits give twenty-four candidates; one is selected.

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

from voxcast.errors import TableError
from voxcast.models.harp.mixes import SEED, draw_mixes
from voxcast.models.harp.policies import (
    HarpCandidate,
    SelectionPolicy,
    adjustment_factor,
    choose,
    score,
)
from voxcast.models.harp.preprocessing import VARIANCE, Preprocessor, inliers
from voxcast.models.harp.time_regressors import REGRESSORS, TimeRegressor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

Mode = Literal["paper", "code", "corrected"]


@dataclass(frozen=True)
class _Fit:
    preprocessor: Preprocessor
    regressor: TimeRegressor


@dataclass(frozen=True)
class Harp:
    """All candidates with their scores and fits; see `fit`."""

    mode: Mode
    candidates: tuple[HarpCandidate, ...]
    fits: dict[tuple[str, str], _Fit]

    def chosen(self, policy: SelectionPolicy = "WTM") -> HarpCandidate:
        """Return the candidate that ``policy`` prefers."""
        return choose(self.candidates, policy, released_ties=self.mode == "code")

    def predict(self, features: pd.DataFrame, candidate: HarpCandidate) -> np.ndarray:
        """Return the times in seconds that a candidate predicts, shape (n,)."""
        fitted = self.fits[candidate.mix, candidate.regressor]
        times_s = fitted.regressor.predict(fitted.preprocessor.transform(features))
        return times_s * candidate.factor


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
        all_rows = _concatenated(features, test[0])
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
            fits[name, regressor] = _Fit(preprocessor, model)
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


def _concatenated(features: pd.DataFrame, test_features: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([features, test_features], ignore_index=True)
