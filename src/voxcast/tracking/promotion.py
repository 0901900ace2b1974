"""Promotion of the best model to champion: applies the rule to the registry, with a receipt."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from voxcast.files import sha256_of
from voxcast.models.forecaster import FORMAT, Forecaster
from voxcast.models.selection import recipes
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.promotion_rule import Rival, decide, risks, subject_errors
from voxcast.tracking import registry, runs
from voxcast.tracking.finals import final_run, forecaster_sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.selection.leaderboard import Leaderboard


@dataclass(frozen=True)
class Rule:
    """Limits of the promotion rule, see `voxcast.config.EvaluationConfig`.

    ``image_set`` identifies the images: more subjects are an improvement only of the same set.
    """

    upper_quantile: float
    max_under_request: float
    uncalibrated_factor: float
    image_set: str


def promote(
    session: runs.Session,
    validation: Validation,
    table_sha256: str,
    leaderboard: Leaderboard,
    models: Path,
    catalogue: Mapping[str, Any],
    rule: Rule,
) -> dict[str, Any]:
    """Register the best family as champion if the rule allows it.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    validation : Validation
        Training runs; the rule uses only their out-of-fold predictions.
    table_sha256 : str
        Hash of the table's file.
    leaderboard : Leaderboard
        Results of tuning; its best model is the challenger.
    models : Path
        Folder with one forecaster per family.
    catalogue : mapping
        Stored with the model, see `voxcast.serving.prediction_service.ServedCatalogue`.
    rule : Rule
        Limits.

    Returns
    -------
    dict
        The receipt.
    """
    table, name = validation.table, leaderboard.best
    params, metrics = leaderboard.params[name], leaderboard.metrics["volume"][name]
    risk = risks(validation, name, params, rule.upper_quantile, rule.uncalibrated_factor)
    current = registry.champion()
    tags = {
        "family": name,
        "params": json.dumps(params, sort_keys=True),
        "subjects": str(table["subject"].nunique()),
        "table_sha256": table_sha256,
        "catalogue_sha256": sha256_of(catalogue),
        "forecaster_sha256": forecaster_sha256(models / name),
        "forecaster_format": str(FORMAT),
        "image_set": rule.image_set,
        "calibrated": str(_is_calibrated(models / name, rule.upper_quantile)).lower(),
        "upper_quantile": f"{rule.upper_quantile:g}",
        "cv_objective": f"{metrics['objective']:.6g}",
    }
    decision = decide(
        subject_errors(table, leaderboard.out_of_fold["volume"][name]),
        None if current is None else _rival(current, tags, validation, leaderboard),
        risk,
        rule.max_under_request,
    )
    version = current
    if decision.promote:
        tags["reason"] = decision.reason
        tags["promoted_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        with TemporaryDirectory() as work:
            run_id = final_run(session, name, models / name, table_sha256, params, metrics)
            version = registry.register(run_id, models / name, catalogue, Path(work), tags)
    return {
        "model": registry.MODEL_NAME,
        "registered": decision.promote,
        "reason": decision.reason,
        "detail": decision.detail,
        "version": None if version is None else version.number,
        "champion": None if version is None else version.tags.get("family"),
        "challenger": {
            "family": name,
            "params": params,
            "calibrated": tags["calibrated"] == "true",
            "cross_validation": metrics,
            "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        },
        "upper_quantile": rule.upper_quantile,
        "training": {
            "runs": len(table),
            "subjects": int(table["subject"].nunique()),
            "table_sha256": table_sha256,
        },
    }


def _rival(
    current: registry.Version,
    tags: Mapping[str, str],
    validation: Validation,
    leaderboard: Leaderboard,
) -> Rival:
    def same(*names: str) -> bool:
        return all(current.tags.get(name) == tags[name] for name in names)

    fewer = int(tags["subjects"]) < int(current.tags.get("subjects", "0"))
    return Rival(
        readable=same("forecaster_format"),
        same_recipe=same("family", "params"),
        same_model=same("forecaster_sha256", "catalogue_sha256"),
        more_subjects=same("image_set") and fewer,
        errors=_recipe_errors(current, validation, leaderboard),
    )


def _recipe_errors(
    present: registry.Version, validation: Validation, leaderboard: Leaderboard
) -> pd.Series | None:
    """Return the errors of the champion's recipe, refitted on these folds.

    The champion itself cannot be compared: it may have been trained on held-out subjects.
    """
    name = present.tags.get("family", "")
    try:
        params = json.loads(present.tags.get("params", ""))
    except json.JSONDecodeError:
        return None
    if not isinstance(params, dict) or not recipes.can_be_fitted(name, params):
        return None
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
