"""The campaigns of a project: named ones, and the local runs that show the speed of a machine.

A named campaign has its images, catalogue and runs in ``data/campaigns/NAME``, separate from those
of the project, and its recorded history in ``data/history/NAME``.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import app_version
from voxcast.apps.checks import check_startable
from voxcast.errors import ConfigError, VoxcastError, one_line
from voxcast.files import atomic_path
from voxcast.images.catalogue import CATALOGUE, CHARACTERISTICS_TABLE
from voxcast.images.grids import Sizes
from voxcast.images.image_set import ImageChoice, prepare_image_set, recipes_in
from voxcast.images.lab_characteristics import LabCharacteristic, load_lab_characteristics
from voxcast.images.recorded import RECORDED_IMAGES, check_recorded, recorded_images
from voxcast.images.small_volumes import copy_small_volumes
from voxcast.measure.campaign import (
    Progress,
    overview,
    run_campaign,
    runs_elsewhere,
    tried_again,
)
from voxcast.measure.host import HostFacts, host_class, host_facts
from voxcast.measure.plan import (
    MANY,
    CampaignPlan,
    CampaignSettings,
    expected_times,
    good_volumes,
    lend_cells,
    make_plan,
)
from voxcast.measure.trace import Conditions
from voxcast.records import ANCHOR_REPEAT, App, Cell, Configuration, Run
from voxcast.runs.series import runs_in
from voxcast.runs.store import collect, load_history, recorded_cell_keys

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.images.characteristics import Characteristic

COLLECT_EVERY_S = 1200.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Campaign:
    """A campaign of the project in the current folder.

    Attributes
    ----------
    settings : CampaignSettings
        Its runs are in `folder`.
    images : ImageChoice
        Its image set.
    coarse_points, network_points : int
        Grids of `voxcast.images.volumes`.
    max_voxels : int
        A volume with more is left out.
    folder, history : Path
        Of images, catalogue and runs; of the recorded runs.
    definition_sha256 : str
        Hash of the configuration, for the provenance of the recorded runs.
    """

    name: str
    settings: CampaignSettings
    images: ImageChoice
    coarse_points: int
    network_points: int
    max_voxels: int
    folder: Path
    history: Path
    definition_sha256: str
    characteristics: Mapping[str, LabCharacteristic] = field(default_factory=dict)

    @property
    def image_folder(self) -> Path:
        """Folder of the generated volumes and of the list of volumes."""
        return self.folder / "images"

    @property
    def catalogue(self) -> Path:
        """Folder of the catalogue."""
        return self.folder / "catalogue"

    def prepare(self) -> None:
        """Make or list the volumes and catalogue them, unless all of it is up to date."""
        files = prepare_image_set(
            self.images,
            self.image_folder,
            self.catalogue,
            self.coarse_points,
            self.network_points,
            self.max_voxels,
            load_lab_characteristics(self.characteristics, Path()),
        )
        generated = self.images.generated
        recorded = self.history / RECORDED_IMAGES
        if generated and recorded.is_file():
            check_recorded(self.catalogue, recorded)
        else:  # a user may have added images since
            table = recorded_images(self.catalogue, self.image_folder if generated else None)
            with atomic_path(recorded) as partial:
                table.to_parquet(partial, index=False)
            copy_small_volumes(self.catalogue, self.history, set(table["volume_id"]))
        logger.info("%d volumes, %s", len(files), self.catalogue / CATALOGUE)

    def volumes(self) -> pd.DataFrame | None:
        """Return the catalogue of the images or, before they are prepared, of the recorded runs.

        None if there is neither. The recorded one has no paths: its files may be elsewhere.
        """
        import pandas as pd

        if (self.catalogue / CATALOGUE).is_file():
            return pd.read_parquet(self.catalogue / CATALOGUE)
        if (self.history / RECORDED_IMAGES).is_file():
            return pd.read_parquet(self.history / RECORDED_IMAGES).assign(path="", problem=None)
        return None

    def plan(self) -> CampaignPlan:
        """Plan the campaign for this machine.

        Raises
        ------
        ConfigError
            If its images have not been prepared, and no runs of it are on record.
        """
        volumes = self.volumes()
        if volumes is None:
            then = f"`voxcast campaign run {self.name}` prepares them and measures"
            raise ConfigError(
                "its images are not prepared, and no runs are on record", self.name, then
            )
        return make_plan(self.settings, volumes, recipes_in(self.image_folder))

    def lend(self, path: Path) -> int:
        """Write the cells that another machine is to measure to ``path``; return their number.

        It may have GPUs and cores that this one lacks, and decides there which cells fit.
        """
        import pandas as pd

        self.prepare()
        volumes = pd.read_parquet(self.catalogue / CATALOGUE)
        anywhere = HostFacts("", MANY, MANY**2, ("any",) * 16, "", "")
        settings = dataclasses.replace(self.settings, host=anywhere)
        plan = make_plan(settings, volumes, recipes_in(self.image_folder))
        lend_cells(path, [*plan.cells.values()], settings.apps, plan.paths, plan.recipes)
        return len(plan.cells)

    def run(self, *, any_host: bool = False) -> Progress:
        """Prepare the images and measure until all is done or the time is up.

        Runs are collected into the history at the start, at intervals, and at the end. With
        ``any_host`` runs recorded on other hardware count as measured.
        """
        start = time.monotonic()
        self.prepare()
        plan, settings = self.plan(), self.settings
        for note in plan.notes:
            logger.info(note)
        if settings.stop_after_s is not None:
            left_s = settings.stop_after_s - (time.monotonic() - start)  # preparing took the rest
            settings = dataclasses.replace(settings, stop_after_s=left_s)
        self.collect()
        collected_at = time.monotonic()

        def on_record(_run: Path) -> None:
            nonlocal collected_at
            if time.monotonic() - collected_at > COLLECT_EVERY_S:
                self.collect()
                collected_at = time.monotonic()

        try:
            recorded = self._recorded(plan, any_host)
            return run_campaign(settings, plan, recorded=recorded, on_record=on_record)
        finally:
            self.collect()

    def status(self, *, any_host: bool = False) -> list[dict[str, Any]]:
        """Return the progress by application, scale and allocation.

        See `voxcast.measure.campaign.overview`. Nothing if the images are not prepared, and no
        runs are on record.
        """
        if self.volumes() is None:
            return []
        plan = self.plan()
        elsewhere, here = self._recorded(plan, any_host), runs_in(self.settings.runs)
        again = tried_again(
            plan.cells.keys() - elsewhere.keys(), here, self.settings.conditions.time_limit_s
        )
        return overview(plan.cells, plan.expected_s, {**elsewhere, **here}, again)

    def recorded_keys(self, plan: CampaignPlan) -> set[str]:
        """Return the keys of all runs on record, here or in the history."""
        return {*self._recorded(plan, any_host=False), *runs_in(self.settings.runs)}

    def volume_rows(self) -> dict[str, dict[str, Any]]:
        """Return headers and characteristics by volume id."""
        import pandas as pd

        volumes = self.volumes()
        table = self.catalogue / CHARACTERISTICS_TABLE
        if volumes is None:
            return {}
        if table.is_file():  # the recorded volumes have theirs beside the header
            volumes = volumes.merge(pd.read_parquet(table), on="volume_id", how="left")
        rows = volumes.drop_duplicates("volume_id").to_dict("records")
        return {str(row["volume_id"]): {str(k): v for k, v in row.items()} for row in rows}

    def collect(self) -> list[Path]:
        """Put new runs into parts of the history; return the new parts."""
        return collect(
            self.settings.runs,
            self.history,
            campaign=self.name,
            campaign_sha256=self.definition_sha256,
        )

    def _recorded(self, plan: CampaignPlan, any_host: bool) -> dict[str, Run]:
        if not self.history.is_dir() or not recorded_cell_keys(self.history):
            return {}
        return runs_elsewhere(plan.cells, load_history([self.history]), any_host=any_host)


# Local runs of ``voxcast host measure``: a few small volumes and applications, in rounds. An
# interrupted round continues; a complete one is followed by the next.
HOST_FOLDER = Path("data/campaigns/host")  # of the project
HOST_VOLUMES = 4
HOST_CONDITIONS = Conditions(time_limit_s=600.0, stall_s=300.0)
HOST_ROUNDS = 1000
HOST_SIZES = Sizes((350_000, 550_000, 1_200_000), (48, 160))


@dataclass(frozen=True)
class HostImages:
    """The generated volumes; see `voxcast.images.image_set.ImageChoice`."""

    kind: str = "cohort"
    generated: bool = True
    path: str | None = None
    participants: tuple[str, ...] = ()
    seed: int = 7019
    subjects: int = HOST_VOLUMES
    sizes: Sizes = HOST_SIZES
    label_prefix: str = "h"


def measure_host(
    apps: Mapping[str, App],
    stop_after_s: float,
    points: tuple[int, int],
    max_voxels: int,
    lab: Mapping[str, Characteristic] | None = None,
) -> Progress:
    """Make the local runs of this round that are missing, or of the next, in the current project.

    Their volumes are the smallest of the project whose files are here, or else generated.

    Parameters
    ----------
    apps : mapping
        Applications by name, with the parameters to run; an application that cannot be started
        here is left out with a warning.
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
        See `run_campaign`.
    """
    configuration, startable = Configuration("cpu", 1), {}
    for name, app in apps.items():
        try:
            check_startable(app, configuration)
            startable[name] = app
        except VoxcastError as error:
            logger.warning("%s is left out: %s", name, one_line(error))
    if not startable:
        raise ConfigError("no application of the model can be started here", "host measure")
    catalogue = _host_catalogue(points, max_voxels, lab)
    volumes = good_volumes(catalogue)
    smallest = sorted(volumes.mvoxels, key=lambda v: (volumes.mvoxels[v], v))[:HOST_VOLUMES]
    machine = host_class(host_facts())
    versions = {name: app_version(app, configuration) for name, app in startable.items()}
    recorded = runs_in(HOST_FOLDER / "runs").keys()
    for number in range(1, HOST_ROUNDS):
        cells = [
            Cell(
                name, versions[name], app.parameters, volume, volumes.subjects[volume],
                configuration, "full_scale", ANCHOR_REPEAT + number, machine,
            )
            for volume in smallest
            for name, app in startable.items()
        ]  # fmt: skip
        if not {cell.key for cell in cells} <= recorded:
            break
    files = catalogue.set_index("volume_id")["path"].astype(str)
    plan = CampaignPlan(
        {cell.key: cell for cell in cells},
        {volume: Path(files[volume]) for volume in smallest},
        expected_times(cells, startable, volumes),
        recipes=recipes_in(HOST_FOLDER / "images"),
    )
    settings = CampaignSettings(
        startable, HOST_FOLDER / "runs", conditions=HOST_CONDITIONS, stop_after_s=stop_after_s,
        repeat_noisy_s=0.0,
    )  # fmt: skip
    return run_campaign(settings, plan)


def _host_catalogue(
    points: tuple[int, int], max_voxels: int, lab: Mapping[str, Characteristic] | None
) -> pd.DataFrame:
    import pandas as pd

    project_catalogue = Path("data/catalogue") / CATALOGUE
    if project_catalogue.is_file():
        catalogue = pd.read_parquet(project_catalogue)
        here = catalogue[[Path(path).is_file() for path in catalogue["path"]]]
        here = here[here["problem"].isna()]
        if here["volume_id"].nunique() >= HOST_VOLUMES:
            return here.drop_duplicates("volume_id")
    images, folder = HOST_FOLDER / "images", HOST_FOLDER / "catalogue"
    prepare_image_set(HostImages(), images, folder, *points, max_voxels, lab)
    return pd.read_parquet(folder / CATALOGUE).drop_duplicates("volume_id")
