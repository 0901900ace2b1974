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
from voxcast.tracking.address import (
    ARTIFACTS,
    DATABASE,
    errors_of_mlflow,
    is_mlflow_server,
    path_of,
    tracking_uri,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

EXPERIMENT = "voxcast"
NOTE = "mlflow.note.content"  # the tag that MLflow's page shows as a description
Kind = Literal["campaign", "study", "trial", "final", "trace"]
NOTES = {
    "campaign": "One pass of the search: a study for each family, with its trials.",
    "study": "The search over one family. The metrics are those of its best trial, out of fold.",
    "trial": "One set of parameters. `cv/` metrics are out of fold, with whole subjects held out.",
    "final": "A family with its best parameters, fitted to all training subjects. `cv/` metrics "
    "are out of fold, `test/` metrics are on unseen subjects; errors are in percent.",
    "trace": "Phases of a parallel run, from the trace of its communication. `phases.html` shows "
    "them.",
}
_DESCRIPTION = """Models of runtime and memory of neuroimaging applications.

Runs are nested: campaign, study (one for each family), trial, final. The filter
`tags.kind = 'final'` shows the finals; filter by `tags.app` to compare the families of one
application. `mape` is the mean absolute error in percent, `coverage` the share of unseen subjects
below the upper bound, `objective` the mean absolute error of the logarithms of CPU time and
memory, by which families are ranked.
"""


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Session:
    """A connection to the tracking server: the experiment, and the tags of every run."""

    outer_run_id: str | None
    experiment_id: str
    tags: dict[str, str] = field(default_factory=dict)


def connect(project: Path) -> Session:
    """Point MLflow at the project's server and experiment.

    A run id inherited from ``mlflow run`` becomes the parent of all runs. It is removed from the
    environment, so that no later ``start_run`` resumes that run by accident.

    Raises
    ------
    ModelError
        If the database is damaged, or the server does not answer.
    """
    uri = tracking_uri(project)
    with errors_of_mlflow(uri):
        return _open_session(project, uri)


def _open_session(project: Path, uri: str) -> Session:
    import mlflow

    mlflow.set_tracking_uri(uri)
    outer_run_id = os.environ.pop("MLFLOW_RUN_ID", None)
    if outer_run_id is None:
        experiment_id = _experiment(project, uri)
    else:
        experiment_id = mlflow.get_run(outer_run_id).info.experiment_id
    mlflow.set_experiment(experiment_id=experiment_id)
    _close_abandoned()
    return Session(outer_run_id, experiment_id, provenance(project))


def _experiment(project: Path, uri: str) -> str:
    """Return the id of the experiment, created if needed.

    MLflow stores where the files of an experiment are, as an absolute path that cannot be changed.
    In a project that was moved or copied the experiment is renamed, and another takes its place,
    so that nothing is written to the former place.
    """
    import mlflow

    client = mlflow.MlflowClient()
    # A server decides for itself; MLflow would use the current folder.
    here = None if is_mlflow_server(uri) else (project.resolve() / ARTIFACTS).as_uri()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is not None:
        place = experiment.artifact_location
        if path_of(uri) != project.resolve() / DATABASE or place == here:
            return str(experiment.experiment_id)
        former = f"{EXPERIMENT} of {place.removeprefix('file://')}"
        client.rename_experiment(experiment.experiment_id, former)
        logger.info("this project was moved; its former runs are in the experiment %r", former)
    tags = {NOTE: _DESCRIPTION, "mlflow.experimentKind": "custom_model_development"}
    return str(client.create_experiment(EXPERIMENT, here, tags=tags))


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
    matches = mlflow.search_runs(  # of the current experiment
        filter_string=" and ".join(
            f"tags.{key} = '{value}'" for key, value in required_tags.items()
        ),
        order_by=["attributes.start_time DESC"],
        max_results=1,
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
