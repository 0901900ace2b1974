"""Promotion of the best model of an application: the rule, a new version, and a receipt.

A version has a forecaster for each application. A promotion replaces one of them and carries the
others over unchanged. Receipts of promotions, rollbacks and comparisons are one line each, only
ever added.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import MIN_SUBJECTS
from voxcast.files import canonical_json, locked, write_text
from voxcast.laws.intervals import clustered_mean
from voxcast.models.explanation import law_in_words
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection import fitting
from voxcast.models.selection.comparison import Contender, compare_recipes, disturbed
from voxcast.models.selection.leaderboard import LAW
from voxcast.models.selection.promotion_rule import (
    Decision,
    Rival,
    decide,
    decide_beforehand,
    risks,
)
from voxcast.records import plain
from voxcast.serving.bundle import (
    BundlePart,
    Origin,
    Promotion,
    ServedApp,
    TrainedOn,
    write_bundle,
)
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.registry import (
    FOLDER,
    follow,
    mlflow_client,
    register,
    requirements,
    version_in,
)
from voxcast.tracking.runs import final_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.selection.comparison import OutOfTime
    from voxcast.serving.bundle import Bundle
    from voxcast.tracking.challengers import AppFacts, Challenger
    from voxcast.tracking.runs import Session

LOG = Path("models/receipts.jsonl")


@dataclass(frozen=True)
class Rule:
    """Limits of the promotion rule, see `voxcast.config.EvaluationConfig`."""

    upper_quantile: float
    max_under_request: float
    uncalibrated_factor: float


def promote(
    session: Session,
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

    Raises
    ------
    ModelError
        If files of the champion were changed.
    """
    table = challenger.table
    risk = risks(
        challenger.validation, challenger.family, challenger.params, rule.upper_quantile,
        rule.uncalibrated_factor,
    )  # fmt: skip
    store = ModelStore.of(project)
    follow(store, tracking_uri(project))
    bundle = store.current()
    rival = rival_of(app, challenger, bundle)
    comparison = None
    decision = decide_beforehand(rival)
    if challenger.forecaster_sha256 in rolled_back(project, app.name):
        detail = "a person rolled this model back; `voxcast models promote` registers it again"
        decision = Decision(False, "rolled_back", detail)
    if decision is None and rival is not None and rival.contender is not None:
        if out_of_time is None:
            everything = np.ones(len(table), dtype=bool)
            recipe = Contender(challenger.family, challenger.params, everything)
            comparison = compare_recipes(challenger.validation, recipe, rival.contender)
        else:
            comparison = out_of_time.comparison
            calibrated = rival.calibrated and out_of_time.champion_bound_holds
            rival = replace(rival, is_included=False, calibrated=calibrated)
        decision = decide(rival, comparison, risk, rule.max_under_request)
    assert decision is not None  # noqa: S101  # undecided only beside a contender
    if by_hand and not decision.promote and decision.reason != "unchanged":
        detail = f"by a person's decision; the rule: {decision.reason}: {decision.detail}"
        decision = Decision(True, "by_hand", detail)
    judgement = {
        "cross_validation": challenger.metrics,
        "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        "comparison": None if comparison is None else asdict(comparison),
    }
    model: dict[str, Any] = {
        "family": challenger.family,
        "params": challenger.params,
        "calibrated": _is_calibrated(challenger.forecaster, rule.upper_quantile),
    }
    training: dict[str, Any] = {
        "runs": len(table),
        "subjects": int(table["subject"].nunique()),
        "table_sha256": challenger.table_sha256,
    }
    former = bundle.apps.get(app.name) if bundle is not None else None
    champion = None if former is None else former.promotion.family
    number = None if bundle is None else bundle.version
    if decision.promote:
        champion = challenger.family
        promotion = Promotion(
            **model,
            **training,
            noisy_runs=int(disturbed(table).sum()),
            reason=decision.reason,
            detail=decision.detail,
            promoted_at=_now(),
            upper_quantile=rule.upper_quantile,
            cv_objective=challenger.metrics["objective"],
            app_version=app.version,
            from_version=number,
            evidence=plain(judgement | _evidence(app, challenger)),
        )
        part = _part(app, challenger, promotion)
        commit = session.tags.get("git_commit", "")
        number = register_part(session, project, part, bundle, commit, challenger.metrics)
    receipt: dict[str, Any] = plain(
        {
            "registered": decision.promote,
            "reason": decision.reason,
            "detail": decision.detail,
            "version": number,
            "champion": champion,
            "challenger": model | judgement,
            "comparison": judgement["comparison"],
            "under_load": under_load(table),
            "upper_quantile": rule.upper_quantile,
            "training": training,
        }
    )
    if decision.promote:
        facts = ("reason", "detail", "version", "comparison", "under_load", "training")
        sha256 = {"app": app.name, "forecaster_sha256": challenger.forecaster_sha256}
        add_receipt(project, "promotion", sha256 | {name: receipt[name] for name in facts})
    return receipt


