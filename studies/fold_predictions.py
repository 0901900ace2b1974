"""What voxcast, HARP and the baselines, trained on a fold, predict for its held-out runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.evaluation import harp
from voxcast.evaluation.contenders import FAMILIES, TRIALS, VoxcastContender
from voxcast.features.rows import FULL, SPEED_DEVIATION, feature_names
from voxcast.models import point_model
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from voxcast.evaluation.harp import SelectionPolicy
    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import FoldCache

BASELINES: Mapping[str, str] = {"constant": "median", "voxels": "voxels"}
RUN_COLUMNS = ("cell_key", "subject", "app", "cpus", "noisy", *TARGETS)


def voxcast_predictions(
    train: pd.DataFrame,
    test: pd.DataFrame,
    *,
    families: Sequence[str] = FAMILIES,
    fixed_params: Mapping[str, Params] | None = None,
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
    fixed_params : mapping, optional
        Parameters of families that are not tuned.
    volumes : (train, test), optional
        Small volumes, for the network.
    local : DataFrame, optional
        Runs that only tell how fast the machines are in the sittings of ``test``.

    Returns
    -------
    DataFrame
        The columns `RUN_COLUMNS`, ``chosen``, and those of `VoxcastContender.predict`.
    """
    of_train, of_test = (None, None) if volumes is None else volumes
    contender = VoxcastContender(
        train, families, seed, cache, trials=trials, fixed_params=fixed_params, volumes=of_train
    )
    answers = contender.predict(test, test.head(0) if local is None else local, of_test)
    answers = answers.reset_index(drop=True)
    return pd.concat([run_columns(test), answers], axis=1).assign(chosen=contender.family)


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
            train[columns], train["runtime_s"].to_numpy(), full,
            groups=train["subject"].tolist(), scaled_down=scaled_down,
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
    counts, new_counts = (table[count].to_numpy(dtype=float) for table in (train, test))
    if not ((counts > 0).all() and (new_counts > 0).all()):
        return None
    repeated = repeated_s.reindex(train["cell_key"]).to_numpy(dtype=float)
    start = np.maximum(train["runtime_s"].to_numpy() - repeated, 1e-3)
    parts_s = []
    for times_s in (start, np.maximum(repeated, 1e-6) / counts):
        try:
            fitted = harp.fit(train[columns], times_s, full, groups=train["subject"].tolist())
        except TableError:
            return None
        parts_s.append(fitted.predict(test.reindex(columns=columns), fitted.chosen(policy)))
    walltime_s = parts_s[0] + new_counts * parts_s[1]
    return run_columns(test).assign(runtime_s_median=walltime_s, runtime_s_upper=walltime_s)


def pooled(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the predictions of several folds."""
    return pd.concat(tables, ignore_index=True)


def run_columns(test: pd.DataFrame) -> pd.DataFrame:
    """Return what predictions of runs are scored by: identity and measured targets."""
    columns = [*RUN_COLUMNS, *({SPEED_DEVIATION} & set(test.columns))]
    return test[columns].reset_index(drop=True)


def _varying_features(table: pd.DataFrame) -> list[str]:
    return [name for name in feature_names(table) if table[name].nunique() > 1]
