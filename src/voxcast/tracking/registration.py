"""Registration of a challenger as a version: its facts, how it was judged, its files."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.laws.intervals import clustered_mean
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection import recipes
from voxcast.models.selection.comparison import disturbed
from voxcast.serving import requirements
from voxcast.serving.bundle import BundlePart, Origin, write_bundle
from voxcast.serving.model_store import ModelStore
from voxcast.serving.served_app import Promotion, ServedApp
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.finals import final_run
from voxcast.tracking.receipts import comparison_json
from voxcast.tracking.registry import FOLDER, champion_number, mlflow_client, register

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.selection.comparison import Comparison
    from voxcast.models.selection.promotion_rule import Decision, Risk
    from voxcast.serving.bundle import Bundle
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import AppFacts, Challenger


def promotion_of(
    app: AppFacts,
    challenger: Challenger,
    decision: Decision,
    upper_quantile: float,
    replaced: str | None,
    judgement: dict[str, Any],
) -> Promotion:
    """Return the record of a model that is registered.

    Parameters
    ----------
    app, challenger
        The application and its best model.
    decision : Decision
        Why it is registered.
    upper_quantile : float
        Probability of the bounds that are judged.
    replaced : str or None
        Number of the champion's version.
    judgement : dict
        See `evidence`.
    """
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
        calibrated=is_calibrated(challenger.forecaster, upper_quantile),
        upper_quantile=upper_quantile,
        cv_objective=challenger.metrics["objective"],
        table_sha256=challenger.table_sha256,
        app_version=app.version,
        from_version=replaced,
        evidence=judgement,
    )


def evidence(
    app: AppFacts,
    challenger: Challenger,
    risk: Mapping[str, Risk],
    comparison: Comparison | None = None,
) -> dict[str, Any]:
    """Return how a challenger was judged, for its model card; infinite values and NaN are None."""
    errors = {
        name: value if math.isfinite(value) else None for name, value in challenger.metrics.items()
    }
    return {
        "cross_validation": errors,
        "errors_percent": _errors_percent(challenger),
        "noise_floor_percent": app.noise_floor,
        "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        "comparison": None if comparison is None else comparison_json(comparison),
        "training": _training(challenger.table),
        "software": [*requirements(), f"scikit-learn=={version('scikit-learn')}"],
    }


def _errors_percent(challenger: Challenger) -> dict[str, Any]:
    """Return the mean absolute errors out of fold by target, with intervals over subjects."""
    validation = challenger.validation
    out_of_fold = recipes.out_of_fold(validation, challenger.family, challenger.params, "volume")
    subjects = validation.table["subject"].astype(str).tolist()
    errors = {}
    for target, logs in zip(validation.targets, out_of_fold.T, strict=True):
        ratios = np.exp(logs) / validation.table[target].to_numpy(dtype=float)
        interval = asdict(clustered_mean(100 * np.abs(ratios - 1), subjects))
        errors[target] = {
            name: value if math.isfinite(value) else None for name, value in interval.items()
        }
    return errors


def _training(table: pd.DataFrame) -> dict[str, Any]:
    """Return the image sets of the training runs, with their runs, and when they were measured."""
    sets = table["image_set"].astype(str).value_counts().to_dict() if "image_set" in table else {}
    starts = sorted(str(at) for at in table.get("started_at", ()) if at)
    dates = {"first_run_at": starts[0], "last_run_at": starts[-1]} if starts else {}
    return {"image_sets": dict(sorted(sets.items())), **dates}


def register_challenger(
    session: runs.Session,
    project: Path,
    app: AppFacts,
    challenger: Challenger,
    promotion: Promotion,
    bundle: Bundle | None,
) -> str:
    """Register a version with the challenger; the other applications are carried over.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    project : Path
        Project folder.
    app, challenger, promotion
        The application, its best model, and its record, see `promotion_of`.
    bundle : Bundle or None
        The champion's.

    Returns
    -------
    str
        Number of the version.
    """
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
    commit = session.tags.get("git_commit", "")
    return register_part(session, project, part, bundle, commit, challenger.metrics)


def register_part(
    session: runs.Session,
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
    promotion = part.served.promotion
    run_id = final_run(
        session,
        part.served.name,
        promotion.family,
        part.forecaster,
        promotion.table_sha256,
        promotion.params,
        metrics,
    )
    origin = Origin(part.served.name, bundle.version if bundle else None, git_commit)
    with ModelStore.of(project).new_folder() as work:
        folder = Path(work, FOLDER)
        write_bundle(folder, [part], bundle, origin)
        return register(project, run_id, folder)


def publish_champion(session: runs.Session, project: Path) -> None:
    """Register the champion again in a registry that was lost or replaced, and has none."""
    store = ModelStore.of(project)
    if store.pointer().champion is None:
        return
    with mlflow_client(tracking_uri(project)) as client:
        if champion_number(client) is not None:
            return
    bundle = store.open()
    intact = [app for app in bundle.apps if bundle.is_intact(app)]
    if not intact:
        return
    register_part(session, project, bundle.part(intact[0]), bundle, bundle.origin.git_commit)


def is_calibrated(folder: Path, quantile: float) -> bool:
    """Whether all bounds of a fitted model at a quantile are calibrated, with the voxels known."""
    calibrated = Forecaster.load(folder).models_by_input_level["volume"]
    return not calibrated.missing_subjects(quantile)
