"""The final MLflow run of each fitted model, identified by the hash of the model's files.

The log of a pass makes it. Registration finds it or makes it: the tracking server may have changed
since the pass, or the forecaster may be an older version's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxcast.files import sha256_folder
from voxcast.tracking import runs


def final_run(
    session: runs.Session,
    app: str,
    family: str,
    forecaster: Path,
    table_sha256: str,
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> str:
    """Return the id of the final run of a fitted family.

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
    if existing := runs.find("final", **tags, forecaster_sha256=sha256):
        return existing
    study = runs.find("study", app=app, family=family, table_sha256=table_sha256)
    with runs.run(
        session,
        "final",
        f"{app} {family} final",
        parent=study,
        tags={**tags, "forecaster_sha256": sha256},
        params={**params, "app": app, "family": family},
        metrics=runs.prefixed("cv", metrics),
    ) as run_id:
        return run_id
