"""``voxcast status``: a submission or a campaign, or whether predictions still hold."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import ConfigError, VoxcastError, one_line

if TYPE_CHECKING:
    from voxcast.jobs.collect import ProjectVolumes
    from voxcast.jobs.submission import Submission


logger = logging.getLogger(__name__)


def status(
    where: Annotated[
        str | None,
        Argument(
            metavar="DIR|CAMPAIGN",
            show_default=False,
            help="Folder of a submission or of its results, or a campaign.",
        ),
    ] = None,
    collect: Annotated[
        bool,
        Option("--collect", help="Add what has ended to the project's history, to learn from."),
    ] = False,
    drift: Annotated[
        bool, Option("--drift", help="Tell whether predictions still hold for the last jobs.")
    ] = False,
    last: Annotated[int, Option("--last", metavar="N", help="--drift: jobs.", min=1)] = 200,
    app: options.App = None,
    changes: options.Set = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show how far a submission or a campaign is; nothing is changed without --collect.

    With --drift the exit code is 0 if nothing drifted, 1 if something did, and 3 if there are too
    few jobs to tell.
    """
    if drift:
        from voxcast.cli.drift import show_drift

        return show_drift(project, app, last, as_json=as_json)
    if where is None:
        raise ConfigError("is missing", "DIR|CAMPAIGN", "or give --drift")
    folder = Path(where)
    if not folder.exists() and "/" not in where:
        from voxcast.cli.measure_campaign import collect_campaign, show_campaign

        act = collect_campaign if collect else show_campaign
        act(project, where, changes or [], as_json=as_json)
        return 0
    return _submission(folder, projects.require(project) if collect else None, as_json=as_json)


def _submission(folder: Path, root: Path | None, *, as_json: bool) -> int:
    from voxcast.jobs.collect import collected_text
    from voxcast.jobs.state import (
        SubmissionState,
        states_seen,
        status_record,
        task_rows,
        text_lines,
    )
    from voxcast.jobs.submission import Submission

    submission = Submission.open(folder)
    is_drawn = submission.plan.draw is not None
    if is_drawn and root is not None:
        then = "`voxcast measure --campaign NAME --cluster C` collects the runs of workers"
        raise ConfigError("adds the jobs of a submission", "--collect", then)
    state = SubmissionState.of(submission.plan, submission.events())
    try:
        current = states_seen(submission, state)
    except (VoxcastError, OSError) as error:
        current = {}
        logger.warning("what runs now is not known: %s", one_line(error))
    rows = task_rows(submission, state, current)
    jobs = None if root is None else collected(submission, root)
    if as_json:
        content = status_record(submission, rows)
        content |= {} if jobs is None else {"collected": jobs}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        for line in text_lines(submission, rows):
            print(line)
        if jobs is not None:
            print(f"  {collected_text(jobs)}")
    return 0


ON_RECORD = Path("data/catalogue/on_record.parquet")
APP_FILES = Path("conf/app")


def collected(submission: Submission, folder: Path) -> dict[str, Any]:
    """Record the ended jobs of a submission in the history of a project.

    Raises
    ------
    VoxcastError
        If the project or its history cannot be read.
    """
    from voxcast.jobs.collect import BATCH, collect_jobs

    result = collect_jobs(submission, folder / projects.HISTORY / BATCH, _volumes(folder))
    for reason, count in result["without_image"].items():
        logger.warning("%d jobs cannot train: %s", count, reason)
    return result


def collect_at_end(submission: Submission, folder: Path | None) -> None:
    """Do the same at the end of a submission that was made in a project with its application.

    A failure is logged: `voxcast status --collect` does it later.
    """
    try:
        root = projects.find(folder)
        if root is None or not (root / APP_FILES / f"{submission.plan.app.name}.yaml").is_file():
            return
        from voxcast.jobs.collect import collected_text

        logger.info("%s", collected_text(collected(submission, root)))
    except VoxcastError as error:
        then = f"voxcast status {submission.folder} --collect"
        logger.warning("not in the history: %s; `%s` tries again", one_line(error), then)


def _volumes(folder: Path) -> ProjectVolumes:
    from voxcast import config
    from voxcast.images.characteristics import load_lab_characteristics
    from voxcast.jobs.collect import ProjectVolumes

    features = config.load(folder / config.PARAMS_FILE).features
    lab = load_lab_characteristics(features.characteristics, folder)
    by_voxels = {}
    if (folder / ON_RECORD).is_file():
        import pandas as pd

        table = pd.read_parquet(
            folder / ON_RECORD, columns=["voxel_sha256", "volume_id", "subject"]
        )
        rows = table.dropna().itertuples(index=False)
        by_voxels = {str(voxels): (str(name), str(subject)) for voxels, name, subject in rows}
    return ProjectVolumes(by_voxels, features.coarse_points, lab)
