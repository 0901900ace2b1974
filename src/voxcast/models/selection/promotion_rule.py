"""The rule of first registration and of promotion to champion, for one application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.laws.intervals import Interval
    from voxcast.models.selection.comparison import Comparison
    from voxcast.models.selection.risk import Risk

BY_HAND = "`voxcast models promote` registers it nevertheless"
MOSTLY = 0.5  # share of disturbed runs from which new runs are said to be measured under load


@dataclass(frozen=True)
class Decision:
    """Whether the challenger becomes champion, and why; part of the receipt."""

    promote: bool
    reason: str
    detail: str


@dataclass(frozen=True)
class Rival:
    """The current champion of an application, beside a challenger.

    Attributes
    ----------
    readable : bool
        Its files are intact and of the format of this release; otherwise it cannot answer.
    same_model, same_facts : bool
        Its forecaster is identical to the challenger's; so are parameters and configurations.
    same_version : bool
        It predicts the version of the application that was measured.
    can_be_fitted : bool
        This release has the family and the parameters of its recipe.
    calibrated : bool
        Its bounds are calibrated.
    subjects, subjects_on_record : int
        Subjects that it learned from, and how many of them are in the challenger's table.
    new_subjects : int
        Subjects of the challenger that it did not learn from.
    new_disturbed : float
        Share of disturbed runs among those that it did not learn from.
    """

    readable: bool
    same_model: bool = False
    same_facts: bool = True
    same_version: bool = True
    can_be_fitted: bool = True
    calibrated: bool = True
    subjects: int = 0
    subjects_on_record: int = 0
    new_subjects: int = 0
    new_disturbed: float = 0.0


def decide_beforehand(champion: Rival | None) -> Decision | None:
    """Decide where no comparison is needed, or none is possible; otherwise return None.

    Without a champion the best model by cross-validation is registered, even a baseline; so it is
    if the champion cannot be loaded, or predicts another version of the application. A challenger
    is never promoted because the champion could not be judged: neither where its recipe is
    unknown nor where it learned from subjects that are not on record.
    """
    if champion is None:
        return Decision(True, "first", "the application had no champion")
    if not champion.readable:
        detail = "the champion is damaged or of another release, and cannot be loaded"
        return Decision(True, "champion_unreadable", detail)
    if champion.same_model and champion.same_facts:
        return Decision(False, "unchanged", "the champion is the same model")
    if champion.same_model:
        detail = "the champion's model, with other default parameters or configurations"
        return Decision(True, "new_facts", detail)
    if not champion.same_version:
        detail = "the champion predicts another version of the application"
        return Decision(True, "new_version", detail)
    if not champion.can_be_fitted:
        detail = "the champion's recipe is of another release, so the two cannot be compared"
        return Decision(False, "champion_unjudgeable", f"{detail}; {BY_HAND}")
    if champion.subjects_on_record < champion.subjects:
        detail = (
            f"the champion learned from {champion.subjects} subjects, of which "
            f"{champion.subjects_on_record} are on record here"
        )
        return Decision(False, "other_subjects", f"{detail}; {BY_HAND}")
    return None


def decide(
    champion: Rival,
    comparison: Comparison | None,
    risks: Mapping[str, Risk],
    max_under_request: float,
) -> Decision:
    """Decide by a comparison on the same held-out subjects.

    A challenger is promoted when its error is lower than the champion's and the 95 % interval of
    the gain over subjects excludes zero, or when its error is not higher and it learned from more
    subjects, which include the champion's. Runs that were measured under load count less in the
    comparison, and where most of the new runs are such, undisturbed runs alone decide. A
    calibrated champion is replaced only if no target's under-request rate reaches
    ``max_under_request``.

    Parameters
    ----------
    champion : Rival
        The current champion, for which `decide_beforehand` decided nothing.
    comparison : Comparison or None
        See `voxcast.models.selection.comparison.compare`.
    risks : mapping of str to Risk
        The challenger's risks by target.
    max_under_request : float
        Limit of the share of subjects above their upper bound.
    """
    if comparison is None:
        detail = "there is no subject on which both could be judged"
        return Decision(False, "not_comparable", f"{detail}; {BY_HAND}")
    calm = comparison.undisturbed_gain
    under_load = champion.new_disturbed > MOSTLY and calm.subjects > 1
    gain = calm if under_load else comparison.gain
    detail = (
        f"mean log error {comparison.challenger.value:.4f} against "
        f"{comparison.champion.value:.4f} on {comparison.subjects} held-out subjects; "
        f"{_gain_text(comparison.gain)}"
    )
    if calm.subjects and calm != comparison.gain:
        detail += f", on undisturbed runs alone {_gain_text(calm)}"
    if under_load:
        detail += "; most of the new runs were measured under load"
    if calm.subjects and calm.value < 0 < comparison.gain.value:
        return Decision(False, "under_load", f"{detail}; it is better on disturbed runs only")
    better = gain.bounded and gain.low > 0
    more = gain.value >= 0 and champion.new_subjects > 0 and not under_load
    if not better and not more:
        return Decision(False, "under_load" if under_load else "not_better", detail)
    if not better:
        detail += f"; it learned from {champion.new_subjects} subjects more"
    worst = max(risks, key=lambda target: risks[target].rate)
    risk = risks[worst]
    detail += (
        f"; {worst} above its bound for {risk.exceeded} of {risk.subjects} subjects "
        f"(95 % interval {risk.interval[0]:.2f} to {risk.interval[1]:.2f})"
    )
    if champion.calibrated and risk.rate >= max_under_request:
        return Decision(False, "under_request", f"{detail}, allowed below {max_under_request}")
    return Decision(True, "better" if better else "more_subjects", detail)


def _gain_text(gain: Interval) -> str:
    if not gain.bounded:
        return f"gain {gain.value:+.4f}, no interval"
    return f"gain {gain.value:+.4f} (95 % interval {gain.low:+.4f} to {gain.high:+.4f})"
