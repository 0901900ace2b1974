"""HARP: twelve fits, twenty-four candidates, one chosen.

Three ways to run it. ``code`` is the release (ICICLE-ai/harp, tag v2.0) with what is documented to
be wrong with it: scaler and components have seen the test rows, nothing is reduced, rows with any
number beyond 3 standard deviations are dropped, candidates are scored on the test rows, and WTM
breaks ties by the whole table. ``paper`` is what the papers say. ``corrected`` keeps the idea and
none of the defects: categories have columns of their own, times are scaled and never negative,
validation takes whole groups, and no run judges the factor that it helped to find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from voxcast.errors import TableError
from voxcast.models.harp.harp_regressors import REGRESSORS, TimeRegressor
from voxcast.models.harp.mixes import SEED, mix
from voxcast.models.harp.policies import Candidate, Policy, adjustment_factor, choose, score
from voxcast.models.harp.preprocessing import VARIANCE, Preprocessor, inliers

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
    """All candidates with their scores, and the fits behind them; see `fit`."""

    mode: Mode
    candidates: tuple[Candidate, ...]
    fits: dict[tuple[str, str], _Fit]

    def chosen(self, policy: Policy = "WTM") -> Candidate:
        """Return the candidate that ``policy`` prefers."""
        return choose(self.candidates, policy, released_ties=self.mode == "code")

    def predict(self, features: pd.DataFrame, candidate: Candidate) -> np.ndarray:
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
    seed: int = SEED,
) -> Harp:
    """Fit HARP on a history.

    Parameters
    ----------
    features : DataFrame, n rows
        What is known before a run: numbers and categories.
    times_s : sequence of float, shape (n,)
        Wall times, or another amount above zero.
    full_scale : sequence of bool, shape (n,)
        Of each run; the others are scaled down.
    groups : sequence of str, optional
        For ``corrected``: what must not be on both sides, such as the subject.
    test : (features, times), optional
        For ``code`` alone, which looks at them.

    Raises
    ------
    TableError
        If there are too few runs, a time is not above zero, or ``code`` lacks the test rows.
    """
    times = np.asarray(times_s, dtype=float)
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise TableError("a time is not above zero", "HARP")
    if mode == "code" and test is None:
        raise TableError("the release is scored on test rows, and there are none", "HARP")
    whole = np.asarray(full_scale, dtype=bool)
    if mode == "code":
        kept = inliers(features.assign(walltime=times, row=np.arange(len(times))))
        features, times, whole = features[kept], times[kept], whole[kept]
    corrected = mode == "corrected"
    drawn = mix(whole, groups if corrected else None, seed=seed)
    everything = None
    if mode == "code" and test is not None:
        everything = _joined(features, test[0])
    held_x, held_s = features.iloc[drawn.validation], times[drawn.validation]
    candidates, fits = [], {}
    for name, rows in drawn.training.items():
        seen = features.iloc[rows] if everything is None else everything
        preprocessor = Preprocessor(
            one_hot=corrected, variance=None if mode == "code" else VARIANCE
        ).fit(seen)
        x = preprocessor.transform(features.iloc[rows])
        for regressor in REGRESSORS:
            model = TimeRegressor(regressor, scaled=corrected).fit(x, times[rows])
            fits[name, regressor] = _Fit(preprocessor, model)
            held = model.predict(preprocessor.transform(held_x))
            factor = adjustment_factor(held_s, held)
            for adjusted in (False, True):
                used = factor if adjusted else 1.0
                if mode == "code" and test is not None:
                    judged_s = test[1]
                    said_s = model.predict(preprocessor.transform(test[0])) * used
                else:
                    judged_s = held_s
                    said_s = held * (_others(held_s, held) if adjusted and corrected else used)
                found = score(judged_s, said_s)
                candidates.append(Candidate(name, regressor, adjusted, used, **found))
    return Harp(mode, tuple(candidates), fits)


def _others(actual_s: np.ndarray, predicted_s: np.ndarray) -> np.ndarray:
    """Return for each run the factor that all others give."""
    every = np.arange(len(actual_s))
    return np.array(
        [adjustment_factor(actual_s[every != n], predicted_s[every != n]) for n in every]
    )


def _joined(features: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([features, others], ignore_index=True)
