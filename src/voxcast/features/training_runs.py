"""The runs that may train, and the volumes they were made on.

They are the runs measured in the project, on the present image set and on earlier ones, and those
of the recorded batches that the configuration names.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.images.catalogue import ON_RECORD, RESTORE, read_on_record
from voxcast.images.characteristics import current_rows, versions_of
from voxcast.images.header import HEADER_COLUMNS
from voxcast.images.network_volume import SMALL_VOLUMES, points_of, read_small_volumes
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.runs.series import RUNS, phases_in
from voxcast.runs.store import (
    batch_names,
    load_history,
    load_phases,
    recorded_parts,
    reserved_names,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd

logger = logging.getLogger(__name__)

KEY = "features.history"
VOLUME_COLUMNS = ("volume_id", *HEADER_COLUMNS)


@dataclass(frozen=True)
class TrainingRuns:
    """Runs that may train, with their volumes.

    Attributes
    ----------
    profiles : DataFrame
        Columns of `voxcast.runs.table`, and ``batch``: the name of the recorded batch,
        empty for runs measured in the project. A run in both is there once.
    volumes : DataFrame
        `VOLUME_COLUMNS`, characteristics, ``image_set``, and ``problem``, the reason why runs on
        it cannot train.
    phases : DataFrame
        Columns of `voxcast.runs.table.PHASE_DTYPES`; imported runs have none.
    versions : dict of str to int
        Versions of the characteristics by name.
    small_volumes : dict of str to ndarray
        Small volumes for the network by volume id; not every volume has one.
    """

    profiles: pd.DataFrame
    volumes: pd.DataFrame
    phases: pd.DataFrame
    versions: dict[str, int]
    small_volumes: dict[str, np.ndarray]

    @property
    def characteristics(self) -> pd.DataFrame:
        """The characteristics of the volumes, with ``volume_id``."""
        return self.volumes[["volume_id", *self.versions]]


def training_runs(
    profiles: Sequence[Path],
    catalogue: Path,
    history: Path,
    batches: Sequence[str],
    apps: Collection[str],
    coarse_points: int,
    network_points: int,
    versions: Mapping[str, int] | None = None,
) -> TrainingRuns:
    """Read the runs of applications that may train, and the volumes they were made on.

    Parameters
    ----------
    profiles : sequence of Path
        Tables of the runs measured in the project.
    catalogue : Path
        Folder of the catalogue, with all volumes on record.
    history : Path
        Folder of the recorded batches, such as ``data/history``.
    batches : sequence of str
        Names of folders in `history` whose runs train, too.
    apps : collection of str
        Names of the applications.
    coarse_points : int
        Grid of the characteristics; other grids cannot be compared.
    network_points : int
        Grid of the small volumes; other grids are not used.
    versions : mapping, optional
        Versions of the characteristics by name; by default voxcast's own. Values of another
        version are unknown.

    Raises
    ------
    ConfigError
        If a recorded batch is missing.
    TableError
        If a table is missing or cannot be read, or a recorded batch has no images.
    """
    import pandas as pd

    tables = [_read(path, "run `dvc repro profile`, which writes it") for path in profiles]
    runs = [table.assign(batch="") for table in tables]
    phases = [phases_in(path.parent) for path in profiles]
    versions = versions_of({}) if versions is None else dict(versions)
    volumes = []
    if profiles or (catalogue / ON_RECORD).is_file():  # missing where nothing was measured
        volumes.append(read_on_record(catalogue / ON_RECORD, versions))
    small_volumes = _small_volumes(catalogue, network_points, RESTORE)
    for name in dict.fromkeys(batches):
        batch = _batch(history, name)
        images = _images(batch)
        runs.append(load_history([batch]).assign(batch=name))
        phases.append(load_phases([batch]))
        volumes.append(current_rows(images, versions).assign(image_set=name))
        recorded = _small_volumes(
            batch, network_points, f"restore it, or take {name} out of {KEY}"
        )
        small_volumes = {**recorded, **small_volumes}
    all_runs = pd.concat([table for table in runs if len(table)] or runs[:1], ignore_index=True)
    # The project's own come first: they stay.
    all_runs = all_runs[all_runs["app"].isin(list(apps))].drop_duplicates("cell_key")
    # Campaigns record no grid: the configuration that measured them states it.
    columns = [*VOLUME_COLUMNS, *versions, "image_set", "coarse_points"]
    all_volumes = pd.concat([table.reindex(columns=columns) for table in volumes])
    # Of a volume that is there twice, the more complete row counts.
    order = all_volumes[list(versions)].isna().sum(axis=1).argsort(kind="stable")
    all_volumes = all_volumes.iloc[order]
    all_volumes = all_volumes.drop_duplicates("volume_id", ignore_index=True)
    same_grid = all_volumes["coarse_points"].fillna(coarse_points) == coarse_points
    problem = "volume catalogued with another features.coarse_points"
    return TrainingRuns(
        all_runs.reset_index(drop=True),
        all_volumes.assign(problem=same_grid.map({True: None, False: problem})),
        pd.concat([table for table in phases if len(table)] or phases[:1], ignore_index=True),
        versions,
        small_volumes,
    )


def _small_volumes(folder: Path, points: int, then: str) -> dict[str, np.ndarray]:
    volumes = read_small_volumes(folder / SMALL_VOLUMES, then)
    same_size = {key: volume for key, volume in volumes.items() if points_of(volume) == points}
    if other := len(volumes) - len(same_size):
        logger.warning(
            "%s: %d small volumes have not %d points; the network sees them as unknown",
            folder / SMALL_VOLUMES, other, points,
        )  # fmt: skip
    return same_size


def _batch(history: Path, name: str) -> Path:
    names = batch_names(history)
    if name not in names:
        choices = f"choose from {', '.join(names)}" if names else f"there are none in {history}"
        raise ConfigError("no such recorded batch", f"{KEY}: {name}", choices)
    return history / name


def _images(batch: Path) -> pd.DataFrame:
    path = batch / RECORDED_IMAGES
    if not path.is_file():
        raise TableError(
            f"has no {RECORDED_IMAGES}, the characteristics of its images",
            batch,
            f"import it again with --images DIR into a new folder, or take it out of {KEY}",
        )
    images = _read(path, f"take {batch.name} out of {KEY}, or restore the file")
    if missing := [name for name in VOLUME_COLUMNS if name not in images.columns]:
        raise TableError(f"lacks the column {missing[0]}", path, f"take it out of {KEY}")
    return images


def _read(path: Path, then: str) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise TableError("no such file", path, then)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, then) from None


def batches_to_learn_from(history: Path, app: str) -> dict[str, int]:
    """Return the number of completed runs of ``app`` by batch, in a folder of batches.

    Batches without characteristics of their images cannot be learned from, and batches reserved
    for judging must not be; both are left out.
    """
    import pandas as pd

    counts = {}
    for name in sorted(set(batch_names(history)) - reserved_names(history)):
        if (history / name / RECORDED_IMAGES).is_file():
            paths = [part / RUNS for part in recorded_parts(history / name)]
            runs = pd.concat([pd.read_parquet(path, columns=["app", "outcome"]) for path in paths])
            count = int(((runs["app"] == app) & (runs["outcome"] == "completed")).sum())
            if count:
                counts[name] = count
    return counts
