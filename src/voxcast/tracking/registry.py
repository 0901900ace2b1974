"""The model registry: one registered model with its versions and its champion."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, one_line
from voxcast.files import read_json, write_json
from voxcast.serving.bundle import FOLDER, Bundle
from voxcast.serving.champion_folder import (
    CHAMPION,
    CHAMPION_URI,
    MODEL_NAME,
    NO_CHAMPION_CODES,
    check_registry,
    no_champion,
)
from voxcast.serving.registry_database import is_missing
from voxcast.tracking.runs import tracking_uri
from voxcast.tracking.views import describe_model

if TYPE_CHECKING:
    from voxcast.serving.bundle import Promotion

MARKER = Path("mlruns/registered.json")
# What the list of versions says of each application.
SUMMARY = (
    "family", "reason", "calibrated", "subjects", "runs", "cv_objective", "promoted_at",
)  # fmt: skip


@dataclass(frozen=True)
class Version:
    """A version of the registered model with its tags."""

    number: str
    tags: dict[str, str]


def champion() -> Version | None:
    """Return the current champion, or None if the registry has none."""
    import mlflow
    from mlflow.exceptions import MlflowException

    client = mlflow.MlflowClient()
    try:
        version = client.get_model_version_by_alias(MODEL_NAME, CHAMPION)
    except MlflowException as error:
        if error.error_code in NO_CHAMPION_CODES:
            return None
        raise
    return Version(str(version.version), dict(version.tags))


def bundle_of(version: str) -> Bundle:
    """Open the bundle of a version, downloaded unless the artifacts are on this machine.

    Raises
    ------
    ModelError
        If there is no such version or its files cannot be read.
    """
    folder = bundle_folder(version)
    if folder is None:
        raise ModelError("has no files of this release", f"version {version}", "run `make repro`")
    return Bundle.load(folder)


def bundle_folder(version: str) -> Path | None:
    """Return the folder of a version's bundle; None if it has none, as those of old releases.

    Raises
    ------
    ModelError
        If there is no such version, or the server cannot be read. A champion that cannot be
        reached now must not be taken for one that is lost.
    """
    import mlflow
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    try:
        model = mlflow.MlflowClient().get_model_version_download_uri(MODEL_NAME, version)
        local = Path(model.removeprefix("file://"), "artifacts", FOLDER)
        if local.is_absolute():
            return local if local.is_dir() else None
        names = {entry.path for entry in mlflow.artifacts.list_artifacts(f"{model}/artifacts")}
        if not any(name.rpartition("/")[2] == FOLDER for name in names):
            return None
        return Path(download_artifacts(artifact_uri=f"{model}/artifacts/{FOLDER}"))
    except (MlflowException, OSError) as error:
        raise ModelError(
            f"cannot be read: {one_line(error)}", f"version {version}", "see `voxcast models`"
        ) from error


def run_of(version: str) -> str:
    """Return the id of the run under which a version was logged."""
    import mlflow

    return str(mlflow.MlflowClient().get_model_version(MODEL_NAME, version).run_id)


def set_champion(version: str) -> None:
    """Make an existing version the champion."""
    import mlflow

    mlflow.MlflowClient().set_registered_model_alias(MODEL_NAME, CHAMPION, version)


def register(run_id: str, bundle: Path, promoted: str) -> Version:
    """Log a bundle as an MLflow model under a run, register it, and make it champion.

    Parameters
    ----------
    run_id : str
        Id of the final run of the promoted model.
    bundle : Path
        Folder written by `voxcast.serving.bundle.write_bundle`, with this name.
    promoted : str
        The application for which this version is made.
    """
    import mlflow
    from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR

    from voxcast.serving import predictor_file, requirements
    from voxcast.serving.signature import example, signature

    MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
    previous = champion()
    served_apps = Bundle.load(bundle).apps
    with mlflow.start_run(run_id=run_id):
        logged = mlflow.pyfunc.log_model(
            name=MODEL_NAME,
            python_model=str(predictor_file()),
            artifacts={FOLDER: str(bundle)},
            signature=signature(),
            # Given explicitly, so that MLflow does not run pip to infer them.
            pip_requirements=requirements(),
            input_example=example(promoted),
        )
    tags = {
        "promoted": promoted,
        "promoted_from_version": "none" if previous is None else previous.number,
        "apps": json.dumps(
            {name: _summary(served.promotion) for name, served in served_apps.items()},
            sort_keys=True,
        ),
    }
    registered = mlflow.register_model(logged.model_uri, MODEL_NAME, tags=tags)
    set_champion(registered.version)
    promotions = {name: served.promotion for name, served in served_apps.items()}
    describe_model(mlflow.MlflowClient(), MODEL_NAME, registered.version, promoted, promotions)
    return Version(str(registered.version), tags)


def _summary(promotion: Promotion) -> dict[str, Any]:
    """Return what `listing` shows of a promotion."""
    return {name: getattr(promotion, name) for name in SUMMARY}


def listing(project: Path | None) -> list[dict[str, Any]]:
    """Return all versions of the registered model, newest first.

    Each has ``version``, ``champion``, ``promoted`` (an application), and ``apps``: the facts
    named in `SUMMARY` by application.

    Raises
    ------
    ModelError
        If the registry cannot be read.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    uri = use(project)
    try:
        current = champion()
        versions = mlflow.MlflowClient().search_model_versions(f"name = '{MODEL_NAME}'")
    except (MlflowException, OSError, ImportError) as error:
        raise ModelError(f"cannot be read: {error}", uri) from error
    number = None if current is None else current.number
    return [
        {
            "version": str(v.version),
            "champion": str(v.version) == number,
            **v.tags,
            "apps": json.loads(v.tags.get("apps", "{}")),
        }
        for v in sorted(versions, key=lambda v: -int(v.version))
    ]


def write_marker(project: Path, version: str | None, experiment_id: str) -> None:
    """Write the marker, which records the registry; it is an output of the stage `register`."""
    content = {
        "model": CHAMPION_URI,
        "version": version,
        "tracking_uri": tracking_uri(project),
        "experiment_id": experiment_id,
    }
    write_json(project / MARKER, content)


def forget_lost(project: Path) -> bool:
    """Remove the marker if its registry no longer exists or another one is configured.

    The next ``dvc repro`` then registers a model again.

    Returns
    -------
    bool
        Whether the marker was removed.
    """
    marker, uri = project / MARKER, tracking_uri(project)
    if not marker.is_file():
        return False
    if read_json(marker).get("tracking_uri") == uri and not is_missing(uri):
        return False
    marker.unlink()
    return True


def required_champion(project: Path | None) -> Version:
    """Return the current champion.

    Raises
    ------
    ModelError
        If there is none, or the registry cannot be read.
    """
    uri = use(project)
    from mlflow.exceptions import MlflowException

    try:
        current = champion()
    except (MlflowException, OSError, ImportError) as error:
        raise ModelError(f"cannot be read: {one_line(error)}", uri) from error
    if current is None:
        raise no_champion(uri)
    return current


def use(project: Path | None) -> str:
    """Point MLflow at the registry and return its address.

    Raises
    ------
    ModelError
        If the registry is missing or damaged, or its server does not answer.
    """
    uri = tracking_uri(project or Path.cwd())
    check_registry(uri)
    import mlflow

    mlflow.set_tracking_uri(uri)
    return uri
