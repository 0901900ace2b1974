"""Promotion of the best model of an application: the rule applied to the registry, a receipt.

Applications that a promotion does not concern keep their models; damage to them is reported.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.selection.comparison import Contender, compare_recipes
from voxcast.models.selection.promotion_rule import (
    BY_HAND,
    Decision,
    decide,
    decide_beforehand,
    risks,
)
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.receipts import (
    add_receipt,
    comparison_json,
    rolled_back,
    under_load,
)
from voxcast.tracking.registration import (
    evidence,
    is_calibrated,
    promotion_of,
    register_challenger,
)
from voxcast.tracking.registry import follow
from voxcast.tracking.rivals import readable, rival_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.models.selection.comparison import OutOfTime
    from voxcast.models.selection.promotion_rule import Rival
    from voxcast.serving.bundle import Bundle
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import AppFacts, Challenger


@dataclass(frozen=True)
class Rule:
    """Limits of the promotion rule, see `voxcast.config.EvaluationConfig`."""

    upper_quantile: float
    max_under_request: float
    uncalibrated_factor: float


def promote(
    session: runs.Session,
    project: Path,
    app: AppFacts,
    challenger: Challenger,
    rule: Rule,
    *,
    by_hand: bool = False,
    out_of_time: OutOfTime | None = None,
) -> dict[str, Any]:
    """Register the challenger of an application if the rule allows it.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    project : Path
        Project folder; a promotion is added to its receipts.
    app : AppFacts
        The application.
    challenger : Challenger
        Its best model.
    rule : Rule
        Limits.
    by_hand : bool
        Register it in any case, by a person's decision.
    out_of_time : OutOfTime, optional
        A comparison on runs that are newer than all that either learned from, in place of one by
        folds. Then a challenger is promoted only if it is shown to be better: that it learned from
        more subjects does not count.

    Returns
    -------
    dict
        The receipt of the application.
    """
    validation, table = challenger.validation, challenger.table
    risk = risks(
        validation,
        challenger.family,
        challenger.params,
        rule.upper_quantile,
        rule.uncalibrated_factor,
    )
    store = ModelStore.of(project)
    follow(store, tracking_uri(project))
    pointer = store.pointer()
    current = pointer.champion
    bundle = None if current is None else readable(store, current)
    present = pointer.versions[current].apps if current else ()
    rival = rival_of(app, challenger, present, bundle)
    comparison = None
    decision = decide_beforehand(rival)
    if any(challenger.is_model(sha256) for sha256 in rolled_back(project, app.name)):
        detail = "a person rolled this model back; `voxcast models promote` registers it again"
        decision = Decision(False, "rolled_back", detail)
    if decision is None and rival is not None and rival.contender is not None:
        if out_of_time is None:
            everything = np.ones(len(table), dtype=bool)
            recipe = Contender(challenger.family, challenger.params, everything)
            comparison = compare_recipes(validation, recipe, rival.contender)
        else:
            comparison = out_of_time.comparison
            calibrated = rival.calibrated and out_of_time.champion_bound_holds
            rival = replace(rival, is_included=False, calibrated=calibrated)
        decision = decide(rival, comparison, risk, rule.max_under_request)
    assert decision is not None  # noqa: S101  # undecided only beside a contender
    lost = lost_others(present, bundle, app.name)
    if decision.promote and lost:
        detail = (
            f"the champion's files cannot be read, and {', '.join(lost)} would be lost; "
            f"`voxcast models rollback` returns to an older version, {BY_HAND}"
        )
        decision = Decision(False, "would_lose_others", detail)
    if not decision.promote and not by_hand and out_of_time is None:
        decision = replace(decision, detail=decision.detail + _outlook(rival, app.name))
    if by_hand and not decision.promote and decision.reason != "unchanged":
        detail = f"by a person's decision; the rule: {decision.reason}: {decision.detail}"
        decision = Decision(True, "by_hand", detail)
    calibrated = is_calibrated(challenger.forecaster, rule.upper_quantile)
    version = current
    damaged: dict[str, str] = {}
    if decision.promote:
        damaged = damaged_others(bundle, app.name)
        warn(damaged, lost)
        judgement = evidence(app, challenger, risk, comparison)
        promotion = promotion_of(
            app, challenger, decision, rule.upper_quantile, current, judgement
        )
        version = register_challenger(session, project, app, challenger, promotion, bundle)
    former = None if bundle is None else bundle.apps.get(app.name)
    former_family = None if former is None else former.promotion.family
    receipt = {
        "registered": decision.promote,
        "reason": decision.reason,
        "detail": decision.detail,
        "version": version,
        "champion": challenger.family if decision.promote else former_family,
        "challenger": {
            "family": challenger.family,
            "params": challenger.params,
            "calibrated": calibrated,
            "cross_validation": challenger.metrics,
            "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        },
        "comparison": None if comparison is None else comparison_json(comparison),
        "under_load": under_load(table),
        "carried_over_damaged": damaged,
        "lost": lost if decision.promote else [],
        "upper_quantile": rule.upper_quantile,
        "training": {
            "runs": len(table),
            "subjects": int(table["subject"].nunique()),
            "table_sha256": challenger.table_sha256,
        },
    }
    if decision.promote:
        facts = (
            "reason", "detail", "version", "comparison", "under_load", "carried_over_damaged",
            "lost", "training",
        )  # fmt: skip
        sha256 = {"app": app.name, "forecaster_sha256": challenger.forecaster_sha256}
        add_receipt(project, "promotion", sha256 | {name: receipt[name] for name in facts})
    return receipt


def _outlook(rival: Rival | None, app: str) -> str:
    """Write what becomes of the runs that a champion that stays has not learned from."""
    new_runs = (
        0 if rival is None or rival.contender is None else int((~rival.contender.rows).sum())
    )
    if not new_runs:
        return ""
    runs_are = "1 new run is" if new_runs == 1 else f"{new_runs} new runs are"
    return (
        f"; {runs_are} on record and will be used from the next promotion on, "
        f"`voxcast models promote --app {app}` uses them now"
    )


logger = logging.getLogger(__name__)


def damaged_others(bundle: Bundle | None, app: str) -> dict[str, str]:
    """Return the damage to the other applications of a bundle, which are carried over."""
    if bundle is None:
        return {}
    problems = {name: bundle.problem_of(name) for name in bundle.facts if name != app}
    return {name: problem for name, problem in problems.items() if problem is not None}


def lost_others(apps: Iterable[str], bundle: Bundle | None, app: str) -> list[str]:
    """Return the other applications of a champion whose bundle cannot be read.

    A new version would be without them.
    """
    return sorted(name for name in apps if name != app) if bundle is None else []


def warn(damaged: Mapping[str, str], lost: Iterable[str]) -> None:
    """Log which applications a new version carries over damaged, and which it lacks."""
    for name, problem in damaged.items():
        logger.warning("%s is carried over as it is, damaged: %s; %s", name, problem, _fix(name))
    for name in lost:
        logger.warning("%s is not in the new version: it cannot be read; %s", name, _fix(name))


def _fix(app: str) -> str:
    command = f"`voxcast models rollback --app {app}`"
    return f"{command} brings back the newest forecaster that is intact"
