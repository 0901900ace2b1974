"""One call of ``voxcast learn`` in a project: its configuration, its measurements, its end.

What ``voxcast learn`` prints at its end: the summary, images that failed, and runs left.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import config
from voxcast.cli.graph import dvc_lock, reproduce
from voxcast.errors import ConfigError, ImageError, RunError, VoxcastError
from voxcast.files import write_text
from voxcast.images.sources import SOURCES, refresh_sources
from voxcast.measure.campaign import failed_images
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.config import Config
    from voxcast.config.campaigns import DeviceOutlook, LearningRequest


PARAMS = Path(config.PARAMS_FILE)
IMAGES, CATALOGUE = Path("data/images"), Path("data/catalogue")
CATALOGUE_TABLE = "catalogue.parquet"

logger = logging.getLogger(__name__)


@dataclass
class LearningSession:
    """Learning in the project of the current folder.

    Attributes
    ----------
    request : LearningRequest or None
        The request; None for the present configuration.
    again : str
        The command that continues.
    """

    request: LearningRequest | None
    again: str
    _before: dict[Path, str] = field(default_factory=dict)

    def prepare(self) -> tuple[Config, pd.DataFrame]:
        """Compose the configuration, and read the images into the catalogue.

        The former configuration is restored if that fails.

        Raises
        ------
        RunError
            If DVC is running in the project; then nothing was changed.
        """
        import pandas as pd

        try:
            with dvc_lock(Path()):
                composed = self._configure()
            reproduce("catalogue", then=f"mend it and run `{self.again}` again")
        except VoxcastError:
            self.restore()
            raise
        return composed, pd.read_parquet(CATALOGUE / CATALOGUE_TABLE)

    def _configure(self) -> Config:
        """Write the configuration and the list of images."""
        from voxcast.config.campaigns import compose_request
        from voxcast.config.project_files import refresh_project

        for name in refresh_project(Path()):
            logger.warning("%s: edited here, so it is not replaced by that of this release", name)
        self._before = {
            path: path.read_text(encoding="utf-8") for path in (PARAMS, SOURCES) if path.is_file()
        }
        if self.request is None:
            composed = config.load(PARAMS)
        else:
            composed = compose_request(self.request, PARAMS, PARAMS)
        images = composed.images
        if changes := refresh_sources(Path(), images.path, images.participants):
            print(changes, file=sys.stderr)
        return composed

    def look(self) -> tuple[Config, pd.DataFrame]:
        """Return what `prepare` would, and change nothing in the project."""
        import pandas as pd

        from voxcast.config.campaigns import compose_request
        from voxcast.images.characteristics import load_lab_characteristics
        from voxcast.images.image_set import (
            catalogue_volumes,
            image_set_label,
            list_volumes,
        )
        from voxcast.measure.processes import temporary_folder

        with ExitStack() as stack:
            folder = Path(stack.enter_context(temporary_folder()))
            if self.request is None:
                composed = config.load(PARAMS)
            else:
                composed = compose_request(self.request, PARAMS, folder / PARAMS)
            table = CATALOGUE / CATALOGUE_TABLE
            if self._new_images() or not table.is_file():
                if composed.images.generated:
                    then = "name IMAGES; without --dry-run the configured cohort is generated"
                    raise ConfigError("no images are named, and none generated yet", "learn", then)
                list_volumes(composed.images, folder / "images", hashes=SOURCES)
                features = composed.features
                catalogue_volumes(
                    folder / "images",
                    folder / "catalogue",
                    features.coarse_points,
                    features.network_points,
                    features.max_voxels,
                    image_set_label(composed.images),
                    load_lab_characteristics(features.characteristics, Path()),
                )
                table = folder / "catalogue" / CATALOGUE_TABLE
            return composed, pd.read_parquet(table)

    def generated_to_replace(self) -> int:
        """Return how many generated volumes the named images take the place of."""
        from voxcast.images.image_set import PARTICIPANTS, generated_ids

        if not self._new_images() or not (IMAGES / PARTICIPANTS).is_file():
            return 0
        try:
            return sum(Path(path).is_file() for path in generated_ids(IMAGES))
        except ImageError:  # no generated set
            return 0

    def _new_images(self) -> bool:
        return self.request is not None and self.request.images is not None

    def restore(self) -> None:
        """Put the former configuration back."""
        for path, text in self._before.items():
            write_text(path, text)

    def measure_first(self, devices: list[DeviceOutlook]) -> None:
        """Measure one small image with applications of unknown runtime.

        Images on which an application fails are passed over, up to a number.

        Raises
        ------
        RunError
            If such a run fails.
        """
        from voxcast.measure.campaign import measure_smallest
        from voxcast.measure.runner import LOG_FILE

        for entry in devices:
            if entry.outlook.trusted:
                continue
            run = measure_smallest(entry.settings, entry.plan)
            if run is not None and run.outcome != "completed":
                log = entry.settings.runs / run.cell_key / LOG_FILE
                then = f"mend the application and run `{self.again}` again"
                images = "images" if run.outcome == "failed" else "image"
                raise RunError(f"no run on the smallest {images}: {run.outcome}", log, then)

    def run(self, devices: list[DeviceOutlook]) -> None:
        """Make the missing runs, and run all stages that are out of date."""
        from voxcast.tracking.registry import forget_lost

        then = f"mend it and run `{self.again}` again; finished runs are kept"
        for entry in devices:
            if entry.outlook.left:
                # A sitting that its budget ended has left runs, though its stage is up to date.
                reproduce("--force", "--single-item", f"profile@{entry.device}", then=then)
        forget_lost(Path())
        reproduce(then=then)


SUMMARY = Path("results/report/summary.txt")
MAX_SHOWN = 10


def show_end(devices: Sequence[DeviceOutlook], again: str, *, as_json: bool) -> None:
    """Print the end of learning.

    Parameters
    ----------
    devices : sequence of DeviceOutlook
        What would be measured now.
    again : str
        The command that continues.
    as_json : bool
        One JSON document, with all images that failed.
    """
    # Failed runs are not left to do: only a mended tool measures them.
    left = sum(entry.outlook.left - entry.outlook.failed for entry in devices)
    left_s = sum(entry.outlook.left_s - entry.outlook.failed_s for entry in devices)
    failed = [
        image for entry in devices for image in failed_images(entry.settings.runs, entry.plan)
    ]
    summary = SUMMARY.read_text(encoding="utf-8")
    if as_json:
        lines = (line.partition(" ") for line in summary.splitlines())
        content = {name: text.strip() for name, _, text in lines}
        print(json.dumps({"summary": content, "left": left, "left_s": left_s, "failed": failed},
                         indent=2))  # fmt: skip
    else:
        print(summary, end="")
        _show_failed(failed)
    if left:
        logger.info(
            "%d runs are left, about %s; `%s` continues", left, format_seconds(left_s), again
        )


def _show_failed(failed: Sequence[dict[str, Any]]) -> None:
    for image in failed[:MAX_SHOWN]:
        where = f"sub-{image['subject']}" if image["subject"] else image["image"]
        count = f"{image['runs']} runs" if image["runs"] > 1 else "1 run"
        reason = f"{image['app']}: {image['cause']}; see {image['log']}"
        print(f"{'failed':12} {where}, {count} of {reason}")
    if not failed:
        return
    if len(failed) > MAX_SHOWN:
        print(f"{'':12} and {len(failed) - MAX_SHOWN} more images, all with --json")
    print(f"{'':12} nothing was learned from these runs; the same command tries them once more")
    print(f"{'':12} mend the tool, or name the other images by --participant-label")
