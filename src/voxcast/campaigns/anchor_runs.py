"""Anchor runs: a handful of small volumes and applications, which tell how fast a machine is.

They are made in rounds. A round that was interrupted goes on; one that is complete is followed by
the next. Their volumes are the smallest of the project whose files are here, or else generated.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.app import app_version
from voxcast.campaigns.cells import expected_times, good_volumes
from voxcast.campaigns.driver import run_campaign
from voxcast.campaigns.plan import CampaignPlan
from voxcast.campaigns.settings import CampaignSettings, Conditions
from voxcast.errors import ConfigError, VoxcastError, one_line
from voxcast.history.run_folders import record_rows
from voxcast.images.catalogue import CATALOGUE
from voxcast.images.grids import Sizes
from voxcast.images.image_set import prepare_image_set, recipes_in
from voxcast.profiling.host import host_class, host_facts
from voxcast.records import ANCHOR_REPEAT, Cell, Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.campaigns.driver import Progress
    from voxcast.images.characteristics import Characteristic
    from voxcast.records import App

FOLDER = Path("data/campaigns/host")  # of the project
CATALOGUE_FOLDER = "catalogue"
PROJECT_CATALOGUE = Path("data", CATALOGUE_FOLDER, CATALOGUE)
VOLUMES = 4
CONDITIONS = Conditions(time_limit_s=600.0, stall_s=300.0)
MAXIMUM_ROUNDS = 1000
SIZES = Sizes((350_000, 550_000, 1_200_000), (48, 160))

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnchorImages:
    """The generated volumes; see `voxcast.images.image_set.ImageChoice`."""

    kind: str = "cohort"
    generated: bool = True
    path: str | None = None
    participants: tuple[str, ...] = ()
    seed: int = 7019
    subjects: int = VOLUMES
    sizes: Sizes = SIZES
    label_prefix: str = "h"


def measure_anchors(
    apps: Mapping[str, App],
    stop_after_s: float,
    points: tuple[int, int],
    max_voxels: int,
    lab: Mapping[str, Characteristic] | None = None,
) -> Progress:
    """Make the runs of the present round that are missing, or of the next, in the current project.

    Parameters
    ----------
    apps : mapping
        Applications by name, with the parameters to run; those that cannot be started here are
        left out with a warning.
    stop_after_s : float
        No run is started that is not expected to end within this time.
    points : (int, int)
        Grids of the characteristics and of the network, see `voxcast.images.volumes`.
    max_voxels : int
        A larger volume is left out.
    lab : mapping, optional
        Characteristics that the project adds, by name.

    Raises
    ------
    ConfigError
        If no application can be started.
    RunError
        See `voxcast.campaigns.driver.run_campaign`.
    """
    from voxcast.apps.checks import check_startable

    configuration = Configuration("cpu", 1)
    startable = {}
    for name, app in apps.items():
        try:
            check_startable(app, configuration)
        except VoxcastError as error:
            logger.warning("%s is left out: %s", name, one_line(error))
        else:
            startable[name] = app
    if not startable:
        raise ConfigError("no application of the model can be started here", "host measure")
    catalogue = _catalogue(points, max_voxels, lab)
    volumes = good_volumes(catalogue)
    smallest = sorted(volumes.mvoxels, key=lambda name: (volumes.mvoxels[name], name))[:VOLUMES]
    machine = host_class(host_facts())
    versions = {name: app_version(app, configuration) for name, app in startable.items()}
    rows = record_rows(FOLDER / "runs") if FOLDER.is_dir() else {}
    for number in range(1, MAXIMUM_ROUNDS):
        cells = [
            Cell(
                name, versions[name], app.parameters, volume, volumes.subjects[volume],
                configuration, "full_scale", ANCHOR_REPEAT + number, machine,
            )
            for volume in smallest
            for name, app in startable.items()
        ]  # fmt: skip
        by_key = {cell.key: cell for cell in cells}
        if not by_key.keys() <= rows.keys():
            break
    files = catalogue.set_index("volume_id")["path"].astype(str)
    plan = CampaignPlan(
        by_key,
        {volume: Path(files[volume]) for volume in smallest},
        expected_times(by_key, startable, volumes),
        recipes=recipes_in(FOLDER / "images"),
    )
    settings = CampaignSettings(
        startable, FOLDER / "runs", conditions=CONDITIONS, stop_after_s=stop_after_s,
        repeat_noisy_s=0.0,
    )  # fmt: skip
    return run_campaign(settings, plan)


def _catalogue(
    points: tuple[int, int], max_voxels: int, lab: Mapping[str, Characteristic] | None
) -> pd.DataFrame:
    """Return the volumes of the project whose files are here, or else generated ones."""
    import pandas as pd

    if PROJECT_CATALOGUE.is_file():
        catalogue = pd.read_parquet(PROJECT_CATALOGUE)
        here = catalogue[[Path(path).is_file() for path in catalogue["path"]]]
        here = here[here["problem"].isna()]
        if here["volume_id"].nunique() >= VOLUMES:
            return here.drop_duplicates("volume_id")
    images, folder = FOLDER / "images", FOLDER / CATALOGUE_FOLDER
    prepare_image_set(AnchorImages(), images, folder, *points, max_voxels, lab)
    return pd.read_parquet(folder / CATALOGUE).drop_duplicates("volume_id")
