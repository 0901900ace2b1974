"""Recipes fitted on all runs: point models, calibrated models, and the trends they continue.

A recipe is the name and the parameters of a family, or of a blend of several: ``members``, each
with its own parameters, and ``weights``.

For the trend beyond the range of the training runs, those that lie farthest up are held out, and
the family is taken whose trend predicts them best. Of a table a trend is continued only if they
are then predicted better than by the model at the edge of the range. Of images sizes drive the
work, so one of the trends is continued in any case: where the images are too few to hold out the
outermost, that of the additive law. On the recorded history it errs less at four to five times
the size than the trend of the family that is best within the range of 5 to 12 subjects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import PREFIX
from voxcast.features.rows import CONTENT, rows_of
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES, Params
from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.out_of_range import ALLOCATION, TrainingRange, changes, paths_of
from voxcast.models.point_model import (
    INPUT_LEVELS,
    blend,
    queries_of,
    regressed,
    weighted_mean,
    weights_of,
)
from voxcast.models.selection.leaderboard import LAW, SIZE_BASELINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.forecaster import CalibratedModel
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard


def is_blend(params: Params) -> bool:
    """Whether parameters describe a blend."""
    return set(params) == {"members", "weights"}


def can_be_fitted(name: str, params: Params) -> bool:
    """Whether this release has the family, or all members, with exactly these parameters.

    Examples
    --------
    >>> can_be_fitted("mlp", {"units": 16, "layers": 1, "alpha": 1.0})
    True
    >>> can_be_fitted("mlp", {"units": 16, "layers": 1, "solver": "adam"})
    False
    """
    if is_blend(params):
        return all(can_be_fitted(n, member) for n, member in params["members"].items())
    return name in FAMILIES and set(params) == set(FAMILIES[name].defaults)


def fit(
    validation: Validation,
    name: str,
    params: Params,
    input_level: InputLevel,
    fitted: Mapping[str, PointModel] | None = None,
) -> PointModel:
    """Fit a recipe on all runs of a validation; see `voxcast.models.point_model.fit`.

    Parameters
    ----------
    fitted : mapping, optional
        Families already fitted on these runs, by name.
    """
    fitted_models = fitted or {}

    def single(family: str, family_params: Params) -> PointModel:
        if family in fitted_models:
            return fitted_models[family]
        return point_model.fit(
            validation.table, validation.volumes, family, family_params, input_level,
            validation.seed, validation.targets, validation.speeds, validation.stopped,
        )  # fmt: skip

    if not is_blend(params):
        return single(name, params)
    members = {member: single(member, p) for member, p in params["members"].items()}
    return blend(name, members, weights_of(params))


def out_of_fold(
    validation: Validation, name: str, params: Params, input_level: InputLevel
) -> np.ndarray:
    """Return the out-of-fold predictions of a recipe, see `Validation.out_of_fold`."""
    if not is_blend(params):
        return validation.out_of_fold(name, params, input_level)
    members = {
        member: validation.out_of_fold(member, member_params, input_level)
        for member, member_params in params["members"].items()
    }
    return weighted_mean(members, weights_of(params))


def fit_calibrated(
    validation: Validation,
    leaderboard: Leaderboard,
    name: str,
    factor: float,
    input_level: InputLevel | None = None,
    fitted: dict[str, PointModel] | None = None,
) -> CalibratedModel:
    """Fit a family or an ensemble on all runs, with its bounds and without a trend.

    Parameters
    ----------
    factor : float
        See `voxcast.models.conformal.Calibrator`.
    input_level : {"header", "volume"}, optional
        By default as in the tuning.
    fitted : dict, optional
        Families already fitted on these runs, by name; a family fitted here is added.
    """
    level = input_level or leaderboard.input_level
    model = fit(validation, name, leaderboard.params[name], level, fitted)
    if fitted is not None and len(model.members) == 1:
        fitted[name] = model
    out_of_fold = leaderboard.out_of_fold[level][name]
    return calibrate(model, validation.table, out_of_fold, factor, validation.stopped_units)


def fit_forecaster(
    validation: Validation, leaderboard: Leaderboard, name: str, factor: float
) -> Forecaster:
    """Fit the forecaster of one family or ensemble; see `fit_forecasters`."""
    ((_, forecaster),) = fit_forecasters(validation, leaderboard, [name], factor)
    return forecaster


def fit_forecasters(
    validation: Validation, leaderboard: Leaderboard, names: Sequence[str], factor: float
) -> Iterator[tuple[str, Forecaster]]:
    """Yield each name with its calibrated forecaster, for every input level of the leaderboard.

    All share one trend per input level, and no family is fitted twice.
    """
    levels = [level for level in INPUT_LEVELS if level in leaderboard.out_of_fold]
    trends = {level: fit_trend(validation, leaderboard, None, level) for level in levels}
    fitted: dict[InputLevel, dict[str, PointModel]] = {level: {} for level in levels}
    for name in names:
        models: dict[InputLevel, CalibratedModel] = {}
        for level in levels:
            model = fit_calibrated(
                validation,
                leaderboard,
                leaderboard.name_at(name, level),
                factor,
                level,
                fitted[level],
            )
            models[level] = replace(model, trend=trends[level])
        yield name, Forecaster(models)


OUTER_SHARE = 0.2  # of the runs
LARGEST_SHARE = 0.5  # more runs of the same values are not held out
MAX_ROWS = 3000  # of the test: more cost time and change little
MIN_OUTER_ROWS = 5  # out of range, needed to judge beyond the range
SHORTEST = 0.1  # logarithm of the distance from which a row counts as beyond the rest

Recipe = tuple[str, Params]  # a family and its parameters


def fit_trend(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None = None,
    input_level: InputLevel = "header",
) -> PointModel | None:
    """Return the model whose trend is continued, fitted on all runs.

    Parameters
    ----------
    columns : Columns or None
        Of a table; None for images.

    Returns
    -------
    PointModel or None
        None if no family continues a trend, or of a table if the model at the edge of the range
        predicts the outermost rows best.
    """
    recipe = choose_trend(validation.sampled(MAX_ROWS), leaderboard, columns, input_level)
    return None if recipe is None else fit(validation, *recipe, input_level)


def choose_trend(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None = None,
    input_level: InputLevel = "header",
) -> Recipe | None:
    """Return the recipe of the best trend, or None, see `fit_trend`."""
    metrics = leaderboard.metrics[input_level]
    # Without a volume the network is not evaluated.
    errors_within = {n: metrics[n]["objective"] for n in leaderboard.tuned if n in metrics}
    tried = _tried(validation, leaderboard, columns, input_level)
    if tried:
        smallest = min((errors for errors, _ in tried), key=np.mean)
        # Of the families that differ by chance, the family that is best within the range.
        _, recipe = min(
            (entry for entry in tried if _is_chance(entry[0] - smallest)),
            key=lambda entry: (errors_within[entry[1][0]], entry[0].mean()),
        )
        return recipe
    with_trend = [n for n in errors_within if FAMILIES[n].extrapolates or n == SIZE_BASELINE]
    if columns is not None or not with_trend:
        return None
    name = LAW if LAW in with_trend else min(with_trend, key=errors_within.__getitem__)
    return name, leaderboard.params[name]


def _tried(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None,
    input_level: InputLevel,
) -> list[tuple[np.ndarray, Recipe]]:
    """Return the trends that predict outermost runs well enough, with their errors beyond."""
    is_outer = outermost(validation.table, columns, input_level)
    inner, outer = (validation.part(np.flatnonzero(mask)) for mask in (~is_outer, is_outer))
    if outer.table.empty or inner.table.empty:
        return []
    name = leaderboard.chosen[input_level]
    inside = fit(inner, name, leaderboard.params[name], input_level)
    paths = paths_of(inside.range, queries_of(outer.table, outer.volumes), columns)
    beyond = [n for n, path in enumerate(paths) if path.distance > SHORTEST]
    if len(beyond) < MIN_OUTER_ROWS:
        return []
    missed = outer.actual() - inside.predict([path.edge for path in paths])
    measured = [validation.targets.index(target) for target in regressed(validation.targets)]

    def errors_of(change: np.ndarray | float) -> np.ndarray:
        return np.asarray(np.abs(missed - change)[:, measured].mean(axis=1)[beyond])

    tried = []
    for name, tuned in leaderboard.tuned.items():
        defaults = FAMILIES[name].defaults
        for params in (tuned,) if tuned == defaults else (tuned, defaults):
            if FAMILIES[name].extrapolates and name in leaderboard.metrics[input_level]:
                model = fit(inner, name, params, input_level)
                errors = errors_of(changes(model, paths))
                if columns is None or not _is_chance(errors_of(0.0) - errors):
                    tried.append((errors, (name, params)))
    return tried


def _is_chance(gains: np.ndarray) -> bool:
    """Whether the mean gain of the outermost runs is within its standard error."""
    return bool(gains.mean() <= gains.std(ddof=1) / len(gains) ** 0.5)


def outermost(
    table: pd.DataFrame, columns: Columns | None, input_level: InputLevel = "header"
) -> np.ndarray:
    """Return a mask of the runs that are among the largest in any column.

    The columns of a table are the ones with a logarithm, or all numbers where there are none; of
    images the sizes that decide the work. Runs of equal values stay together.

    Returns
    -------
    ndarray of bool, shape (n_rows,)
    """
    if columns is not None:
        names = [f"{PREFIX}{name}" for name in columns.logs or columns.numbers]
    else:
        # An allocation is not at the end of a range of sizes.
        others = (ALLOCATION,) if input_level == "volume" else (ALLOCATION, CONTENT)
        ranges = TrainingRange.fit(rows_of(table), content=input_level == "volume").numbers
        names = [n for n, (low, high) in ranges.items() if low < high and not n.startswith(others)]
    if not names:
        return np.zeros(len(table), dtype=bool)
    # A share of the rows that are not larger: the many rows of a largest value are not outermost.
    ranks = table[names].rank(method="min", pct=True).max(axis=1).fillna(0).to_numpy()
    mask: np.ndarray = ranks >= np.quantile(ranks, 1 - OUTER_SHARE)
    return mask if mask.mean() <= LARGEST_SHARE else np.zeros(len(table), dtype=bool)
