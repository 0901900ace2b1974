"""Promotion of the best model of an application: the rule applied to the registry, a receipt."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.comparison import Contender, compare, disturbed
from voxcast.models.selection.promotion_rule import BY_HAND, Decision, decide, decide_beforehand
from voxcast.models.selection.risk import risks
from voxcast.serving.bundle import FOLDER, BundlePart, write_bundle
from voxcast.serving.served_app import Promotion, ServedApp
from voxcast.tracking import registry
from voxcast.tracking.finals import final_run
from voxcast.tracking.other_apps import damaged_others, lost_others, warn
from voxcast.tracking.receipts import add_receipt, comparison_json, rolled_back, under_load
from voxcast.tracking.registered_versions import champion
from voxcast.tracking.rivals import readable_bundle, rival_of
from voxcast.tracking.runs import tracking_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.models.selection.comparison import Comparison
    from voxcast.models.selection.out_of_time import OutOfTime
    from voxcast.models.selection.promotion_rule import Rival
    from voxcast.models.selection.risk import Risk
    from voxcast.serving.bundle import Bundle
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import AppFacts, Challenger
    from voxcast.tracking.registered_versions import Version


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
    uri = tracking_uri(project)
    current = champion(uri)
    bundle = None if current is None else readable_bundle(uri, current)
    rival = rival_of(app, challenger, current, bundle)
    comparison = None
    decision = decide_beforehand(rival)
    if challenger.forecaster_sha256 in rolled_back(project, app.name):
        detail = "a person rolled this model back; `voxcast models promote` registers it again"
        decision = Decision(False, "rolled_back", detail)
    if decision is None and rival is not None and rival.contender is not None:
        if out_of_time is None:
            everything = np.ones(len(table), dtype=bool)
            recipe = Contender(challenger.family, challenger.params, everything)
            comparison = compare(validation, recipe, rival.contender)
        else:
            comparison = out_of_time.comparison
            calibrated = rival.calibrated and out_of_time.champion_bound_holds
            rival = replace(rival, is_included=False, calibrated=calibrated)
        decision = decide(rival, comparison, risk, rule.max_under_request)
    assert decision is not None  # noqa: S101  # undecided only beside a contender
    lost = lost_others(current, bundle, app.name)
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
    calibrated = _is_calibrated(challenger.forecaster, rule.upper_quantile)
    version = None if current is None else current.number
    damaged: dict[str, str] = {}
    if decision.promote:
        damaged = damaged_others(bundle, app.name)
        warn(damaged, lost)
        evidence = _evidence(challenger, risk, comparison)
        promotion = _promotion(app, challenger, decision, rule, calibrated, current, evidence)
        version = _registered(session, app, challenger, promotion, bundle)
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


def _promotion(
    app: AppFacts,
    challenger: Challenger,
    decision: Decision,
    rule: Rule,
    calibrated: bool,
    current: Version | None,
    evidence: dict[str, Any],
) -> Promotion:
    table = challenger.table
    return Promotion(
        family=challenger.family,
        params=challenger.params,
        subjects=int(table["subject"].nunique()),
        runs=len(table),
        noisy_runs=int(disturbed(table).sum()),
        reason=decision.reason,
        detail=decision.detail,
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        calibrated=calibrated,
        upper_quantile=rule.upper_quantile,
        cv_objective=challenger.metrics["objective"],
        table_sha256=challenger.table_sha256,
        app_version=app.version,
        from_version=None if current is None else current.number,
        evidence=evidence,
    )


def _evidence(
    challenger: Challenger, risk: Mapping[str, Risk], comparison: Comparison | None
) -> dict[str, Any]:
    """Return how a challenger was judged, for its model card; what is not finite is None."""
    errors = {
        name: value if math.isfinite(value) else None for name, value in challenger.metrics.items()
    }
    return {
        "cross_validation": errors,
        "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        "comparison": None if comparison is None else comparison_json(comparison),
    }


def _registered(
    session: runs.Session,
    app: AppFacts,
    challenger: Challenger,
    promotion: Promotion,
    bundle: Bundle | None,
) -> str:
    """Register a version with the challenger; the other applications are carried over."""
    table = challenger.table
    allocations = table[["device", "cpus", "gpus"]].drop_duplicates()
    served = ServedApp(
        app.name,
        app.parameters,
        app.configurations,
        app.coarse_points,
        app.network_points,
        challenger.forecaster_sha256,
        promotion,
        tuple(sorted(str(name) for name in table["host_class"].unique() if name)),
        tuple(sorted((str(d), int(c), int(g)) for d, c, g in allocations.to_numpy().tolist())),
        app.characteristics,
    )
    part = BundlePart(
        served, challenger.forecaster, table["cell_key"].tolist(), table["subject"].tolist()
    )
    run_id = final_run(
        session,
        app.name,
        challenger.family,
        challenger.forecaster,
        challenger.table_sha256,
        challenger.params,
        challenger.metrics,
    )
    return register_part(run_id, part, bundle)


def register_part(run_id: str, part: BundlePart, bundle: Bundle | None) -> str:
    """Register a version with one application replaced or added; return its number.

    Parameters
    ----------
    run_id : str
        Run under which the model is logged.
    part : BundlePart
        The application.
    bundle : Bundle or None
        Bundle of the champion; its other applications are carried over unchanged.
    """
    with TemporaryDirectory() as work:
        write_bundle(Path(work) / FOLDER, [part], bundle)
        return registry.register(run_id, Path(work) / FOLDER, promoted=part.served.name)


def _is_calibrated(folder: Path, quantile: float) -> bool:
    calibrated = Forecaster.load(folder).models_by_input_level["volume"]
    return all(
        not scores.missing(quantile)
        for calibrator in calibrated.calibrators.values()
        for scores in calibrator.by_app.values()
    )