COMPLETE = 0.9  # share of a champion's runs on record; disturbed runs may have been replaced


def rival_of(app: AppFacts, challenger: Challenger, bundle: Bundle | None) -> Rival | None:
    """Describe the champion of an application; None if there is none.

    Raises
    ------
    ModelError
        If its files are damaged.
    """
    if bundle is None or app.name not in bundle.apps:
        return None
    bundle.check(app.name)
    served, table = bundle.apps[app.name], challenger.table
    champion = served.promotion
    its_contender = contender_of(bundle, app.name, table)
    its_rows = its_contender.rows
    its_subjects = set(table["subject"][its_rows])
    noisy = disturbed(table)[~its_rows]
    return Rival(
        same_model=challenger.forecaster_sha256 == served.forecaster_sha256,
        same_facts=_facts(app) == _facts(served),
        same_version=champion.app_version == app.version,
        calibrated=champion.calibrated,
        judged_as_fitted=its_contender.fitted is not None,
        # Subjects too few for a test side may be on that side now.
        is_included=champion.subjects <= max(len(its_subjects), MIN_SUBJECTS - 1),
        new_subjects=len(set(table["subject"]) - its_subjects),
        disturbed=champion.noisy_runs / champion.runs,
        new_disturbed=float(noisy.mean()) if len(noisy) else 0.0,
        contender=its_contender,
    )


def _facts(app: AppFacts | ServedApp) -> str:
    """Return the facts a forecaster is served with, in a form to compare."""
    allocations = [[c.device, c.cpus, c.gpus] for c in app.configurations]
    grids = [app.coarse_points, app.network_points]
    return canonical_json([app.parameters, allocations, grids, sorted(app.characteristics)])


def contender_of(bundle: Bundle, app: str, table: pd.DataFrame) -> Contender:
    """Return a champion's recipe with its training runs that are in ``table``.

    If subjects that it learned from or more than a tenth of its runs are not, or this release has
    not its recipe, it is judged as it was fitted.
    """
    promotion, trained_on = bundle.apps[app].promotion, bundle.trained_on(app)
    rows = table["cell_key"].isin(trained_on.cell_keys).to_numpy(dtype=bool)
    can_be_fitted = fitting.can_be_fitted(promotion.family, promotion.params)
    is_complete = (
        table["subject"][rows].nunique() >= promotion.subjects
        and rows.sum() >= COMPLETE * promotion.runs
    )
    fitted = None if can_be_fitted and is_complete else bundle.forecaster(app)
    seen = frozenset(trained_on.subjects)
    return Contender(promotion.family, promotion.params, rows, fitted, seen)


def _is_calibrated(folder: Path, quantile: float) -> bool:
    """Whether all bounds of a fitted model at a quantile are calibrated, with the voxels known."""
    calibrated = Forecaster.load(folder).models_by_input_level["volume"]
    return not calibrated.missing_subjects(quantile)


