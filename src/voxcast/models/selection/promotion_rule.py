"""The rule of first registration and of promotion to champion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.calibrated_model import calibrate
from voxcast.models.metrics import under_requests
from voxcast.models.point_model import log_targets
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.families.family import Params
    from voxcast.models.out_of_fold import OutOfFold
    from voxcast.models.selection.cross_validation import Validation


@dataclass(frozen=True)
class Risk:
    """How often a target's upper bound was exceeded, by nested cross-validation.

    ``rate`` is the share of subjects, ``interval`` its exact 95 % interval, and ``app`` the
    application with the highest rate.
    """

    exceeded: int
    subjects: int
    rate: float
    interval: tuple[float, float]
    app: str = ""


@dataclass(frozen=True)
class Decision:
    """Whether the challenger becomes champion, and why; part of the receipt."""

    promote: bool
    reason: str
    detail: str


def risks(
    validation: Validation, name: str, params: Params, upper_quantile: float, factor: float
) -> dict[str, Risk]:
    """Evaluate the upper bounds of a recipe by nested cross-validation.

    In every fold the model is fitted and its bounds are calibrated on the training subjects alone,
    by folds within them, and then compared with the held-out subjects. If a fold has too few
    training subjects for calibration, its held-out subjects count as above their bounds. Bounds
    are calibrated by application, so the risk is counted by application; the worst is returned.
    """
    table, targets = validation.table, validation.targets
    actual = validation.actual()
    apps = np.array([str(a) for a in table["app"]] if "app" in table else [""] * len(table))
    above = np.ones(actual.shape, dtype=bool)
    for train, held_out in validation.folds():
        inner, outer = validation.part(train), validation.part(held_out)
        if inner.table["subject"].nunique() < 2:
            continue
        model = recipes.fit(inner, name, params, "volume")
        out_of_fold = recipes.out_of_fold(inner, name, params, "volume")
        calibrated = calibrate(model, inner.table, out_of_fold, factor, inner.censored)
        queries = queries_of(outer.table, outer.volumes)
        logs, spread = model.predict(queries), model.spread(queries)
        for k, target in enumerate(targets):
            calibrator = calibrated.calibrators[target]
            offsets = np.array(
                [
                    calibrator.offsets(app, 1 - upper_quantile, upper_quantile)[1]
                    for app in apps[held_out]
                ]
            )
            above[held_out, k] = actual[held_out, k] > logs[:, k] + offsets * spread[:, k, 1]
    subjects = table["subject"].to_numpy()
    risk_by_target = {}
    for k, target in enumerate(targets):
        by_app = [_risk(above[apps == a, k], subjects[apps == a], a) for a in np.unique(apps)]
        risk_by_target[target] = max(by_app, key=lambda risk: risk.rate)
    return risk_by_target


def _risk(above: np.ndarray, subjects: np.ndarray, app: str) -> Risk:
    exceeded, n, interval = under_requests(above, np.zeros(len(above)), subjects)
    return Risk(exceeded, n, exceeded / n, interval, app)


def subject_errors(table: pd.DataFrame, out_of_fold: OutOfFold) -> pd.Series:
    """Return each subject's mean absolute logarithmic error over CPU time and memory."""
    errors = np.abs(log_targets(table) - out_of_fold.log_predictions)
    means = (errors[:, 0] + errors[:, 2]) / 2
    return table.assign(error=means).groupby("subject")["error"].mean()


@dataclass(frozen=True)
class Rival:
    """The current champion compared with a challenger.

    Attributes
    ----------
    readable : bool
        Its files have the format of this release; otherwise it cannot answer.
    same_recipe : bool
        It has the challenger's family and parameters.
    same_model : bool
        Its files and its catalogue are identical to the challenger's.
    more_subjects : bool
        It was trained on more subjects of the same image set.
    errors : Series or None
        By subject, from `subject_errors` on the challenger's folds; None if this release cannot
        fit its recipe.
    """

    readable: bool
    same_recipe: bool
    same_model: bool
    more_subjects: bool
    errors: pd.Series | None


def decide(
    challenger: pd.Series,
    champion: Rival | None,
    challenger_risks: Mapping[str, Risk],
    max_under_request: float,
) -> Decision:
    """Apply the rule of promotion.

    On an empty registry the best model by cross-validation is registered, even a baseline, and so
    it is if this release cannot load the champion. Otherwise a challenger must not have learned
    from fewer subjects of the same image set, and it is promoted when it is the champion's recipe
    fitted anew, or when its error over the same subjects is lower than the champion's (its recipe
    fitted on the same folds); in both cases only if no target's under-request rate reaches
    ``max_under_request``.

    Parameters
    ----------
    challenger : Series
        Errors by subject, from `subject_errors`.
    champion : Rival or None
        The current champion.
    challenger_risks : mapping of str to Risk
        Risks by target.
    max_under_request : float
        Limit of the share of subjects above their upper bound.
    """
    if champion is None:
        return Decision(True, "first", "the registry had no champion")
    if not champion.readable:
        detail = "the champion was saved by another release, which this one cannot load"
        return Decision(True, "champion_unreadable", detail)
    if champion.same_model:
        return Decision(False, "unchanged", "the champion is the same model")
    if champion.more_subjects:
        return Decision(False, "fewer_subjects", "the champion was trained on more subjects")
    reason, detail = "refitted", "the champion's family and parameters, refitted"
    if champion.errors is None:
        reason, detail = "champion_unjudgeable", "the champion's recipe is of another release"
    elif not champion.same_recipe:
        reason = "better"
        detail = f"mean log error {challenger.mean():.4f} against {champion.errors.mean():.4f}"
        if float((champion.errors - challenger).mean()) <= 0:
            return Decision(False, "not_better", detail)
    worst = max(challenger_risks, key=lambda target: challenger_risks[target].rate)
    risk = challenger_risks[worst]
    detail += (
        f"; {' of '.join(filter(None, (worst, risk.app)))} above its bound for "
        f"{risk.exceeded} of {risk.subjects} subjects "
        f"(95 % interval {risk.interval[0]:.2f} to {risk.interval[1]:.2f})"
    )
    if risk.rate >= max_under_request:
        return Decision(False, "under_request", f"{detail}, allowed below {max_under_request}")
    return Decision(True, reason, detail)
