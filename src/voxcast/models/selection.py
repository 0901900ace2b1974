"""Which model is the champion: the rule of first registration and of promotion."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.conformal import leave_one_subject_out
from voxcast.models.metrics import under_requests
from voxcast.models.point_model import actual_logs
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True)
class Risk:
    """How often a target's upper bound was exceeded, judged out of fold.

    The bound of a subject comes from the residuals of the others. ``rate`` counts subjects, and
    ``interval`` is its exact 95 % interval.
    """

    exceeded: int
    subjects: int
    rate: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Decision:
    """Whether the challenger becomes champion, and why; part of the receipt."""

    promote: bool
    reason: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)


def best_family(objectives: Mapping[str, float]) -> str:
    """Return the family with the smallest cross-validated objective; ties go to the first."""
    return min(objectives, key=lambda name: objectives[name])


def risks(
    table: pd.DataFrame, out_of_fold: np.ndarray, level: float, factor: float
) -> dict[str, Risk]:
    """Judge the upper bounds of every target on out-of-fold predictions, shape (n_runs, 3)."""
    residuals = actual_logs(table) - out_of_fold
    subjects, apps = table["subject"].tolist(), table["app"].tolist()
    found = {}
    for k, target in enumerate(TARGETS):
        own = residuals[:, k]
        bound = leave_one_subject_out(own.tolist(), subjects, apps, level, factor)
        exceeded, n, interval = under_requests(own, bound, subjects)
        found[target] = Risk(exceeded, n, exceeded / n, interval)
    return found


def subject_errors(table: pd.DataFrame, out_of_fold: np.ndarray) -> pd.Series:
    """Return each subject's mean absolute logarithmic error over CPU time and memory."""
    errors = np.abs(actual_logs(table) - out_of_fold)
    means = (errors[:, 0] + errors[:, 2]) / 2
    return table.assign(error=means).groupby("subject")["error"].mean()


def decide(
    challenger: pd.Series,
    champion: pd.Series | None,
    challenger_risks: Mapping[str, Risk],
    max_under_request: float,
) -> Decision:
    """Apply the rule of promotion.

    On an empty registry the best model by cross-validation is registered, even a baseline. After
    that a challenger is promoted when its error over the same subjects is lower than the
    champion's (its parameters refitted on the same folds) and no target's under-request rate
    reaches ``max_under_request``.

    Parameters
    ----------
    challenger, champion : Series or None
        Errors by subject, from `subject_errors`, on the same subjects.
    challenger_risks : mapping of str to Risk
        Of every target.
    max_under_request : float
        Bound on the rate of subjects above the upper bound.
    """
    if champion is None:
        return Decision(True, "first", "the registry had no champion")
    gain = float((champion - challenger).mean())
    compared = f"mean log error {challenger.mean():.4f} against {champion.mean():.4f}"
    if gain <= 0:
        return Decision(False, "not_better", compared)
    worst = max(challenger_risks, key=lambda target: challenger_risks[target].rate)
    risk = challenger_risks[worst]
    said = (
        f"{worst} above its bound for {risk.exceeded} of {risk.subjects} subjects "
        f"(95 % interval {risk.interval[0]:.2f} to {risk.interval[1]:.2f})"
    )
    if risk.rate >= max_under_request:
        return Decision(
            False, "under_request", f"{compared}; {said}, allowed below {max_under_request}"
        )
    return Decision(True, "better", f"{compared}; {said}")
