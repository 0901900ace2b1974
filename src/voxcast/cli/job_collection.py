"""Jobs of submissions into the history of a project, for ``voxcast status`` and ``submit``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.errors import VoxcastError, one_line

if TYPE_CHECKING:
    from voxcast.jobs.collect import ProjectVolumes
    from voxcast.jobs.submission import Submission

HISTORY, ON_RECORD = Path("data/history"), Path("data/catalogue/on_record.parquet")
APP_FILES = Path("conf/app")

logger = logging.getLogger(__name__)


def collected(submission: Submission, folder: Path) -> dict[str, Any]:
    """Record the ended jobs of a submission in the history of a project.

    Raises
    ------
    VoxcastError
        If the project or its history cannot be read.
    """
    from voxcast.jobs.collect import BATCH, collect_jobs

    result = collect_jobs(submission, folder / HISTORY / BATCH, _volumes(folder))
    for reason, count in result["without_image"].items():
        logger.warning("%d jobs cannot train: %s", count, reason)
    return result


def collect_at_end(submission: Submission, folder: Path | None) -> None:
    """Do the same at the end of a submission that was made in a project with its application.

    A failure is logged: `voxcast status --collect` does it later.
    """
    try:
        root = project.find(folder)
        if root is None or not (root / APP_FILES / f"{submission.plan.app.name}.yaml").is_file():
            return
        from voxcast.jobs.collect import collected_text

        logger.info("%s", collected_text(collected(submission, root)))
    except VoxcastError as error:
        then = f"voxcast status {submission.folder} --collect"
        logger.warning("not in the history: %s; `%s` tries again", one_line(error), then)


def _volumes(folder: Path) -> ProjectVolumes:
    from voxcast import config
    from voxcast.images.lab_characteristics import load_lab_characteristics
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
