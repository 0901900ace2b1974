"""Predictions of voxcast, of HARP and of the baselines for held-out runs.

All contenders get the same runs and the same columns. Tuning, selection and calibration use folds
within the training runs alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.evaluation import harp
from voxcast.evaluation.harp_regressors import RepeatedPhase, fit_phases
from voxcast.evaluation.recorded_table import FULL
from voxcast.features.table import SPEED_DEVIATION, feature_names
from voxcast.models import point_model
from voxcast.models.query import queries_of
from voxcast.models.selection.cross_validation import FoldCache, Validation
from voxcast.models.selection.learning import learn
from voxcast.models.selection.refitting import fit_forecaster
from voxcast.models.speed.updates import run_residuals, updated
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.evaluation.harp import SelectionPolicy
    from voxcast.evaluation.harp_regressors import TimeModel
    from voxcast.models.forecaster import Forecaster

FAMILIES = ("ridge", "extra_trees", "boosted", "gaussian_process", "phases")
TRIALS = 6
INNER_FOLDS = 4
UPPER = 0.95
# Quantiles at which wall time is predicted, to compare with HARP at HARP's own risk.
QUANTILES = (0.51, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, UPPER)
FACTOR = 1.5  # see `voxcast.models.conformal`
BASELINES: Mapping[str, str] = {"constant": "median", "voxels": "voxels"}
RUN_COLUMNS = ("cell_key", "subject", "app", "cpus", "noisy", *TARGETS)


def voxcast_predictions(
    train: pd.DataFrame,
    test: pd.DataFrame,
    *,
    families: Sequence[str] = FAMILIES,
    trials: int = TRIALS,
    seed: int = 0,
    volumes: tuple[np.ndarray, np.ndarray] | None = None,
    local: pd.DataFrame | None = None,
    cache: FoldCache | None = None,
) -> pd.DataFrame:
    """Train voxcast on ``train``, with tuning and calibration, and predict ``test``.

    Parameters
    ----------
    train, test : DataFrame
        Runs of one application.
    volumes : (train, test), optional
        Small volumes, for the network.
    local : DataFrame, optional
        Runs that only tell how fast the machines are in the sittings of ``test``.

    Returns
    -------
    DataFrame
        The columns `RUN_COLUMNS`, ``TARGET_median`` and ``TARGET_upper``, and for each of
        `QUANTILES` the bound of wall time, ``runtime_s_at_QUANTILE``.
    """
    validation = Validation(
        train.reset_index(drop=True),
        None if volumes is None else volumes[0],
        INNER_FOLDS,
        seed,
        cache=cache or FoldCache(),
    )
    leaderboard = learn(validation, families, trials=trials)
    forecaster = fit_forecaster(validation, leaderboard, leaderboard.best, FACTOR)
    if local is not None:
        forecaster = with_local_runs(forecaster, local)
    queries = queries_of(test, None if volumes is None else volumes[1])
    by_quantile = {
        quantile: forecaster.predict(queries, lower_quantile=1 - quantile, upper_quantile=quantile)
        for quantile in QUANTILES
    }
    table = run_columns(test)
    for target in TARGETS:
        for k, name in ((1, "median"), (2, "upper")):
            table[f"{target}_{name}"] = [p.quantiles[target][k] for p in by_quantile[UPPER]]
    for quantile, predictions in by_quantile.items():
        table[f"runtime_s_at_{quantile:g}"] = [p.quantiles["runtime_s"][2] for p in predictions]
    return table.assign(
        chosen=leaderboard.best,
        out_of_range=[bool(p.out_of_range) for p in by_quantile[UPPER]],
        calibrated=[p.calibrated for p in by_quantile[UPPER]],
    )


def with_local_runs(forecaster: Forecaster, local: pd.DataFrame) -> Forecaster:
    """Return a forecaster that knows the speed of machines from runs, as in production.

    Parameters
    ----------
    local : DataFrame
        Runs of one application, of subjects and in sittings that it did not learn from. Those
        that it finds out of range tell nothing.
    """
    if local.empty:
        return forecaster
    speeds = forecaster.speeds
    if speeds is None:
        return forecaster
    for host, runs in local.groupby("host_id", sort=True):
        # Predictions are those at the average speed of the training runs.
        predictions = forecaster.predict(queries_of(runs.drop(columns=["host_id", "sitting"])))
        if residuals := run_residuals(runs.to_dict("records"), predictions):
            speeds = updated(speeds, str(host), residuals)
    return forecaster.with_speeds(speeds)


def baseline_predictions(train: pd.DataFrame, test: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the medians that one of `BASELINES` predicts for ``test``, without bounds."""
    model = point_model.fit(train, None, BASELINES[baseline], {}, "volume", 0)
    logs = point_model.predict_table(model, test, None)
    return run_columns(test).assign(
        **{f"{target}_median": np.exp(logs[:, k]) for k, target in enumerate(TARGETS)}
    )


