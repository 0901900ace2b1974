"""The extrapolator: the model for queries that are out of range.

Cross-validation holds out typical subjects and favours models of many features. Out of range such
a model can be far off. The extrapolator is therefore selected by its error on the subjects that
are least like the others, after training on those others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.features.table import rows_of
from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.family import family
from voxcast.models.out_of_fold import objective, run_errors
from voxcast.models.selection.family_choice import SIZE_BASELINE, choose_family

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.models.calibrated_model import CalibratedModel
    from voxcast.models.families.family import Params
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.cross_validation import Validation

OUTER_SHARE = 0.2  # of the subjects of each application
MINIMUM_SUBJECTS = 10  # with fewer, the outermost hardly differ from the others


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
    recipe = choose(validation, params_by_family, input_level)
    if recipe is None:
        return None
    table, seed, targets = validation.table, validation.seed, validation.targets
    model = point_model.fit(table, None, *recipe, input_level, seed, targets)
    out_of_fold = validation.out_of_fold(*recipe, input_level)
    return calibrate(model, table, out_of_fold, factor, validation.censored)


def choose(
    validation: Validation,
    params_by_family: Mapping[str, Params],
    input_level: InputLevel = "volume",
) -> tuple[str, Params] | None:
    """Return family and parameters with the smallest error on the outermost subjects.

    With too few subjects for that it is chosen as the best model is, by the errors of
    cross-validation; the line in voxels is then the baseline.
    """
    recipes: list[tuple[str, Params]] = []
    for name, tuned in params_by_family.items():
        if family(name).extrapolates:
            tried = ((name, params) for params in (tuned, family(name).defaults))
            recipes += [recipe for recipe in tried if recipe not in recipes]
    if not recipes:
        return None
    outer = outermost(validation.table, input_level)
    if not outer.any():
        return _cross_validated(validation, params_by_family, input_level)
    inner, held_out = (validation.part(np.flatnonzero(mask)) for mask in (~outer, outer))

    def error(recipe: tuple[str, Params]) -> float:
        model = point_model.fit(
            inner.table, None, *recipe, input_level, validation.seed, validation.targets
        )
        predictions = point_model.predict_table(model, held_out.table, None)
        return objective(held_out.actual(), predictions, validation.targets)

    return min(recipes, key=error)


def _cross_validated(
    validation: Validation, params_by_family: Mapping[str, Params], input_level: InputLevel
) -> tuple[str, Params]:
    actual = validation.actual()
    errors = {
        name: run_errors(
            actual,
            validation.out_of_fold(name, params, input_level).log_predictions,
            validation.targets,
        )
        for name, params in params_by_family.items()
        if family(name).extrapolates or name == SIZE_BASELINE
    }
    name = choose_family(errors, validation.table["subject"].tolist()).name
    return name, params_by_family[name]


def outermost(table: pd.DataFrame, input_level: InputLevel = "volume") -> np.ndarray:
    """Return a mask of the runs of subjects least like the others, by application.

    The measure is the mean distance of a subject's features from their means, in standard
    deviations. No run is selected for applications with fewer than `MINIMUM_SUBJECTS`.

    Returns
    -------
    ndarray of bool, shape (n_runs,)
    """
    apps = table["app"].to_numpy() if "app" in table else np.zeros(len(table))
    is_outer = np.zeros(len(table), dtype=bool)
    for app in pd.unique(apps):
        indices = np.flatnonzero(apps == app)
        subjects = table["subject"].iloc[indices]
        if subjects.nunique() < MINIMUM_SUBJECTS:
            continue
        rows = rows_of(table.iloc[indices])
        x = Encoder.fit(rows, content=input_level == "volume").transform(rows)
        sd = x.std(axis=0)
        distances = np.abs(x - x.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
        by_subject = pd.Series(distances.mean(axis=1)).groupby(subjects.to_numpy()).mean()
        outer = by_subject.nlargest(round(OUTER_SHARE * len(by_subject))).index
        is_outer[indices] = subjects.isin(set(outer)).to_numpy()
    return is_outer
