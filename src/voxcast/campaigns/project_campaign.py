"""A named campaign of a project: its images, runs and recorded history.

Images, catalogue and runs are in ``data/campaigns/NAME``, separate from those of the project. The
recorded history is in ``data/history/NAME``.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.driver import Progress, run_campaign
from voxcast.campaigns.overview import overview, rows_elsewhere
from voxcast.campaigns.plan import CampaignPlan, make_plan
from voxcast.campaigns.unmeasured import tried_again
from voxcast.errors import ConfigError
from voxcast.files import atomic_path
from voxcast.history.parts import collect, load_history, recorded_cell_keys
from voxcast.history.run_folders import record_rows
from voxcast.images.catalogue import CATALOGUE, CHARACTERISTICS_TABLE
from voxcast.images.image_set import ImageChoice, prepare_image_set, recipes_in
from voxcast.images.lab_characteristics import LabCharacteristic, load_lab_characteristics
from voxcast.images.recorded import RECORDED_IMAGES, check_recorded, recorded_images
from voxcast.images.small_volumes import copy_small_volumes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.campaigns.settings import CampaignSettings

logger = logging.getLogger(__name__)

COLLECT_EVERY_S = 1200.0


@dataclass(frozen=True)
class ProjectCampaign:
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
    folder, batch : Path
        Of images, catalogue and runs; of the recorded history.
    definition_sha256 : str
        Hash of the configuration, for the provenance of what is recorded.
    """

    name: str
    settings: CampaignSettings
    images: ImageChoice
    coarse_points: int
    network_points: int
    max_voxels: int
    folder: Path
    batch: Path
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

    def prepare_images(self) -> None:
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
        recorded = self.batch / RECORDED_IMAGES
        if generated and recorded.is_file():
            check_recorded(self.catalogue, recorded)
        else:  # a user may have added images since
            table = recorded_images(self.catalogue, self.image_folder if generated else None)
            with atomic_path(recorded) as partial:
                table.to_parquet(partial, index=False)
            copy_small_volumes(self.catalogue, self.batch, set(table["volume_id"]))
        logger.info("%d volumes, %s", len(files), self.catalogue / CATALOGUE)

    def volumes(self) -> pd.DataFrame | None:
        """Return the catalogue of the images; before they are prepared, that of the recorded runs.

        None if there is neither. The recorded one has no paths: its files may be elsewhere.
        """
        import pandas as pd

        if (self.catalogue / CATALOGUE).is_file():
            return pd.read_parquet(self.catalogue / CATALOGUE)
        if (self.batch / RECORDED_IMAGES).is_file():
            return pd.read_parquet(self.batch / RECORDED_IMAGES).assign(path="", problem=None)
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

    def run(self, *, any_host: bool = False) -> Progress:
        """Prepare the images and measure until all is done or the time is up.

        Runs are collected into the history at the start, at intervals, and at the end.

        Parameters
        ----------
        any_host : bool
            Runs recorded on other hardware count as measured.
        """
        start = time.monotonic()
        self.prepare_images()
        plan = self.plan()
        for note in plan.notes:
            logger.info(note)
        settings = self.settings
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
            return run_campaign(
                settings, plan, recorded=self._history_rows(plan, any_host), on_record=on_record
            )
        finally:
            self.collect()

    def overview(self, *, any_host: bool = False) -> list[dict[str, Any]]:
        """Return the progress of each application, scale and allocation; see `overview`.

        Nothing if the images are not prepared, and no runs are on record.
        """
        if self.volumes() is None:
            return []
        plan = self.plan()
        elsewhere, rows = self._history_rows(plan, any_host), record_rows(self.settings.runs)
        again = tried_again(
            plan.cells.keys() - elsewhere.keys(), rows, self.settings.conditions.time_limit_s
        )
        return overview(plan.cells, plan.expected_s, {**elsewhere, **rows}, again)

    def propose(self, count: int) -> list[dict[str, Any]]:
        """Return the runs that would reduce uncertainty most for their expected time."""
        from voxcast.campaigns.proposals import proposals

        plan = self.plan()
        rows = {**self._history_rows(plan, any_host=False), **record_rows(self.settings.runs)}
        return proposals(plan, rows, self._volume_rows(), count)

    def _volume_rows(self) -> dict[str, dict[str, Any]]:
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
            self.batch,
            campaign=self.name,
            campaign_sha256=self.definition_sha256,
        )

    def _history_rows(self, plan: CampaignPlan, any_host: bool) -> dict[str, dict[str, Any]]:
        if not self.batch.is_dir() or not recorded_cell_keys(self.batch):
            return {}
        return rows_elsewhere(plan.cells, load_history([self.batch]), any_host=any_host)
