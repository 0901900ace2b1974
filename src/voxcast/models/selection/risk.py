"""How often the bounds of a recipe are exceeded, by nested cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.calibrated_model import calibrate
from voxcast.models.metrics import under_requests
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes

if TYPE_CHECKING:
    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import Validation


@dataclass(frozen=True)
class Risk:
    """How often a target's upper bound was exceeded, by nested cross-validation.

    ``rate`` is the share of subjects and ``interval`` its exact 95 % interval. Of the
    ``exceeded``, ``censored`` had a run that was stopped before it completed: its full time or
    memory is unknown, and counts as above every bound.
    """

    exceeded: int
    subjects: int
    rate: float
    interval: tuple[float, float]
    censored: int = 0


def risks(
    validation: Validation, name: str, params: Params, upper_quantile: float, factor: float
) -> dict[str, Risk]:
    """Evaluate the upper bounds of a recipe by nested cross-validation.

    In every fold the model is fitted and its bounds are calibrated on the training subjects alone,
    by folds within them, and then compared with the held-out subjects. If a fold has too few
    training subjects for calibration, its held-out subjects count as above their bounds, and so do
    subjects with a run that was stopped, wherever they are held out.
    """
    table, targets = validation.table, validation.targets
    actual = table[list(targets)].to_numpy(dtype=float)
    above = np.ones(actual.shape, dtype=bool)
    for train, held_out in validation.folds():
        inner, outer = validation.part(train), validation.part(held_out)
        if inner.table["subject"].nunique() < 2:
            continue
        model = recipes.fit(inner, name, params, "volume")
        out_of_fold = recipes.out_of_fold(inner, name, params, "volume")
        calibrated = calibrate(model, inner.table, out_of_fold, factor, inner.stopped_units)
        queries = queries_of(outer.table, outer.volumes)
        quantiles, _ = calibrated.quantiles(queries, 1 - upper_quantile, upper_quantile)
        above[held_out] = actual[held_out] > quantiles[:, :, 2]
    subjects = table["subject"].astype(str).to_numpy()
    stopped = sorted(validation.stopped_units)
    names = np.array([*subjects, *stopped])
    risk_by_target = {}
    for k, target in enumerate(targets):
        is_above = np.concatenate([above[:, k], np.ones(len(stopped), dtype=bool)])
        exceeded, n, interval = under_requests(is_above, np.zeros(len(names)), names)
        risk_by_target[target] = Risk(exceeded, n, exceeded / n, interval, len(stopped))
    return risk_by_target
