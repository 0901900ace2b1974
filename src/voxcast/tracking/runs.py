"""Nested MLflow runs: campaign, study, trial, final; and the phases of traced runs.

Stages are separate processes, so a run is looked up by its tags, never by an id in a file: ids are
valid on one tracking server only, while results are in git.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import voxcast
from voxcast.commits import commit_of
from voxcast.errors import ModelError
from voxcast.serving.registry.database import ARTIFACTS, DATABASE, address_of, is_missing
from voxcast.serving.registry.lookup import check_registry
from voxcast.serving.registry.sql_server import without_password
from voxcast.serving.registry.tracking_server import is_server
from voxcast.tracking.relocation import relocate
from voxcast.tracking.views import NOTE, NOTES, describe_experiment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

EXPERIMENT = "voxcast"
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
Kind = Literal["campaign", "study", "trial", "final", "trace"]


@dataclass(frozen=True)
class Session:
    """A connection to the tracking server: the experiment, and the tags of every run."""

    outer_run_id: str | None
    experiment_id: str
    tags: dict[str, str] = field(default_factory=dict)


def tracking_uri(project: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI``, or the address of the project's database."""
    return os.environ.get(TRACKING_VARIABLE) or address_of(project.resolve() / DATABASE)


def connect(project: Path) -> Session:
    """Point MLflow at the project's server and experiment.

    A run id inherited from ``mlflow run`` becomes the parent of all runs. It is removed from the
    environment, so that no later ``start_run`` resumes that run by accident.

    Raises
    ------
    ModelError
        If the database is damaged, its artifacts are elsewhere, or the server does not answer.
    """
    uri = tracking_uri(project)
    if not is_missing(uri):  # MLflow makes a new one
        check_registry(uri)
        relocate(project, uri)
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return _open_session(project, uri)
    except (mlflow.MlflowException, OSError, ImportError) as error:
        raise ModelError(
            f"runs cannot be tracked: {error}", without_password(uri), "see MLFLOW_TRACKING_URI"
        ) from error


def _open_session(project: Path, uri: str) -> Session:
    import mlflow

    mlflow.set_tracking_uri(uri)
    outer_run_id = os.environ.pop("MLFLOW_RUN_ID", None)
    if outer_run_id is None and mlflow.get_experiment_by_name(EXPERIMENT) is None:
        # A server decides for itself; MLflow would use the current folder.
        location = None if is_server(uri) else (project.resolve() / ARTIFACTS).as_uri()
        mlflow.create_experiment(EXPERIMENT, artifact_location=location)
    if outer_run_id is None:
        experiment = mlflow.set_experiment(EXPERIMENT)
    else:
        outer = mlflow.get_run(outer_run_id)
        experiment = mlflow.set_experiment(experiment_id=outer.info.experiment_id)
    describe_experiment(mlflow.MlflowClient(), experiment.experiment_id)
    _close_abandoned()
    return Session(outer_run_id, experiment.experiment_id, provenance(project))


def _close_abandoned() -> None:
    """Mark the open runs of dead processes on this machine as killed."""
    import mlflow

    client = mlflow.MlflowClient()
    host = socket.gethostname()
    for abandoned in mlflow.search_runs(
        filter_string=f"attributes.status = 'RUNNING' and tags.host = '{host}'",
        output_format="list",
    ):
        pid = abandoned.data.tags.get("pid", "")
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            client.set_terminated(abandoned.info.run_id, "KILLED")


def provenance(project: Path) -> dict[str, str]:
    """Return the tags of every run: commit, DVC hashes of table and profiles, machine, version."""
    tags = {"host": socket.gethostname(), "voxcast_version": voxcast.__version__}
    tags["pid"] = str(os.getpid())
    try:
        tags["user"] = getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        tags["user"] = str(os.getuid())
    if git_commit := commit_of(project):
        tags["git_commit"] = git_commit
    hashes = _locked_hashes(project / "dvc.lock")
    for tag, path in (("dvc_table_md5", "data/features"), ("dvc_profiles_md5", "data/runs/cpu")):
        if path in hashes:
            tags[tag] = hashes[path]
    return tags


def _locked_hashes(lock: Path) -> dict[str, str]:
    if not lock.is_file():
        return {}
    import yaml

    stages = (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
    return {
        out["path"]: out.get("md5", "")
        for stage in stages.values()
        for out in stage.get("outs", ())
    }


@contextmanager
def run(
    session: Session,
    kind: Kind,
    name: str,
    *,
    parent: str | None = None,
    tags: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Iterator[str]:
    """Open a run, log its tags, parameters and metrics, and close it; yields its id.

    Parameters
    ----------
    session : Session
        Returned by `connect`.
    kind : {"campaign", "study", "trial", "final", "trace"}
        Value of the tag ``kind``.
    name : str
        Display name.
    parent : str, optional
        Id of the parent run.
    tags, params, metrics : mapping, optional
        Logged when the run is opened.
    """
    import mlflow

    parent_run_id = parent or session.outer_run_id
    with mlflow.start_run(
        run_name=name,
        nested=parent_run_id is not None,
        parent_run_id=parent_run_id,
        tags={**session.tags, "kind": kind, NOTE: NOTES[kind], **(tags or {})},
    ) as active:
        if params:
            mlflow.log_params(dict(params))
        if metrics:
            mlflow.log_metrics(dict(metrics))
        yield active.info.run_id


def find(kind: Kind, **tags: str) -> str | None:
    """Return the id of the newest run of a kind with these tags, or None."""
    import mlflow

    required_tags = {"kind": kind, **tags}
    matches = mlflow.search_runs(
        filter_string=" and ".join(
            f"tags.{key} = '{value}'" for key, value in required_tags.items()
        ),
        order_by=["attributes.start_time DESC"],
        max_results=1,
        search_all_experiments=True,
        output_format="list",
    )
    return matches[0].info.run_id if matches else None


def log_dataset(run_id: str, table: pd.DataFrame, path: Path, sha256: str, context: str) -> None:
    """Log a table, by path and hash, as an input of a run."""
    import mlflow

    # Doubles, as in the signature: an integer column cannot hold a missing value.
    integers = table.select_dtypes("integer").columns
    with warnings.catch_warnings():
        # A local path matches two source types of MLflow; either works.
        warnings.simplefilter("ignore", category=UserWarning)
        dataset = mlflow.data.from_pandas(  # type: ignore[attr-defined]
            table.astype(dict.fromkeys(integers, float)),
            source=str(path),
            name=path.stem,
            targets="cpu_s",
            digest=sha256[:32],
        )
    active = mlflow.active_run()
    if active is not None and active.info.run_id == run_id:
        mlflow.log_input(dataset, context=context)
    else:
        with mlflow.start_run(run_id=run_id):
            mlflow.log_input(dataset, context=context)


def add(
    run_id: str, metrics: Mapping[str, float], params: Mapping[str, Any] | None = None
) -> None:
    """Add metrics and parameters to an existing run."""
    import mlflow

    mlflow.log_metrics(dict(metrics), run_id=run_id)
    client = mlflow.MlflowClient()
    for key, value in (params or {}).items():
        client.log_param(run_id, key, value)


def prefixed(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Prefix every name: ``cv`` for out-of-fold, ``test`` for unseen subjects.

    Examples
    --------
    >>> prefixed("cv", {"cpu_s/mape": 4.0})
    {'cv/cpu_s/mape': 4.0}
    """
    return {f"{prefix}/{name}": value for name, value in metrics.items()}
