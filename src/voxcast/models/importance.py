"""Importance of features: error after shuffling a feature, and prediction as it grows.

Both are computed on held-out subjects. Columns that carry the same information, such as voxels and
their logarithm, are shuffled and moved together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.features.descriptions import natural, plainest, stem
from voxcast.features.table import feature_names
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.models.families.family import Params
    from voxcast.models.point_model import PointModel
    from voxcast.models.selection.cross_validation import Validation

TARGET = "cpu_s"
SHUFFLES = 3
FEATURES_PER_APP = 3  # features whose dependence is returned
QUANTILES = np.linspace(0.05, 0.95, 7)  # of a feature
RISE_COLUMNS = ["app", "feature", "rise", "runs"]
DEPENDENCE_COLUMNS = ["app", "feature", "quantile", "value", "factor"]


@dataclass(frozen=True)
class Importance:
    """Both tables; see `explain_model`."""

    shuffled: pd.DataFrame
    dependence: pd.DataFrame


@dataclass(frozen=True)
class _HeldOut:
    """A fold's model with the held-out runs."""

    model: PointModel
    app: str
    runs: pd.DataFrame
    volumes: np.ndarray | None

    def log_predictions(self, runs: pd.DataFrame) -> np.ndarray:
        """Return the predicted logarithms of `TARGET` for runs with changed features."""
        logs = self.model.predict(queries_of(runs, self.volumes))
        return logs[:, self.model.targets.index(TARGET)]

    def error(self, runs: pd.DataFrame) -> float:
        """Return the mean absolute relative error."""
        actual = np.log(self.runs[TARGET].to_numpy(dtype=float))
        return float(np.abs(np.exp(self.log_predictions(runs) - actual) - 1).mean())


def explain_model(validation: Validation, name: str, params: Params) -> Importance:
    """Return which features a recipe depends on when it predicts CPU time.

    Returns
    -------
    Importance
        ``shuffled``: ``app feature rise``, the rise of the mean absolute error in percentage
        points; ``dependence``: ``app feature quantile value factor`` for the top features of each
        application, the value in the unit of its quantity, and the mean prediction divided by that
        at the feature's median. Both are empty
        where no feature varies among the held-out runs of any fold.
    """
    rng = np.random.default_rng(validation.seed)
    rises: list[dict[str, object]] = []
    dependence: list[dict[str, object]] = []
    for held_out in _held_out(validation, name, params):
        baseline = held_out.error(held_out.runs)
        for feature, columns in _features(held_out.runs).items():
            rise = _rise(held_out, columns, baseline, rng)
            rises.append(
                {"app": held_out.app, "feature": feature, "rise": rise, "runs": len(held_out.runs)}
            )
            dependence += _dependence(held_out, feature, columns)
    shuffled = _weighted(pd.DataFrame(rises, columns=RISE_COLUMNS), ["app", "feature"], "rise")
    shuffled = shuffled.sort_values(["app", "rise"], ascending=[True, False], ignore_index=True)
    return Importance(
        shuffled,
        _of_first_features(pd.DataFrame(dependence, columns=DEPENDENCE_COLUMNS), shuffled),
    )


def _held_out(validation: Validation, name: str, params: Params) -> Iterator[_HeldOut]:
    for train, held_out in validation.folds():
        model = recipes.fit(validation.part(train), name, params, "volume")
        outer = validation.part(held_out)
        yield _HeldOut(model, str(outer.table["app"].iloc[0]), outer.table, outer.volumes)


def _features(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Return the numeric columns that vary in these runs, by quantity."""
    columns: dict[str, list[str]] = {}
    for name in feature_names(runs):
        if pd.api.types.is_numeric_dtype(runs[name]) and runs[name].nunique() > 1:
            columns.setdefault(stem(name), []).append(name)
    return columns


def _rise(
    held_out: _HeldOut, columns: list[str], baseline: float, rng: np.random.Generator
) -> float:
    """Return the rise of the error, in percentage points, when columns are shuffled."""
    runs, errors = held_out.runs, []
    for _ in range(SHUFFLES):
        order = rng.permutation(len(runs))
        errors.append(
            held_out.error(runs.assign(**{c: runs[c].to_numpy()[order] for c in columns}))
        )
    return float(100 * (np.mean(errors) - baseline))


def _dependence(held_out: _HeldOut, feature: str, columns: list[str]) -> list[dict[str, object]]:
    runs = held_out.runs
    plain = plainest(columns)
    logs = {}
    for quantile in (0.5, *QUANTILES):
        moved = runs.assign(**{c: float(runs[c].quantile(quantile)) for c in columns})
        logs[float(quantile)] = float(held_out.log_predictions(moved).mean())
    return [
        {"app": held_out.app, "feature": feature, "quantile": float(quantile),
         "value": natural(plain, float(runs[plain].quantile(quantile))),
         "factor": float(np.exp(logs[float(quantile)] - logs[0.5]))}
        for quantile in QUANTILES
    ]  # fmt: skip


def _of_first_features(dependence: pd.DataFrame, shuffled: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over folds, for the features of each application with the largest rise."""
    if dependence.empty:
        return dependence
    top = shuffled[shuffled["rise"] > 0].groupby("app").head(FEATURES_PER_APP)
    pairs = set(zip(top["app"], top["feature"], strict=True))
    selected = [
        pair in pairs for pair in zip(dependence["app"], dependence["feature"], strict=True)
    ]
    keys = ["app", "feature", "quantile"]
    groups = dependence[selected].groupby(keys, as_index=False, sort=False)
    return groups[["value", "factor"]].mean()


def _weighted(table: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    """Return the mean over folds, each weighted by its number of runs."""
    weighted = table.assign(weighted=table[value] * table["runs"])
    sums = weighted.groupby(keys, as_index=False)[["weighted", "runs"]].sum()
    means = sums.assign(**{value: sums["weighted"] / sums["runs"]})
    return means[[*keys, value]]
