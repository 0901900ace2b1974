"""What voxcast and its rivals say of runs that they have not seen.

Every way gets the same runs and the same columns. What is tuned, chosen or calibrated is so by
folds within the runs to learn from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.features.table import feature_names, rows_of
from voxcast.models import point_model
from voxcast.models.extrapolation import fit_extrapolator
from voxcast.models.forecaster import Forecaster
from voxcast.models.harp import harp
from voxcast.models.harp.time_estimators import Part, fit_parts
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.learning import calibrated, fit_one, learn
from voxcast.records import TARGETS
from voxcast.studies.recorded_table import FULL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.models.harp.policies import Policy
    from voxcast.models.harp.time_estimators import TimeModel

FAMILIES = ("ridge", "additive", "extra_trees", "boosting", "gaussian_process")
TRIALS = 6
INNER = 4
UPPER = 0.95
LEVELS = (
    0.51,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    UPPER,
)  # to meet a rival at its own risk
FACTOR = 1.5  # see `voxcast.models.conformal`
RIVALS: Mapping[str, str] = {"constant": "median", "voxels": "voxels"}
KEPT = ("cell_key", "subject", "app", "cpus", "noisy", *TARGETS)


def voxcast_answers(
    train: pd.DataFrame,
    test: pd.DataFrame,
    *,
    families: Sequence[str] = FAMILIES,
    trials: int = TRIALS,
    seed: int = 0,
    volumes: tuple[np.ndarray, np.ndarray] | None = None,
    cache: FoldCache | None = None,
) -> pd.DataFrame:
    """Return what the whole way from runs to bounds says of ``test``.

    Parameters
    ----------
    train, test : DataFrame
        Runs of one application.
    volumes : (train, test), optional
        Small volumes, for the network.

    Returns
    -------
    DataFrame
        The columns `KEPT`, ``TARGET_median`` and ``TARGET_upper``, and for each of `LEVELS` the
        bound of wall time, ``runtime_s_at_LEVEL``.
    """
    own = Validation(
        train.reset_index(drop=True),
        None if volumes is None else volumes[0],
        INNER,
        seed,
        cache=cache or FoldCache(),
    )
    found = learn(own, families, trials=trials, budget_s=float("inf"))
    model = fit_one(own, found, found.best)
    extrapolator = fit_extrapolator(own, found.tuned, FACTOR)
    forecaster = Forecaster(
        {"volume": calibrated(own, found, model, found.best, FACTOR, extrapolator)}
    )
    cubes = [None] * len(test) if volumes is None else list(volumes[1])
    by_level = {
        level: forecaster.predict(
            rows_of(test), test["cpus"].tolist(), cubes,
            lower_quantile=1 - level, upper_quantile=level,
            host_classes=test["host_class"].tolist(),
        )
        for level in LEVELS
    }  # fmt: skip
    said = by_level[UPPER]
    answers = test[list(KEPT)].reset_index(drop=True)
    for target in TARGETS:
        for k, name in ((1, "median"), (2, "upper")):
            answers[f"{target}_{name}"] = [one.quantiles[target][k] for one in said]
    for level, at in by_level.items():
        answers[f"runtime_s_at_{level:g}"] = [one.quantiles["runtime_s"][2] for one in at]
    return answers.assign(chosen=found.best, out_of_range=[bool(one.out_of_range) for one in said])


def rival_answers(train: pd.DataFrame, test: pd.DataFrame, rival: str) -> pd.DataFrame:
    """Return what a constant, or a line in voxels, says of ``test``; medians alone."""
    model = point_model.fit(train, None, RIVALS[rival], {}, "volume", 0)
    logs = point_model.predict_table(model, test, None)
    answers = test[list(KEPT)].reset_index(drop=True)
    return answers.assign(
        **{f"{target}_median": np.exp(logs[:, k]) for k, target in enumerate(TARGETS)}
    )


def harp_answers(
    train: pd.DataFrame, test: pd.DataFrame, policy: Policy, mode: harp.Mode = "corrected"
) -> pd.DataFrame | None:
    """Return HARP's walltimes, which are its requests too; None where it cannot be fitted.

    Parameters
    ----------
    train : DataFrame
        Scaled-down and full-scale runs.
    policy : {"WTM", "MAE"}
        How its candidate is chosen.
    """
    columns = [name for name in feature_names(train) if train[name].nunique() > 1]
    full = (train["scale"] == FULL).to_numpy()
    asked, walls = test.reindex(columns=columns), test["runtime_s"].to_numpy()
    try:
        fitted = harp.fit(
            train[columns], train["runtime_s"].to_numpy(), full, mode=mode,
            groups=train["subject"].tolist(),
            test=(asked, walls) if mode == "code" else None,
        )  # fmt: skip
    except TableError:
        return None
    chosen = fitted.chosen(policy)
    walls = fitted.predict(asked, chosen)
    answers = test[list(KEPT)].reset_index(drop=True)
    said = f"{chosen.mix} {chosen.regressor} {chosen.factor:g}"
    return answers.assign(runtime_s_median=walls, runtime_s_upper=walls, chosen=said)


def harp_custom_answers(
    train: pd.DataFrame, test: pd.DataFrame, policy: Policy, repeated_s: pd.Series, times: str
) -> pd.DataFrame | None:
    """Return the walltimes of HARP's custom estimator: a start, and repetitions of one part.

    Parameters
    ----------
    repeated_s : Series
        Seconds that each run spent in the repeated part, by cell key.
    times : str
        Feature that says how often it comes.
    """
    columns = [name for name in feature_names(train) if train[name].nunique() > 1]
    full = (train["scale"] == FULL).to_numpy()
    groups = train["subject"].tolist()
    repeated = repeated_s.reindex(train["cell_key"]).to_numpy(dtype=float)
    start = np.maximum(train["runtime_s"].to_numpy() - repeated, 1e-3)

    def fit(features: pd.DataFrame, goal: np.ndarray) -> TimeModel:
        fitted = harp.fit(features[columns], goal, full, groups=groups)
        chosen = fitted.chosen(policy)
        return lambda asked: fitted.predict(asked.reindex(columns=columns), chosen)

    parts = (Part("start"), Part("repeated", times))
    try:
        spent = {"start": start, "repeated": np.maximum(repeated, 1e-6)}
        walls = fit_parts(parts, train, spent, fit).predict(test)
    except TableError:
        return None
    answers = test[list(KEPT)].reset_index(drop=True)
    return answers.assign(runtime_s_median=walls, runtime_s_upper=walls)


def pooled(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the answers of several folds."""
    return pd.concat(parts, ignore_index=True)
