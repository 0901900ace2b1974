"""What answers beyond the data: the model that holds best where the data end.

Cross-validation asks about subjects among the others, and there a model of many features wins.
Off the beaten track such a model can be far out, so who answers there is chosen by asking about
the subjects least like the others, after learning from the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.features.table import rows_of
from voxcast.models import point_model
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.zoo import family
from voxcast.models.forecaster import calibrate
from voxcast.models.selection.cross_validation import objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.models.families.zoo import Params
    from voxcast.models.forecaster import CalibratedModel
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.cross_validation import Validation

OUTER = 0.2  # of the subjects of each application
FEWEST = 10  # subjects, for there to be a middle


def fit_extrapolator(
    validation: Validation,
    found: Mapping[str, Params],
    factor: float,
    input_level: InputLevel = "volume",
) -> CalibratedModel | None:
    """Return what answers runs unlike all that were measured, with its bounds.

    Parameters
    ----------
    found : mapping of str to dict
        Tuned parameters by family; of those that extrapolate, the defaults are tried too.
    factor : float
        See `voxcast.models.conformal.Calibrator`.

    Returns
    -------
    CalibratedModel or None
        None if no family extrapolates.
    """
    chosen = choose(validation, found, input_level)
    if chosen is None:
        return None
    name, params = chosen
    own = validation
    model = point_model.fit(own.table, None, name, params, input_level, own.seed, own.targets)
    said = own.out_of_fold(name, params, input_level)
    return calibrate(model, own.table, said, factor, own.censored)


def choose(
    validation: Validation, found: Mapping[str, Params], input_level: InputLevel = "volume"
) -> tuple[str, Params] | None:
    """Return the family that extrapolates, and its parameters, with the smallest error far out."""
    tried: list[tuple[str, Params]] = []
    for name, tuned in found.items():
        if family(name).extrapolates:
            tried += [(name, p) for p in (tuned, family(name).defaults) if (name, p) not in tried]
    outer = outermost(validation.table, input_level)
    if len(tried) < 2 or not outer.any():
        return tried[0] if tried else None
    inner, asked = (validation.part(np.flatnonzero(at)) for at in (~outer, outer))

    def error(one: tuple[str, Params]) -> float:
        fitted = point_model.fit(
            inner.table, None, *one, input_level, validation.seed, validation.targets
        )
        said = point_model.predict_table(fitted, asked.table, None)
        return objective(asked.actual(), said, validation.targets)

    return min(tried, key=error)


def outermost(table: pd.DataFrame, input_level: InputLevel = "volume") -> np.ndarray:
    """Return which runs are of the subjects least like the others, by application.

    The measure is the mean distance of a subject's features from their means, in standard
    deviations. No run is chosen where there are fewer than `FEWEST` subjects.

    Returns
    -------
    ndarray of bool, shape (n_runs,)
    """
    apps = table["app"].to_numpy() if "app" in table else np.zeros(len(table))
    chosen = np.zeros(len(table), dtype=bool)
    for app in pd.unique(apps):
        at = np.flatnonzero(apps == app)
        own = table.iloc[at]
        if own["subject"].nunique() < FEWEST:
            continue
        rows = rows_of(own)
        x = Encoder.fit(rows, content=input_level == "volume").transform(rows)
        sd = x.std(axis=0)
        far = np.abs(x - x.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
        by_subject = pd.Series(far.mean(axis=1)).groupby(own["subject"].to_numpy()).mean()
        names = by_subject.nlargest(round(OUTER * len(by_subject))).index
        chosen[at] = own["subject"].isin(set(names)).to_numpy()
    return chosen
