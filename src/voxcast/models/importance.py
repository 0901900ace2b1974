"""What a model goes by: error when a feature is shuffled, and the answer as a feature grows.

Both are looked at on runs whose subjects the model had not seen. Columns that say the same, as
voxels and their logarithm, are shuffled and moved together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.features.table import feature_names
from voxcast.models import point_model
from voxcast.models.explanation import stem
from voxcast.models.selection import recipes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.models.families.zoo import Params
    from voxcast.models.point_model import PointModel
    from voxcast.models.selection.blends import Blend
    from voxcast.models.selection.cross_validation import Validation

TARGET = "cpu_s"
SHUFFLES = 3
SHOWN = 3  # features of each application whose dependence is looked at
QUANTILES = np.linspace(0.05, 0.95, 7)  # quantiles of a feature


@dataclass(frozen=True)
class Importance:
    """Both tables; see `explain_model`."""

    shuffled: pd.DataFrame
    dependence: pd.DataFrame


def explain_model(validation: Validation, name: str, params: Params) -> Importance:
    """Return what a recipe goes by when it predicts CPU time.

    Returns
    -------
    Importance
        ``shuffled``: ``app feature rise``, by how many percentage points the mean absolute error
        rises; ``dependence``: ``app feature quantile value factor`` for the first features of each
        application, the mean answer over that at the feature's median.
    """
    rng = np.random.default_rng(validation.seed)
    rises: list[dict[str, object]] = []
    answers: list[dict[str, object]] = []
    for train, held_out in validation.folds():
        seen, new = validation.part(train), validation.part(held_out)
        model = recipes.fit(
            seen.table, seen.volumes, name, params, "volume", validation.seed, validation.targets
        )
        for app, at in _by_app(new.table):
            own = new.table.iloc[at].reset_index(drop=True)
            cubes = None if new.volumes is None else new.volumes[at]
            actual = np.log(own[TARGET].to_numpy(dtype=float))
            plain = _error(actual, _said(model, own, cubes))
            for feature, columns in _features(own).items():
                errors = []
                for _ in range(SHUFFLES):
                    order = rng.permutation(len(own))
                    mixed = own.assign(**{c: own[c].to_numpy()[order] for c in columns})
                    errors.append(_error(actual, _said(model, mixed, cubes)))
                rises.append(
                    {"app": app, "feature": feature, "rise": 100 * (np.mean(errors) - plain),
                     "runs": len(own)}
                )  # fmt: skip
                answers += _answers(model, own, cubes, app, feature, columns)
    shuffled = _weighted(pd.DataFrame(rises), ["app", "feature"], "rise")
    shuffled = shuffled.sort_values(["app", "rise"], ascending=[True, False], ignore_index=True)
    first = shuffled[shuffled["rise"] > 0].groupby("app").head(SHOWN)
    chosen = set(zip(first["app"], first["feature"], strict=True))
    every = pd.DataFrame(answers)
    if len(every):
        kept = [pair in chosen for pair in zip(every["app"], every["feature"], strict=True)]
        groups = every[kept].groupby(["app", "feature", "quantile"], as_index=False, sort=False)
        every = groups[["value", "factor"]].mean()
    return Importance(shuffled, every)


def _by_app(table: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    apps = table["app"].to_numpy()
    for app in sorted(set(apps)):
        yield str(app), np.flatnonzero(apps == app)


def _features(own: pd.DataFrame) -> dict[str, list[str]]:
    """Return the columns of numbers that vary here, by what they are about."""
    found: dict[str, list[str]] = {}
    for name in feature_names(own):
        if pd.api.types.is_numeric_dtype(own[name]) and own[name].nunique() > 1:
            found.setdefault(stem(name), []).append(name)
    return found


def _answers(
    model: PointModel | Blend,
    own: pd.DataFrame,
    cubes: np.ndarray | None,
    app: str,
    feature: str,
    columns: list[str],
) -> list[dict[str, object]]:
    shown = min(columns, key=lambda name: ("log" in name, name))
    logs = {}
    for quantile in (0.5, *QUANTILES):
        moved = own.assign(**{c: float(own[c].quantile(quantile)) for c in columns})
        logs[float(quantile)] = float(_said(model, moved, cubes).mean())
    return [
        {"app": app, "feature": feature, "quantile": float(quantile),
         "value": float(own[shown].quantile(quantile)),
         "factor": float(np.exp(logs[float(quantile)] - logs[0.5]))}
        for quantile in QUANTILES
    ]  # fmt: skip


def _said(model: PointModel | Blend, own: pd.DataFrame, cubes: np.ndarray | None) -> np.ndarray:
    at = model.targets.index(TARGET)
    logs: np.ndarray = point_model.predict_table(model, own, cubes)[:, at]
    return logs


def _error(actual: np.ndarray, said: np.ndarray) -> float:
    return float(np.abs(np.exp(said - actual) - 1).mean())


def _weighted(table: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    """Return the mean of folds, each counting as its runs."""
    total = table.assign(weighed=table[value] * table["runs"])
    own = total.groupby(keys, as_index=False)[["weighed", "runs"]].sum()
    means = own.assign(**{value: own["weighed"] / own["runs"]})
    return means[[*keys, value]]
