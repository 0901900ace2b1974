"""Writing to the model registry: new versions, the champion, and the marker in the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.files import read_json, write_json
from voxcast.serving.bundle import FOLDER, Bundle
from voxcast.serving.model_card import model_card
from voxcast.serving.registry.database import DATABASE, SQLITE, is_missing, path_of
from voxcast.serving.registry.lookup import (
    CHAMPION,
    CHAMPION_URI,
    MODEL_NAME,
    check_registry,
)
from voxcast.serving.registry.model_layout import CARD
from voxcast.serving.registry.registered_files import TAG as FILES_TAG
from voxcast.serving.registry.registered_files import hashes_of
from voxcast.serving.registry.sql_server import without_password
from voxcast.tracking.registered_versions import champion, versions
from voxcast.tracking.relocation import relocate
from voxcast.tracking.runs import tracking_uri
from voxcast.tracking.version_tags import NO_VERSION, record_tags
from voxcast.tracking.views import describe_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlflow.models.model import ModelInfo

    from voxcast.serving.served_app import Promotion

MARKER = Path("mlruns/registered.json")
# What the list of versions says of each application.
SUMMARY = (
    "family", "reason", "calibrated", "subjects", "runs", "cv_objective", "promoted_at",
)  # fmt: skip


def set_alias(alias: str, version: str) -> None:
    """Give an alias to an existing version, which another one then no longer has."""
    import mlflow

    mlflow.MlflowClient().set_registered_model_alias(MODEL_NAME, alias, version)


def set_tags(version: str, tags: Mapping[str, str]) -> None:
    """Add tags to an existing version."""
    import mlflow

    client = mlflow.MlflowClient()
    for name, value in tags.items():
        client.set_model_version_tag(MODEL_NAME, version, name, value)


def register(run_id: str, bundle: Path, promoted: str, alias: str = CHAMPION) -> str:
    """Log a bundle as an MLflow model under a run, register it, and give it an alias.

    Parameters
    ----------
    run_id : str
        Id of the final run of the promoted model.
    bundle : Path
        Folder written by `voxcast.serving.bundle.write_bundle`, with this name.
    promoted : str
        The application for which this version is made.
    alias : str
        By default it becomes champion.

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
    card = bundle.with_name(CARD)
    card.write_text(model_card(registered_bundle), encoding="utf-8")
    with mlflow.start_run(run_id=run_id) as run:
        logged = mlflow.pyfunc.log_model(
            name=MODEL_NAME,
            python_model=str(predictor_file()),
            artifacts={FOLDER: str(bundle), "model_card": str(card)},
            signature=signature(registered_bundle.lab_characteristics),
            # Given explicitly, so that MLflow does not run pip to infer them.
            pip_requirements=requirements(),
            input_example=example(promoted),
        )
    number = NO_VERSION if previous is None else previous.number
    tags = {
        **record_tags(registered_bundle, promoted, run.data.tags.get("git_commit", "")),
        "promoted_from_version": number,
        "apps": json.dumps(
            {name: summaries.get(name) for name in registered_bundle.facts}, sort_keys=True
        ),
        FILES_TAG: json.dumps(hashes_of(_files_of(logged)), sort_keys=True),
    }
    registered = mlflow.register_model(logged.model_uri, MODEL_NAME, tags=tags)
    set_alias(alias, registered.version)
    describe_model(mlflow.MlflowClient(), MODEL_NAME, registered.version, promoted, promotions)
    return str(registered.version)


def _files_of(logged: ModelInfo) -> Path:
    """Return the folder of a logged model, downloaded unless it is on this machine."""
    from mlflow.artifacts import download_artifacts

    return Path(download_artifacts(f"models:/{logged.model_id}"))


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
