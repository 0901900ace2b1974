"""Promotion of the best model of an application: the rule applied to the registry, a receipt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.files import sha256_folder
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection import recipes
from voxcast.models.selection.promotion_rule import Rival, decide, risks, subject_errors
from voxcast.serving.bundle import FOLDER, BundlePart, Promotion, ServedApp, write_bundle
from voxcast.tracking import registry
from voxcast.tracking.finals import final_run

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.models.selection.promotion_rule import Decision
    from voxcast.records import Configuration
    from voxcast.serving.bundle import Bundle
    from voxcast.tracking import runs


@dataclass(frozen=True)
class AppFacts:
    """An application as it was measured; see `voxcast.serving.bundle.ServedApp`."""

    name: str
    version: str
    parameters: dict[str, Any]
    configurations: list[Configuration]
    coarse_points: int
    network_points: int


@dataclass(frozen=True)
class Rule:
    """Limits of the promotion rule, see `voxcast.config.EvaluationConfig`."""

    upper_quantile: float
    max_under_request: float
    uncalibrated_factor: float


@dataclass(frozen=True)
class Challenger:
    """The best model of an application, fitted to all its runs on record.

    Attributes
    ----------
    validation : Validation
        Training runs; the rule uses only their out-of-fold predictions.
    table_sha256 : str
        Hash of the table's file.
    leaderboard : Leaderboard
        Results of tuning; its best model is the challenger.
    models : Path
        Folder with one forecaster per family.
    """

    validation: Validation
    table_sha256: str
    leaderboard: Leaderboard
    models: Path

    @property
    def family(self) -> str:
        """Name of the family or ensemble."""
        return self.leaderboard.best

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the recipe."""
        return self.leaderboard.params[self.family]

    @property
    def metrics(self) -> dict[str, float]:
        """Errors by cross-validation."""
        return self.leaderboard.metrics[self.leaderboard.input_level][self.family]

    @property
    def forecaster(self) -> Path:
        """Folder of the fitted model."""
        return self.models / self.family


def promote(
    session: runs.Session, app: AppFacts, challenger: Challenger, rule: Rule
) -> dict[str, Any]:
    """Register the challenger of an application if the rule allows it.

    Returns
    -------
    dict
        The receipt of the application.
    """
    table = challenger.validation.table
    risk = risks(
        challenger.validation,
        challenger.family,
        challenger.params,
        rule.upper_quantile,
        rule.uncalibrated_factor,
    )
    current = registry.champion()
    bundle = None if current is None else _readable(current)
    calibrated = _is_calibrated(challenger.forecaster, rule.upper_quantile)
    decision = decide(
        subject_errors(table, challenger.leaderboard.out_of_fold["volume"][challenger.family]),
        _rival(app, challenger, current, bundle),
        risk,
        rule.max_under_request,
    )
    version = current
    if decision.promote:
        version = _registered(
            session, app, challenger, decision, current, bundle, rule, calibrated
        )
    served = None if bundle is None else bundle.apps.get(app.name)
    champion = challenger.family if decision.promote else served and served.promotion.family
    return {
        "registered": decision.promote,
        "reason": decision.reason,
        "detail": decision.detail,
        "version": None if version is None else version.number,
        "champion": champion,
        "challenger": {
            "family": challenger.family,
            "params": challenger.params,
            "calibrated": calibrated,
            "cross_validation": challenger.metrics,
            "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        },
        "upper_quantile": rule.upper_quantile,
        "training": {
            "runs": len(table),
            "subjects": int(table["subject"].nunique()),
            "table_sha256": challenger.table_sha256,
        },
    }


def _readable(version: registry.Version) -> Bundle | None:
    """Return the bundle of a version; None if this release cannot read it."""
    try:
        return registry.bundle_of(version.number)
    except ModelError:
        return None


def _registered(
    session: runs.Session,
    app: AppFacts,
    challenger: Challenger,
    decision: Decision,
    current: registry.Version | None,
    bundle: Bundle | None,
    rule: Rule,
    calibrated: bool,
) -> registry.Version:
    """Register a version with the challenger; the other applications are carried over."""
    table = challenger.validation.table
    promotion = Promotion(
        family=challenger.family,
        params=challenger.params,
        subjects=int(table["subject"].nunique()),
        runs=len(table),
        noisy_runs=int(table["noisy"].sum()) if "noisy" in table else 0,
        reason=decision.reason,
        detail=decision.detail,
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        calibrated=calibrated,
        upper_quantile=rule.upper_quantile,
        cv_objective=challenger.metrics["objective"],
        table_sha256=challenger.table_sha256,
        app_version=app.version,
        from_version=None if current is None else current.number,
    )
    served = ServedApp(
        app.name,
        app.parameters,
        app.configurations,
        app.coarse_points,
        app.network_points,
        sha256_folder(challenger.forecaster),
        promotion,
    )
    parts = {} if bundle is None else {name: bundle.part(name) for name in bundle.apps}
    parts[app.name] = BundlePart(served, challenger.forecaster, table["cell_key"].tolist())
    run_id = final_run(
        session,
        app.name,
        challenger.family,
        challenger.forecaster,
        challenger.table_sha256,
        challenger.params,
        challenger.metrics,
    )
    with TemporaryDirectory() as work:
        write_bundle(Path(work) / FOLDER, parts.values())
        return registry.register(run_id, Path(work) / FOLDER, promoted=app.name)


def _rival(
    app: AppFacts,
    challenger: Challenger,
    current: registry.Version | None,
    bundle: Bundle | None,
) -> Rival | None:
    if current is None or (bundle is not None and app.name not in bundle.apps):
        return None
    if bundle is None or not bundle.is_intact(app.name):
        return Rival(False, False, False, False, None)
    champion = bundle.apps[app.name].promotion
    sha256 = bundle.apps[app.name].forecaster_sha256
    table = challenger.validation.table
    return Rival(
        readable=True,
        same_recipe=(champion.family, champion.params) == (challenger.family, challenger.params),
        same_model=sha256 == sha256_folder(challenger.forecaster),
        more_subjects=champion.subjects > int(table["subject"].nunique()),
        errors=_recipe_errors(champion, challenger),
    )


def _recipe_errors(champion: Promotion, challenger: Challenger) -> pd.Series | None:
    """Return the errors of the champion's recipe, refitted on these folds.

    The champion itself cannot be compared: it may have been trained on held-out subjects.
    """
    name, params = champion.family, champion.params
    if not recipes.can_be_fitted(name, params):
        return None
    validation, leaderboard = challenger.validation, challenger.leaderboard
    if leaderboard.params.get(name) == params:
        out_of_fold = leaderboard.out_of_fold["volume"][name]
    else:
        out_of_fold = recipes.out_of_fold(validation, name, params, "volume")
    return subject_errors(validation.table, out_of_fold)


def _is_calibrated(folder: Path, quantile: float) -> bool:
    calibrated = Forecaster.load(folder).models_by_input_level["volume"]
    return all(
        scores.is_calibrated(quantile)
        for calibrator in calibrated.calibrators.values()
        for scores in calibrator.by_app.values()
    )
