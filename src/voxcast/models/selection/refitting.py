"""Refitting of selected recipes on all runs: calibrated forecasters with trends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.point_model import INPUT_LEVELS
from voxcast.models.selection import recipes
from voxcast.models.trend import fit_trend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.models.forecaster import CalibratedModel
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard


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
    model = recipes.fit(validation, name, leaderboard.params[name], level, fitted)
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
