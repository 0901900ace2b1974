"""A pass of learning as nested MLflow runs, from its files: campaign, study, trial, final.

The stages that search, fit and judge write files and know nothing of MLflow. A database that was
lost is filled from them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.files import sha256_file, sha256_folder
from voxcast.models.selection.cross_validation import TRAIN
from voxcast.models.selection.leaderboard import GRID, load_trials
from voxcast.tracking import runs
from voxcast.tracking.challengers import TUNED
from voxcast.tracking.finals import final_run
from voxcast.tracking.runs import prefixed, run

if TYPE_CHECKING:
    from voxcast.models.metrics import Metrics
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.models.selection.search import Trial
    from voxcast.tracking.challengers import Challenger
    from voxcast.tracking.runs import Session


def log_search(
    session: runs.Session,
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
    if runs.find("campaign", tuned_sha256=sha256):
        return
    path = project / TRAIN
    table, tags = pd.read_parquet(path), {"table_sha256": sha256_file(path)}
    totals = {
        "runs": len(table),
        "subjects": table["subject"].nunique(),
        "cpu_hours": table["cpu_s"].sum() / 3600,
    }
    title = f"campaign {campaign}"
    with runs.run(session, "campaign", title, tags=tags, params=params, metrics=totals) as run_id:
        runs.log_dataset(run_id, table, path, tags["table_sha256"], "training")
        for app, challenger in challengers.items():
            trials = load_trials(project / TUNED / app)
            _log_studies(session, run_id, {**tags, "app": app}, challenger.leaderboard, trials)
        # At the end, so that a log that was interrupted is written again.
        mlflow.set_tag("tuned_sha256", sha256)


def _log_studies(
    session: runs.Session,
    campaign: str,
    tags: Mapping[str, str],
    leaderboard: Leaderboard,
    trials: Mapping[str, list[Trial]],
) -> None:
    """Log a study for each family and ensemble, and one for the best family, named ``grid``."""
    by_name = leaderboard.metrics[leaderboard.input_level]
    for name, metrics in {**by_name, GRID: by_name[leaderboard.best_family]}.items():
        of_family = trials.get(name, [])
        params = leaderboard.params[name] if name in trials else {}
        _log_study(session, campaign, {**tags, "family": name}, of_family, params, metrics)


def _log_study(
    session: runs.Session,
    campaign: str,
    tags: Mapping[str, str],
    trials: list[Trial],
    params: Mapping[str, Any],
    metrics: Metrics,
) -> None:
    names = {"app": tags["app"], "family": tags["family"]}
    title = f"{names['app']} {names['family']}"
    with runs.run(
        session, "study", title, parent=campaign, tags=tags,
        params={**params, **names, "trials": len(trials)},
        metrics=runs.prefixed("cv", metrics),
    ) as study:  # fmt: skip
        for trial in trials:
            with runs.run(
                session, "trial", f"{title} {trial.number}", parent=study,
                tags={**tags, "state": trial.state}, params={**trial.params, **names},
                metrics=runs.prefixed("cv", trial.metrics) | {"fit_s": trial.duration_s},
            ):  # fmt: skip
                pass


def log_finals(
    session: runs.Session,
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
    for app, challenger in challengers.items():
        leaderboard = challenger.leaderboard
        for name, params in leaderboard.params.items():
            run_id = final_run(
                session, app, name, challenger.models / name, challenger.table_sha256, params,
                leaderboard.metrics["volume"][name],
            )  # fmt: skip
            errors = evaluated.get(app, {}).get(name, {})
            flat = {f"{t}/{metric}": v for t, of in errors.items() for metric, v in of.items()}
            runs.add(run_id, runs.prefixed("test", flat))
            runs.log_dataset(
                run_id, challenger.table, project / TRAIN, challenger.table_sha256, "training"
            )


PHASES_FILE, PAGE_FILE = "phases.json", "phases.html"


def log_phases(
    session: Session,
    name: str,
    metrics: Mapping[str, float],
    phases: Mapping[str, Any],
    page: str,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Log the phases of a traced run as a run of its kind, and return its id.

    Parameters
    ----------
    session : Session
        Of `voxcast.tracking.runs.connect`.
    name : str
        Name of the run.
    metrics : mapping
        Logged with the prefix ``phases``.
    phases : mapping
        What JSON can hold; the artifact ``phases.json``.
    page : str
        HTML; the artifact ``phases.html``.
    tags : mapping, optional
        For example ``app`` and ``cell_key``.
    """
    import mlflow

    with run(session, "trace", name, tags=tags, metrics=prefixed("phases", metrics)) as run_id:
        mlflow.log_dict(dict(phases), PHASES_FILE)
        mlflow.log_text(page, PAGE_FILE)
    return run_id
