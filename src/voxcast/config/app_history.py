"""All runs on record of one application, as `voxcast learn` would train on them, in memory.

Nothing of the graph is run or changed, so that the verbs after submissions need no DVC.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.project import CONF_APP, HISTORY, PROJECT_FILE, find

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from voxcast.config import Config
    from voxcast.features.training_table import Comparability, TrainingRuns
    from voxcast.models.forecaster import Forecaster
    from voxcast.runs.importer import RunImages

DATA, CATALOGUE = Path("data"), Path("data/catalogue")
MIN_RUNS_BY_METHOD = 10  # of measuring memory: with fewer its level is not known

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AppHistory:
    """The runs of one application.

    Attributes
    ----------
    config : Config
        Of the project, with this application.
    table : DataFrame
        The runs that may train.
    volumes : ndarray, shape (n_runs,)
        Their small volumes; zero where none is on record.
    stopped : DataFrame
        See `voxcast.features.training_table.stopped_runs`.
    left_out : dict of str to int
        Runs that cannot train, by reason.
    memory_method : str
        By which memory of the training runs was measured.
    """

    config: Config
    table: pd.DataFrame
    volumes: np.ndarray
    stopped: pd.DataFrame
    left_out: dict[str, int]
    memory_method: str

    def on_training_side(self) -> AppHistory:
        """Return the runs on the training side of the split by subject."""
        from voxcast.features.rows import side, split

        limits = self.config.evaluation
        seed, fraction = limits.split_seed, limits.test_fraction
        numbered = self.table.assign(row=range(len(self.table)))
        sides = split(numbered, seed, fraction)
        rows = sides.train["row"].to_numpy()
        stopped = self.stopped
        if not sides.not_judged:
            sides_of_stopped = stopped["subject"].map(lambda name: side(name, seed, fraction))
            stopped = stopped[sides_of_stopped == "train"]
        return replace(
            self, table=self.table.iloc[rows].reset_index(drop=True), volumes=self.volumes[rows],
            stopped=stopped,
        )  # fmt: skip


def app_history(folder: Path, name: str, forecaster: Forecaster | None) -> AppHistory:
    """Read the runs of an application that are on record in a project.

    Parameters
    ----------
    forecaster : Forecaster or None
        Its champion, by which memory of another method of measuring is brought to the usual level.

    Raises
    ------
    VoxcastError
        If the application is unknown, or nothing on record can be used.
    """
    import pandas as pd

    from voxcast.features.training_table import Comparability, stopped_runs

    cfg, training = runs_of_app(folder, name)
    points = cfg.features.network_points
    comparable = Comparability.of(training.profiles)
    table, left_out = _usable(training, comparable, name, cfg, forecaster, points)
    if table.empty:
        causes = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "none"
        raise TableError(f"no usable completed run of {name}: {causes}", folder / HISTORY)
    stopped = stopped_runs(training, {name: cfg.apps[name]})
    table = pd.DataFrame(table).sort_values(["started_at", "cell_key"], ignore_index=True)
    volumes, method = _volumes(table, training, points), comparable.methods.get(name, "")
    return AppHistory(cfg, table, volumes, stopped, left_out, method)


def runs_of_app(folder: Path, name: str) -> tuple[Config, TrainingRuns]:
    """Return the configuration of a project, and all runs of an application on record in it.

    Raises
    ------
    VoxcastError
        If the application is unknown, or no run of it is on record.
    """
    from voxcast import config
    from voxcast.features.training_table import batches_to_learn_from, training_runs

    cfg = config.load(folder / config.PARAMS_FILE)
    app = config.load_app(folder / CONF_APP, name)
    cfg = dataclasses.replace(cfg, apps={**cfg.apps, name: app})
    batches = list(batches_to_learn_from(folder / HISTORY, name))
    profiles = [
        path
        for device in ("cpu", "gpu")
        if (path := folder / DATA / "runs" / device / "runs.parquet").is_file()
    ]
    if not profiles and not batches:
        then = "`voxcast learn` measures, `voxcast status DIR --collect` adds jobs"
        raise TableError(f"no run of {name} is on record", folder / HISTORY, then)
    training = training_runs(
        profiles, folder / CATALOGUE, folder / HISTORY, batches, [name],
        cfg.features.coarse_points, cfg.features.network_points,
    )  # fmt: skip
    return cfg, training


def _usable(
    training: TrainingRuns,
    comparable: Comparability,
    name: str,
    cfg: Config,
    forecaster: Forecaster | None,
    points: int,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the table, with jobs whose memory was measured by another method."""
    import numpy as np
    import pandas as pd

    from voxcast.features.training_table import training_table
    from voxcast.models.forecaster import memory_at_usual_level

    apps, profiles = {name: cfg.apps[name]}, training.profiles
    table, by_app = training_table(training, apps)
    left_out = by_app[name]
    usual = comparable.methods.get(name, "")
    keys = zip(profiles["app"], profiles["device"], profiles["app_version"], strict=True)
    current = np.array([comparable.has_version(*key) for key in keys], dtype=bool)
    others = profiles[current & ~profiles["memory_method"].isin(["", usual])]
    for method, runs in others.groupby("memory_method", sort=True):
        part, _ = training_table(replace(training, profiles=runs.reset_index(drop=True)), apps)
        if forecaster is None or len(part) < MIN_RUNS_BY_METHOD:
            continue
        part, factor = memory_at_usual_level(part, _volumes(part, training, points), forecaster)
        logger.info(
            "memory of %d runs by %s is divided by %.3g, the level of %s",
            len(part), method, factor, usual,
        )  # fmt: skip
        table = pd.concat([table, part], ignore_index=True)
        left_out.pop(f"memory by another method: {method}", None)
    return table, left_out


def _volumes(table: pd.DataFrame, training: TrainingRuns, points: int) -> np.ndarray:
    import numpy as np

    from voxcast.images.network_volume import volume_dtype

    volumes = np.zeros(len(table), volume_dtype(points))
    for n, volume_id in enumerate(table["volume_id"]):
        if volume_id in training.small_volumes:
            volumes[n] = training.small_volumes[volume_id]
    return volumes


def run_images(folder: Path, project_folder: Path | None) -> RunImages:
    """Return the images of runs, to be read on the grid of the project, if there is one."""
    from voxcast import config
    from voxcast.images.volume import POINTS
    from voxcast.runs.importer import RunImages

    root = find(project_folder)
    if root is None:
        return RunImages(folder, POINTS)
    return RunImages(folder, config.load(root / PROJECT_FILE).features.coarse_points)
