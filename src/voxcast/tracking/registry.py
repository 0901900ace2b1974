"""MLflow's registry: each version is registered there too, under one number and alias.

A project predicts with the versions in its `voxcast.serving.model_store`. A version is logged in
MLflow, gets the alias ``champion`` there, and then becomes the champion of the project; a process
that is killed between leaves a version that `pull` fetches.
"""

from __future__ import annotations

import contextlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import serving
from voxcast.errors import ModelError, UnlearnedError
from voxcast.files import read_json, sha256_file, write_json
from voxcast.serving.bundle import INDEX, Bundle
from voxcast.serving.model_card import model_card
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.address import (
    DATABASE,
    SQLITE,
    errors_of_mlflow,
    path_of,
    tracking_uri,
    without_password,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

MODEL_NAME = "voxcast"
CHAMPION = "champion"
CHAMPION_URI = f"models:/{MODEL_NAME}@{CHAMPION}"
FOLDER = "bundle"  # of the bundle among the artifacts of a model
CARD = "model_card.md"  # beside it
SHA256_TAG = "bundle_sha256"
PREDICTOR = Path(serving.__file__).with_name("predictor.py")  # logged as the model's code
MARKER = Path("models/registered.json")
# By which MLflow says that a registry has no such model or alias.
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
NOTE = """Runtime and memory of applications on an image, as quantiles by configuration.

A version is a bundle: one forecaster for each application. A promotion replaces that of one
application, makes a new version, and carries the others over. The alias `champion` is what
`voxcast predict`, `recommend` and `serve` use.
"""


@contextlib.contextmanager
def mlflow_client(uri: str) -> Iterator[MlflowClient]:
    """Give MLflow's client, keep its output off stdout, and make its errors one line.

    Raises
    ------
    ModelError
        If the registry does not answer, or refuses a request in the block.
    """
    with errors_of_mlflow(uri), contextlib.redirect_stdout(sys.stderr):
        import mlflow

        yield mlflow.MlflowClient(uri, uri)


def requirements() -> list[str]:
    """Return the requirements of a served model, with the installed versions."""
    names = ("voxcast", "torch", "mlflow", "nibabel", "numpy", "pandas", "scipy")
    # The tag of a local build, such as +cpu, is not part of a public release.
    return [f"{name}=={metadata.version(name).split('+')[0]}" for name in names]


def register(project: Path, run_id: str, folder: Path) -> str:
    """Log a bundle under a run, register it, and make it the champion; return its number.

    Parameters
    ----------
    project : Path
        Project folder, to whose server MLflow was pointed by `voxcast.tracking.runs.connect`.
    run_id : str
        Id of a run there.
    folder : Path
        A folder of `ModelStore.new_folder` in which a bundle was written; it is moved.

    Raises
    ------
    ModelError
        If it cannot be logged or registered.
    """
    import mlflow
    from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR

    from voxcast.serving.signature import example, signature

    store, bundle = ModelStore.of(project), Bundle.load(folder)
    highest = max(map(int, store.pointer().numbers), default=0)
    card = folder.with_name(CARD)
    card.write_text(model_card(bundle), encoding="utf-8")
    MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
    with mlflow_client(tracking_uri(project)) as client:
        with mlflow.start_run(run_id=run_id):
            logged = mlflow.pyfunc.log_model(
                name=MODEL_NAME,
                python_model=str(PREDICTOR),
                artifacts={FOLDER: str(folder), "model_card": str(card)},
                signature=signature(),
                # Given explicitly, so that MLflow does not run pip to infer them.
                pip_requirements=requirements(),
                input_example=example(bundle.origin.promoted),
            )
        tags = {SHA256_TAG: sha256_file(folder / INDEX), **_tags(bundle)}
        version = mlflow.register_model(logged.model_uri, MODEL_NAME, tags=tags)
        while int(version.version) <= highest:  # a new registry counts from 1
            client.delete_model_version(MODEL_NAME, version.version)
            version = mlflow.register_model(logged.model_uri, MODEL_NAME, tags=tags)
        number = str(version.version)
        if not client.get_registered_model(MODEL_NAME).description:
            client.update_registered_model(MODEL_NAME, NOTE)
        client.update_model_version(MODEL_NAME, number, f"See `artifacts/{CARD}`.")
        client.set_registered_model_alias(MODEL_NAME, CHAMPION, number)
    store.add(number, folder)
    return number


def _tags(bundle: Bundle) -> dict[str, str]:
    """Return the facts of a version for a search by ``client.search_model_versions``.

    MLflow compares tags as text.
    """
    origin = bundle.origin
    tags = {"promoted": origin.promoted, "git_commit": origin.git_commit}
    if origin.promoted in bundle.apps:
        promotion = bundle.apps[origin.promoted].promotion
        tags |= {
            "family": promotion.family,
            "reason": promotion.reason,
            "table_sha256": promotion.table_sha256,
            "calibrated": str(promotion.calibrated).lower(),
            "cv_objective": f"{promotion.cv_objective:.5f}",
        }
    tags["apps"] = json.dumps(bundle.summaries(), sort_keys=True)
    return {name: value for name, value in tags.items() if value}


def set_champion(project: Path, number: str) -> None:
    """Make an older version of a project the champion, in MLflow too; errors as `register`."""
    with mlflow_client(tracking_uri(project)) as client:
        if version_in(client, number) is not None:  # a new registry lacks it
            client.set_registered_model_alias(MODEL_NAME, CHAMPION, number)
    ModelStore.of(project).point(number)


def pull(store: ModelStore, uri: str, number: str | None = None) -> str:
    """Fetch a version from MLflow's registry, if it is not here, and make it the champion.

    Parameters
    ----------
    store : ModelStore
        The versions here.
    uri : str
        Address of the registry.
    number : str, optional
        The version; by default the one with the alias ``champion``.

    Returns
    -------
    str
        Its number.

    Raises
    ------
    ModelError
        If the registry has no such version, its files have changed since they were registered, or
        another version of this number is here.
    """
    with mlflow_client(uri) as client:
        from mlflow.artifacts import download_artifacts
        from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR

        version = version_in(client, number)
        if version is None and number is None:
            then = "train one with `voxcast learn`"
            raise UnlearnedError("the registry has no champion", without_password(uri), then)
        if version is None:
            raise ModelError(f"the registry has no version {number}", without_password(uri))
        number, sha256 = str(version.version), str(version.tags.get(SHA256_TAG, ""))
        if (present := store.pointer().versions.get(number)) is not None:
            if present.sha256 != sha256:
                then = "begin with an empty folder `models` to use this registry"
                raise ModelError(
                    "is another version than the registry's", f"version {number}", then
                )
            store.point(number)
            return number
        with store.new_folder() as work:
            MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
            location = client.get_model_version_download_uri(MODEL_NAME, number)
            location = f"{location}/artifacts/{FOLDER}"
            bundle = Path(
                download_artifacts(location, dst_path=work, tracking_uri=uri, registry_uri=uri)
            )
            for name, problem in Bundle.load(bundle, sha256).problems().items():
                raise ModelError(f"{name}: {problem}", f"version {number} of the registry")
            store.add(number, bundle)
    return number


def follow(store: ModelStore, uri: str) -> None:
    """Take over the champion of a registry that others write to, if it has another one.

    A project's own database is not read: its versions came from here. Errors as in `pull`.
    """
    if path_of(uri) is not None:
        return
    with mlflow_client(uri) as client:
        champion = version_in(client)
    if champion is not None and str(champion.version) != store.pointer().champion:
        pull(store, uri, str(champion.version))


def version_in(client: MlflowClient, number: str | None = None) -> ModelVersion | None:
    """Return a version, by default that with the alias ``champion``; None where there is none."""
    import mlflow

    try:
        if number is None:
            return client.get_model_version_by_alias(MODEL_NAME, CHAMPION)
        return client.get_model_version(MODEL_NAME, number)
    except mlflow.MlflowException as error:
        if error.error_code in _ABSENT:
            return None
        raise


def write_marker(project: Path, experiment_id: str) -> None:
    """Write the marker, which records the registry; it is an output of the stage `register`."""
    content = {
        "model": CHAMPION_URI,
        "version": ModelStore.of(project).pointer().champion,
        "tracking_uri": _portable(tracking_uri(project), project),
        "experiment_id": experiment_id,
    }
    write_json(project / MARKER, content)


def forget_lost(project: Path) -> bool:
    """Remove the marker if its registry or version is gone, or another registry is configured.

    The next ``dvc repro`` then registers a model again.

    Returns
    -------
    bool
        Whether the marker was removed.
    """
    marker, uri = project / MARKER, tracking_uri(project)
    if not marker.is_file():
        return False
    content: dict[str, Any] = read_json(marker)
    database = path_of(uri)
    is_same = content.get("tracking_uri") == _portable(uri, project)
    if is_same and (database is None or database.is_file()):
        try:
            if content.get("version") in (None, *ModelStore.of(project).pointer().numbers):
                return False
        except ModelError:  # it cannot be read now, which does not mean that it is lost
            return False
    marker.unlink()
    return True


def _portable(uri: str, project: Path) -> str:
    """Return an address for the marker: the same after a project was moved, and no secret."""
    if path_of(uri) == project.resolve() / DATABASE:
        return f"{SQLITE}{DATABASE}"
    return without_password(uri)
