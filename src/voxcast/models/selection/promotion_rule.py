"""The rule of first registration and of promotion to champion, for one application.

How often the bounds of a recipe are exceeded, by nested cross-validation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.forecaster import calibrate
from voxcast.models.metrics import under_requests
from voxcast.models.point_model import queries_of
from voxcast.models.selection import fitting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.laws.intervals import Interval
    from voxcast.models.families.family import Params
    from voxcast.models.selection.comparison import Comparison, Contender
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
        model = fitting.fit(inner, name, params, "volume")
        out_of_fold = fitting.out_of_fold(inner, name, params, "volume")
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


BY_HAND = "`voxcast models promote` registers it nevertheless"
REASONS = {
    "first": "the application had no champion",
    "unchanged": "the champion is the same model",
    "new_facts": "the former champion's model, with other default parameters or configurations",
    "new_version": "the former champion predicts another version of the application",
    "better": "better than the former champion",
    "by_hand": "a person promoted it",
    "rolled_back": "a person rolled back to it",
    "more_subjects": "more exact than the former champion, and learned from more subjects",
}
MOSTLY = 0.5  # share of disturbed runs from which new runs are said to be measured under load


@dataclass(frozen=True)
class Decision:
    """Whether the challenger becomes champion, and why; part of the receipt."""

    promote: bool
    reason: str
    detail: str


@dataclass(frozen=True, eq=False)
class Rival:
    """The current champion of an application, beside a challenger.

    Attributes
    ----------
    same_model, same_facts : bool
        Its forecaster is identical to the challenger's; so are parameters and configurations.
    same_version : bool
        It predicts the version of the application that was measured.
    calibrated : bool
        Its bounds are calibrated.
    judged_as_fitted : bool
        It could not be fitted again, and was judged on subjects that it did not learn from.
    is_included : bool
        The challenger learned from all its subjects.
    new_subjects : int
        Subjects of the challenger that it did not learn from.
    disturbed, new_disturbed : float
        Share of disturbed runs among its training runs, and among the other runs.
    contender : Contender, optional
        Its recipe and its training runs, for a comparison.
    """

    same_model: bool = False
    same_facts: bool = True
    same_version: bool = True
    calibrated: bool = True
    judged_as_fitted: bool = False
    is_included: bool = True
    new_subjects: int = 0
    disturbed: float = 0.0
    new_disturbed: float = 0.0
    contender: Contender | None = None


def decide_beforehand(champion: Rival | None) -> Decision | None:
    """Decide where no comparison is needed; otherwise return None.

    Without a champion the best model by cross-validation is registered, even a baseline; so it is
    if the champion predicts another version of the application.
    """
    if champion is None:
        reason, promoted = "first", True
    elif champion.same_model:
        reason, promoted = ("unchanged", False) if champion.same_facts else ("new_facts", True)
    elif not champion.same_version:
        reason, promoted = "new_version", True
    else:
        return None
    return Decision(promoted, reason, REASONS[reason])


def decide(
    champion: Rival,
    comparison: Comparison | None,
    risks: Mapping[str, Risk],
    max_under_request: float,
) -> Decision:
    """Decide by a comparison on the same held-out subjects.

    A challenger is promoted when its error is lower than the champion's and the 95 % interval of
    the gain over subjects excludes zero; or when it learned from more subjects, which include the
    champion's, and the gain is above zero: an interval over few subjects would keep new
    measurements from being used. It is never promoted because the champion could not be judged.
    Runs that were measured under load count less in the comparison; where most of the new runs are
    such, but not the champion's, undisturbed runs alone decide. A challenger that is worse in one
    target, so that the interval of that target's gain lies below zero, is not promoted for being
    better in the other. A calibrated champion is replaced
    only if no target's under-request rate reaches ``max_under_request``.

    Parameters
    ----------
    champion : Rival
        The current champion, for which `decide_beforehand` decided nothing.
    comparison : Comparison or None
        See `voxcast.models.selection.comparison`.
    risks : mapping of str to Risk
        The challenger's risks by target.
    max_under_request : float
        Limit of the share of subjects above their upper bound.
    """
    if comparison is None:
        detail = "no subject is left on which both could be judged"
        return Decision(False, "not_comparable", f"{detail}; {BY_HAND}")
    calm = comparison.undisturbed_gain
    under_load = champion.new_disturbed > MOSTLY >= champion.disturbed
    gain = calm if under_load else comparison.gain
    detail = (
        f"mean log error {comparison.challenger.value:.4f} against "
        f"{comparison.champion.value:.4f} over {held_out(comparison.subjects)}; "
        f"{_gain_text(comparison.gain)}"
    )
    if calm.subjects and calm != comparison.gain:
        detail += f", on undisturbed runs alone {_gain_text(calm)}"
    if champion.judged_as_fitted:
        detail += "; the champion's runs are not all on record, so it was judged as it is"
    if under_load:
        detail += "; most of the new runs were measured under load"
    if calm.subjects and calm.value < 0 < comparison.gain.value:
        return Decision(
            False, "under_load", f"{detail}; the new model is better on disturbed runs only"
        )
    better = gain.bounded and gain.low > 0
    has_more = champion.is_included and champion.new_subjects > 0
    more = has_more and not under_load and gain.value > 0
    if not better and has_more and not under_load:
        noun = "subject" if champion.new_subjects == 1 else "subjects"
        detail += (
            f"; the new model learned from {champion.new_subjects} {noun} more than the champion, "
            f"{'and' if more else 'but'} its error is {'' if more else 'not '}lower"
        )
    if not better and not more:
        return Decision(False, "under_load" if under_load else "not_better", detail)
    if comparison.worse_targets:
        worse = " and ".join(comparison.worse_targets)
        return Decision(False, "worse_target", f"{detail}; it is worse in {worse}")
    worst = max(risks, key=lambda target: risks[target].rate)
    risk = risks[worst]
    detail += (
        f"; {worst} above the new model's bound for {risk.exceeded} of {risk.subjects} subjects "
        f"(95 % interval {risk.interval[0]:.2f} to {risk.interval[1]:.2f})"
    )
    if risk.censored:
        detail += f", {risk.censored} of them with runs that were stopped before they completed"
    if champion.calibrated and risk.rate >= max_under_request:
        return Decision(False, "under_request", f"{detail}, allowed below {max_under_request}")
    return Decision(True, "better" if better else "more_subjects", detail)


def held_out(subjects: int) -> str:
    """Write on how many subjects two models were compared, and what that means.

    Examples
    --------
    >>> held_out(4)
    '4 held-out subjects, each predicted by models that had not learned from it'
    """
    noun = "subject" if subjects == 1 else "subjects"
    return f"{subjects} held-out {noun}, each predicted by models that had not learned from it"


def _gain_text(gain: Interval) -> str:
    if not gain.bounded:
        return f"gain {gain.value:+.4f}, no interval"
    return f"gain {gain.value:+.4f} (95 % interval {gain.low:+.4f} to {gain.high:+.4f})"
