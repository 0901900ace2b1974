"""A pass of learning as nested MLflow runs, and the phases of traced runs.

The stages that search, fit and judge write files and know nothing of MLflow. A database that was
lost is filled from them again: campaign, study, trial, final.

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
from voxcast.files import sha256_file, sha256_folder
from voxcast.models.selection.cross_validation import TRAIN
from voxcast.models.selection.leaderboard import GRID, load_trials
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

    from voxcast.models.selection.leaderboard import Leaderboard, Trial
    from voxcast.tracking.challengers import Challenger

TUNED = Path("data/tune")
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
        import mlflow

        mlflow.set_tracking_uri(uri)
        outer_run_id = os.environ.pop("MLFLOW_RUN_ID", None)
        if outer_run_id is None:
            experiment_id = _experiment(project, uri)
        else:
            experiment_id = mlflow.get_run(outer_run_id).info.experiment_id
        mlflow.set_experiment(experiment_id=experiment_id)
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


def provenance(project: Path) -> dict[str, str]:
    """Return the tags of every run: commit, machine, user and version."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        user = str(os.getuid())
    tags = {"host": socket.gethostname(), "voxcast_version": voxcast.__version__, "user": user}
    commit = commit_of(project)
    return tags | ({"git_commit": commit} if commit else {})


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


def log_dataset(table: pd.DataFrame, path: Path, sha256: str) -> None:
    """Log a training table, by path and hash, as an input of the open run."""
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
    mlflow.log_input(dataset, context="training")


def prefixed(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Prefix every name: ``cv`` for out-of-fold, ``test`` for unseen subjects.

    Examples
    --------
    >>> prefixed("cv", {"cpu_s/mape": 4.0})
    {'cv/cpu_s/mape': 4.0}
    """
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def final_run(
    session: Session,
    app: str,
    family: str,
    forecaster: Path,
    table_sha256: str,
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> str:
    """Return the id of the final run of a fitted family, found by the hash of its files or made.

    The tracking server may have changed since, and a forecaster may be of an older version.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    app, family : str
        Names of the application and of the family.
    forecaster : Path
        Folder of the fitted model.
    table_sha256 : str
        Hash of the training table.
    params, metrics : mapping
        Parameters and metrics of the family on the leaderboard.
    """
    tags = {"app": app, "family": family, "table_sha256": table_sha256}
    sha256 = sha256_folder(forecaster)
    if existing := find("final", **tags, forecaster_sha256=sha256):
        return existing
    study = find("study", app=app, family=family, table_sha256=table_sha256)
    with run(
        session,
        "final",
        f"{app} {family} final",
        parent=study,
        tags={**tags, "forecaster_sha256": sha256},
        params={**params, "app": app, "family": family},
        metrics=prefixed("cv", metrics),
    ) as run_id:
        return run_id


def log_search(
    session: Session,
    project: Path,
    challengers: Mapping[str, Challenger],
    campaign: str,
    params: Mapping[str, Any],
) -> None:
    """Log the search of the last pass: a campaign, its studies and their trials; once.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    project : Path
        Project folder.
    challengers : mapping
        The best model of each application.
    campaign : str
        Name of the campaign.
    params : mapping
        Its parameters.
    """
    import mlflow

    sha256 = sha256_folder(project / TUNED)
    if find("campaign", tuned_sha256=sha256):
        return
    path = project / TRAIN
    import pandas as pd

    table, tags = pd.read_parquet(path), {"table_sha256": sha256_file(path)}
    totals = {
        "runs": len(table),
        "subjects": table["subject"].nunique(),
        "cpu_hours": table["cpu_s"].sum() / 3600,
    }
    title = f"campaign {campaign}"
    with run(session, "campaign", title, tags=tags, params=params, metrics=totals) as run_id:
        log_dataset(table, path, tags["table_sha256"])
        for app, challenger in challengers.items():
            trials = load_trials(project / TUNED / app)
            _log_studies(session, run_id, tags, app, challenger.leaderboard, trials)
        # At the end, so that a log that was interrupted is written again.
        mlflow.set_tag("tuned_sha256", sha256)


def _log_studies(
    session: Session,
    campaign: str,
    tags: Mapping[str, str],
    app: str,
    leaderboard: Leaderboard,
    trials: Mapping[str, list[Trial]],
) -> None:
    """Log a study for each family and ensemble, and one for the best family, named ``grid``."""
    by_name = leaderboard.metrics[leaderboard.input_level]
    for family, metrics in {**by_name, GRID: by_name[leaderboard.best_family]}.items():
        names, title = {"app": app, "family": family}, f"{app} {family}"
        of_family = trials.get(family, [])
        params = leaderboard.params[family] if family in trials else {}
        with run(
            session, "study", title, parent=campaign, tags={**tags, **names},
            params={**params, **names, "trials": len(of_family)}, metrics=prefixed("cv", metrics),
        ) as study:  # fmt: skip
            for trial in of_family:
                with run(
                    session, "trial", f"{title} {trial.number}", parent=study,
                    tags={**tags, **names, "state": trial.state},
                    params={**trial.params, **names},
                    metrics=prefixed("cv", trial.metrics) | {"fit_s": trial.duration_s},
                ):  # fmt: skip
                    pass


def log_finals(
    session: Session,
    project: Path,
    challengers: Mapping[str, Challenger],
    evaluated: Mapping[str, Mapping[str, Any]],
) -> None:
    """Log every fitted model with its errors out of fold and on unseen subjects.

    Parameters
    ----------
    evaluated : mapping
        Errors on unseen subjects by application, family and target.
    """
    import mlflow

    for app, challenger in challengers.items():
        leaderboard = challenger.leaderboard
        for name, params in leaderboard.params.items():
            run_id = final_run(
                session, app, name, challenger.models / name, challenger.table_sha256, params,
                leaderboard.metrics["volume"][name],
            )  # fmt: skip
            errors = evaluated.get(app, {}).get(name, {})
            flat = {f"{t}/{metric}": v for t, of in errors.items() for metric, v in of.items()}
            with mlflow.start_run(run_id=run_id):
                mlflow.log_metrics(prefixed("test", flat))
                log_dataset(challenger.table, project / TRAIN, challenger.table_sha256)
