"""Writing to the model registry: new versions, the champion, and the marker in the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.files import read_json, write_json
from voxcast.serving.bundle import FOLDER, Bundle
from voxcast.serving.champion_folder import (
    CHAMPION,
    CHAMPION_URI,
    MODEL_NAME,
    check_registry,
)
from voxcast.serving.registry_database import DATABASE, SQLITE, is_missing, path_of
from voxcast.serving.sql_server import without_password
from voxcast.tracking.registered_versions import champion, versions
from voxcast.tracking.relocation import relocate
from voxcast.tracking.runs import tracking_uri
from voxcast.tracking.views import describe_model

if TYPE_CHECKING:
    from voxcast.serving.served_app import Promotion

MARKER = Path("mlruns/registered.json")
# What the list of versions says of each application.
SUMMARY = (
    "family", "reason", "calibrated", "subjects", "runs", "cv_objective", "promoted_at",
)  # fmt: skip


def set_champion(version: str) -> None:
    """Make an existing version the champion."""
    import mlflow

    mlflow.MlflowClient().set_registered_model_alias(MODEL_NAME, CHAMPION, version)


def register(run_id: str, bundle: Path, promoted: str) -> str:
    """Log a bundle as an MLflow model under a run, register it, and make it champion.

    Parameters
    ----------
    run_id : str
        Id of the final run of the promoted model.
    bundle : Path
        Folder written by `voxcast.serving.bundle.write_bundle`, with this name.
    promoted : str
        The application for which this version is made.

    Returns
    -------
    str
        Number of the version.
    """
    import mlflow
    from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR

    from voxcast.serving import predictor_file, requirements
    from voxcast.serving.signature import example, signature

    MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
    previous = champion(mlflow.get_tracking_uri())
    registered_bundle = Bundle.load(bundle)
    promotions = {name: app.promotion for name, app in registered_bundle.apps.items()}
    summaries = {name: _summary(promotion) for name, promotion in promotions.items()}
    with mlflow.start_run(run_id=run_id):
        logged = mlflow.pyfunc.log_model(
            name=MODEL_NAME,
            python_model=str(predictor_file()),
            artifacts={FOLDER: str(bundle)},
            signature=signature(registered_bundle.lab_characteristics),
            # Given explicitly, so that MLflow does not run pip to infer them.
            pip_requirements=requirements(),
            input_example=example(promoted),
        )
    tags = {
        "promoted": promoted,
        "promoted_from_version": "none" if previous is None else previous.number,
        "apps": json.dumps(
            {name: summaries.get(name) for name in registered_bundle.facts}, sort_keys=True
        ),
    }
    registered = mlflow.register_model(logged.model_uri, MODEL_NAME, tags=tags)
    set_champion(registered.version)
    describe_model(mlflow.MlflowClient(), MODEL_NAME, registered.version, promoted, promotions)
    return str(registered.version)


def _summary(promotion: Promotion) -> dict[str, Any]:
    """Return what ``voxcast models`` shows of a promotion."""
    return {name: getattr(promotion, name) for name in SUMMARY}


def write_marker(project: Path, version: str | None, experiment_id: str) -> None:
    """Write the marker, which records the registry; it is an output of the stage `register`."""
    content = {
        "model": CHAMPION_URI,
        "version": version,
        "tracking_uri": _portable(tracking_uri(project), project),
        "experiment_id": experiment_id,
    }
    write_json(project / MARKER, content)


def forget_lost(project: Path) -> bool:
    """Remove the marker if its registry is gone or was emptied, or another one is configured.

    The next ``dvc repro`` then registers a model again.

    Returns
    -------
    bool
        Whether the marker was removed.
    """
    marker, uri = project / MARKER, tracking_uri(project)
    if not marker.is_file():
        return False
    content = read_json(marker)
    if content.get("tracking_uri") == _portable(uri, project) and not is_missing(uri):
        try:
            numbers = {version.number for version in versions(uri)}
        except ModelError:  # it cannot be read now, which does not mean that it is lost
            return False
        if content.get("version") in (None, *numbers):
            return False
    marker.unlink()
    return True


def _portable(uri: str, project: Path) -> str:
    """Return an address for the marker: the same after a project was moved, and no secret."""
    if path_of(uri) == project.resolve() / DATABASE:
        return f"{SQLITE}{DATABASE}"
    return without_password(uri)


def use(project: Path | None) -> str:
    """Point MLflow at the registry and return its address.

    Raises
    ------
    ModelError
        If the registry is missing or damaged, its artifacts are elsewhere, or its server does not
        answer.
    """
    folder = project or Path.cwd()
    uri = tracking_uri(folder)
    check_registry(uri)
    relocate(folder, uri)
    import mlflow

    mlflow.set_tracking_uri(uri)
    return uri