def _evidence(app: AppFacts, challenger: Challenger) -> dict[str, Any]:
    """Return a law to read, errors with intervals over subjects, noise, data and software."""
    validation, table = challenger.validation, challenger.table
    out_of_fold = fitting.out_of_fold(validation, challenger.family, challenger.params, "volume")
    subjects = table["subject"].astype(str).tolist()
    errors = {}
    for target, logs in zip(validation.targets, out_of_fold.T, strict=True):
        ratios = np.exp(logs) / table[target].to_numpy(dtype=float)
        errors[target] = asdict(clustered_mean(100 * np.abs(ratios - 1), subjects))
    sets = table["image_set"].astype(str).value_counts().to_dict() if "image_set" in table else {}
    starts = sorted(str(at) for at in table.get("started_at", ()) if at)
    dates = {"first_run_at": starts[0], "last_run_at": starts[-1]} if starts else {}
    law = fitting.fit(validation, LAW, {}, "volume")
    return {
        "law": law_in_words(law),
        "errors_percent": errors,
        "noise_floor_percent": app.noise_floor,
        "training": {"image_sets": dict(sorted(sets.items())), **dates},
        "software": [*requirements(), f"scikit-learn=={version('scikit-learn')}"],
    }


def _part(app: AppFacts, challenger: Challenger, promotion: Promotion) -> BundlePart:
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
    return BundlePart(served, challenger.forecaster, TrainedOn.of(table))


def register_part(
    session: Session,
    project: Path,
    part: BundlePart,
    bundle: Bundle | None,
    git_commit: str,
    metrics: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """Register a version with one application replaced or added; return its number.

    It is logged under the final run of the forecaster, which is made where MLflow has none.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    project : Path
        Project folder.
    part : BundlePart
        The application.
    bundle : Bundle or None
        Bundle of the champion; its other applications are carried over unchanged.
    git_commit : str
        Commit of the project when the model was trained.
    metrics : mapping
        Its metrics on the leaderboard, for a run that is made here.
    """
    promotion, app = part.served.promotion, part.served.name
    run_id = final_run(
        session, app, promotion.family, part.forecaster, promotion.table_sha256,
        promotion.params, metrics,
    )  # fmt: skip
    others = [] if bundle is None else [bundle.part(name) for name in bundle.apps if name != app]
    origin = Origin(app, bundle.version if bundle else None, git_commit)
    with ModelStore.of(project).new_folder() as work:
        folder = Path(work, FOLDER)
        write_bundle(folder, [part, *others], origin)
        return register(project, run_id, folder)


def publish_champion(session: Session, project: Path) -> None:
    """Register the champion again in a registry that was lost or replaced, and has none."""
    bundle = ModelStore.of(project).current()
    if bundle is None:
        return
    with mlflow_client(tracking_uri(project)) as client:
        if version_in(client) is not None:
            return
    part = bundle.part(next(iter(bundle.apps)))
    register_part(session, project, part, bundle, bundle.origin.git_commit)


def add_receipt(project: Path, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Append a receipt to the log of a project and return it.

    Parameters
    ----------
    kind : {"promotion", "rollback", "comparison"}
        The decision it records.
    content : mapping
        JSON-able facts.
    """
    receipt = {"kind": kind, "at": _now(), **content}
    path = project / LOG
    with locked(path.parent):
        lines = path.read_text(encoding="utf-8") if path.is_file() else ""
        write_text(path, f"{lines}{json.dumps(receipt, sort_keys=True, allow_nan=False)}\n")
    return receipt


def receipts(project: Path) -> list[dict[str, Any]]:
    """Return all receipts of a project, the oldest first; unreadable lines are left out."""
    path = project / LOG
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def rolled_back(project: Path, app: str) -> set[str]:
    """Return the hashes of forecasters of an application that a person rolled back.

    One that a person brought back afterwards is not among them.
    """
    hashes: set[str] = set()
    for receipt in receipts(project):
        if receipt.get("kind") == "rollback":
            hashes |= {receipt["removed"][app]} if app in receipt.get("removed", {}) else set()
            hashes -= {receipt.get("restored", {}).get(app)}
        elif receipt.get("kind") == "promotion" and receipt.get("app") == app:
            hashes -= {receipt.get("forecaster_sha256")}
    return hashes


def under_load(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each image set with runs that were measured beside other work."""
    sentences = []
    sets = table["image_set"].astype(str) if "image_set" in table else ""
    table = table.assign(image_set=sets, noisy=disturbed(table))
    for name, rows in table.groupby("image_set", sort=True):
        if count := int(rows["noisy"].sum()):
            share = f"{count} of {len(rows)} runs ({100 * count / len(rows):.0f} %)"
            of_set = f" of image set {name!s}" if name else ""
            sentences.append(f"{share}{of_set} were measured beside other work")
    return sentences


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