def harp_predictions(
    train: pd.DataFrame,
    test: pd.DataFrame,
    policy: SelectionPolicy,
    mode: harp.Mode = "corrected",
    *,
    scaled_down: bool = True,
) -> pd.DataFrame | None:
    """Return HARP's wall times, which are its requests too; None where it cannot be fitted.

    Parameters
    ----------
    train : DataFrame
        Scaled-down and full-scale runs.
    policy : {"WTM", "MAE"}
        Rule by which its candidate is selected.
    scaled_down : bool
        False fits its regressors on the full-scale runs alone, see `voxcast.evaluation.harp.fit`.
    """
    columns = _varying_features(train)
    full = (train["scale"] == FULL).to_numpy()
    test_features = test.reindex(columns=columns)
    try:
        fitted = harp.fit(
            train[columns], train["runtime_s"].to_numpy(), full, mode=mode,
            groups=train["subject"].tolist(),
            test=(test_features, test["runtime_s"].to_numpy()) if mode == "code" else None,
            scaled_down=scaled_down,
        )  # fmt: skip
    except TableError:
        return None
    candidate = fitted.chosen(policy)
    walltime_s = fitted.predict(test_features, candidate)
    return run_columns(test).assign(
        runtime_s_median=walltime_s,
        runtime_s_upper=walltime_s,
        chosen=f"{candidate.mix} {candidate.regressor} {candidate.factor:g}",
    )


def harp_custom_predictions(
    train: pd.DataFrame,
    test: pd.DataFrame,
    policy: SelectionPolicy,
    repeated_s: pd.Series,
    count: str,
) -> pd.DataFrame | None:
    """Return the wall times of HARP's custom estimator: a start, and one phase repeated.

    Parameters
    ----------
    repeated_s : Series
        Seconds that each run spent in the repeated phase, by cell key.
    count : str
        Feature with the number of repetitions.
    """
    columns = _varying_features(train)
    full = (train["scale"] == FULL).to_numpy()
    groups = train["subject"].tolist()
    repeated = repeated_s.reindex(train["cell_key"]).to_numpy(dtype=float)
    start_s = np.maximum(train["runtime_s"].to_numpy() - repeated, 1e-3)

    def fit(features: pd.DataFrame, times_s: np.ndarray) -> TimeModel:
        fitted = harp.fit(features[columns], times_s, full, groups=groups)
        candidate = fitted.chosen(policy)
        return lambda table: fitted.predict(table.reindex(columns=columns), candidate)

    phases = (RepeatedPhase("start"), RepeatedPhase("repeated", count))
    spent_s = {"start": start_s, "repeated": np.maximum(repeated, 1e-6)}
    try:
        walltime_s = fit_phases(phases, train, spent_s, fit).predict(test)
    except TableError:
        return None
    return run_columns(test).assign(runtime_s_median=walltime_s, runtime_s_upper=walltime_s)


def pooled(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the predictions of several folds."""
    return pd.concat(tables, ignore_index=True)


def run_columns(test: pd.DataFrame) -> pd.DataFrame:
    """Return what predictions of runs are scored by: identity and measured targets."""
    columns = [*RUN_COLUMNS, *({SPEED_DEVIATION} & set(test.columns))]
    return test[columns].reset_index(drop=True)


def _varying_features(table: pd.DataFrame) -> list[str]:
    return [name for name in feature_names(table) if table[name].nunique() > 1]
