"""The extrapolator: the model for queries that are out of range, and its bounds.

Cross-validation holds out typical subjects and favours models of many features. Out of range such
a model can be far off. The extrapolator is therefore selected by its error on the subjects at the
ends of the range, after training on those inside, side by side
(`voxcast.models.outer_subjects`); and its bounds are calibrated on the same subjects, which they
are to hold for: on each side with the recipe that was best on the other sides, so that a recipe
is not selected by the residuals that calibrate it. Each side has its own bounds
(`voxcast.models.side`), since a law may bend at one end only. A model that was too high past the
end of some may be too low past the end of all: errors count with either sign. They are never
called calibrated, since the next query may lie farther out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.distance import distances
from voxcast.models.families.family import family
from voxcast.models.out_of_fold import run_errors
from voxcast.models.outer_subjects import OUTERMOST, sides
from voxcast.models.query import queries_of
from voxcast.models.selection.family_choice import SIZE_BASELINE, choose_family
from voxcast.models.side import Side, growth_with_distance, widths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.models.calibrated_model import CalibratedModel
    from voxcast.models.families.family import Params
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.cross_validation import Validation

    Recipe = tuple[str, Params]


@dataclass(frozen=True, eq=False)
class _OuterRuns:
    """The held-out runs of one side, and the predictions of each recipe for them.

    ``log_predictions`` has the shape (recipes, n, targets), ``errors`` (recipes,), and
    ``lengths``, the distances past the end of the remaining runs, (n,).
    """

    positions: np.ndarray
    log_predictions: np.ndarray
    errors: np.ndarray
    lengths: np.ndarray


def fit_extrapolator(
    validation: Validation,
    params_by_family: Mapping[str, Params],
    factor: float,
    input_level: InputLevel = "volume",
) -> CalibratedModel | None:
    """Return the model for queries that are out of range, with its bounds.

    Parameters
    ----------
    params_by_family : mapping of str to dict
        Tuned parameters. For families that extrapolate, the defaults are tried too.
    factor : float
        See `voxcast.models.conformal.Calibrator`.

    Returns
    -------
    CalibratedModel or None
        None if no family extrapolates.
    """
    recipes = _recipes(params_by_family)
    if not recipes:
        return None
    by_side = _predicted_sides(validation, recipes, input_level)
    table, seed, targets = validation.table, validation.seed, validation.targets
    if not by_side:
        # The subjects are too few to hold out the outermost: the bounds are calibrated on all.
        recipe = _cross_validated(validation, params_by_family, input_level)
        model = point_model.fit(
            table, None, *recipe, input_level, seed, targets, validation.speeds,
            validation.stopped,
        )  # fmt: skip
        out_of_fold = validation.out_of_fold(*recipe, input_level)
        calibrated = calibrate(
            model, table, out_of_fold, factor, validation.stopped_units, either_sign=True
        )
        return replace(calibrated, sides={})
    model = point_model.fit(
        table, None, *recipes[_best([*by_side.values()])], input_level, seed, targets,
        validation.speeds, validation.stopped,
    )  # fmt: skip
    log_predictions = {
        name: side.log_predictions[_best([s for s in by_side.values() if s is not side] or [side])]
        for name, side in by_side.items()
    }
    actual = validation.actual()

    def of_side(name: str) -> Side:
        outer, logs = by_side[name], log_predictions[name]
        runs = table.iloc[outer.positions]
        errors = np.abs(actual[outer.positions] - logs)
        growth = {
            target: growth_with_distance(errors[:, k], outer.lengths, runs["subject"].tolist())
            for k, target in enumerate(targets)
        }
        calibrated = calibrate(
            model, runs, logs, factor, validation.stopped_units,
            widths=widths(outer.lengths, growth, targets), either_sign=True,
        )  # fmt: skip
        return Side(calibrated.calibrators, growth, float(outer.lengths.max()))

    positions = np.concatenate([side.positions for side in by_side.values()])
    pooled = np.concatenate([*log_predictions.values()])
    calibrated = calibrate(
        model, table.iloc[positions], pooled, factor, validation.stopped_units, either_sign=True
    )
    return replace(
        calibrated, sides={name: of_side(name) for name in by_side if name != OUTERMOST}
    )


def choose(
    validation: Validation,
    params_by_family: Mapping[str, Params],
    input_level: InputLevel = "volume",
) -> Recipe | None:
    """Return family and parameters with the smallest error on the outermost subjects.

    With too few subjects for that it is chosen as the best model is, by the errors of
    cross-validation; the line in voxels is then the baseline.
    """
    recipes = _recipes(params_by_family)
    if not recipes:
        return None
    by_side = _predicted_sides(validation, recipes, input_level)
    if not by_side:
        return _cross_validated(validation, params_by_family, input_level)
    return recipes[_best([*by_side.values()])]


def _recipes(params_by_family: Mapping[str, Params]) -> list[Recipe]:
    recipes: list[Recipe] = []
    for name, tuned in params_by_family.items():
        if family(name).extrapolates:
            tried = ((name, params) for params in (tuned, family(name).defaults))
            recipes += [recipe for recipe in tried if recipe not in recipes]
    return recipes


def _predicted_sides(
    validation: Validation, recipes: Sequence[Recipe], input_level: InputLevel
) -> dict[str, _OuterRuns]:
    return {
        name: _predicted(validation, recipes, input_level, name, mask)
        for name, mask in sides(validation.table, input_level).items()
    }


def _predicted(
    validation: Validation,
    recipes: Sequence[Recipe],
    input_level: InputLevel,
    name: str,
    mask: np.ndarray,
) -> _OuterRuns:
    positions = np.flatnonzero(mask)
    table, targets = validation.table, validation.targets
    queries = queries_of(table.iloc[positions])
    inner = replace(validation, volumes=None).part(np.flatnonzero(~mask))
    models = [
        point_model.fit(
            inner.table,
            None,
            *recipe,
            input_level,
            inner.seed,
            targets,
            inner.speeds,
            inner.stopped,
        )
        for recipe in recipes
    ]
    log_predictions = np.stack([model.predict(queries) for model in models])
    actual = validation.actual()[positions]
    errors = [run_errors(actual, logs, targets).mean() for logs in log_predictions]
    lengths = np.array([d.by_side.get(name, 0.0) for d in distances(models[0], queries)])
    return _OuterRuns(positions, log_predictions, np.array(errors), lengths)


def _best(by_side: Sequence[_OuterRuns]) -> int:
    """Return the number of the recipe with the smallest mean error over all sides."""
    return int(np.argmin(np.mean([side.errors for side in by_side], axis=0)))


def _cross_validated(
    validation: Validation, params_by_family: Mapping[str, Params], input_level: InputLevel
) -> Recipe:
    actual = validation.actual()
    errors = {
        name: run_errors(
            actual, validation.out_of_fold(name, params, input_level), validation.targets
        )
        for name, params in params_by_family.items()
        if family(name).extrapolates or name == SIZE_BASELINE
    }
    name = choose_family(errors, validation.table["subject"].tolist()).name
    return name, params_by_family[name]
