"""The runs that may train, and the volumes they were made on.

They are the runs measured in the project, on the present image set and on earlier ones, and those
of the recorded batches that the configuration names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.history.batches import batch_names
from voxcast.history.parts import load_history
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.headers import HEADER_COLUMNS
from voxcast.images.on_record import ON_RECORD, read_on_record
from voxcast.images.recorded import RECORDED_IMAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd

KEY = "features.history"
VOLUME_COLUMNS = ("volume_id", *HEADER_COLUMNS, *CHARACTERISTICS)


@dataclass(frozen=True)
class TrainingRuns:
    """Runs that may train, with their volumes.

    Attributes
    ----------
    profiles : DataFrame
        Columns of `voxcast.history.run_table`, and ``batch``: the name of the recorded batch,
        empty for runs measured in the project. A run in both is there once.
    volumes : DataFrame
        `VOLUME_COLUMNS`, ``image_set``, and ``problem``, the reason why runs on it cannot train.
    """

    profiles: pd.DataFrame
    volumes: pd.DataFrame

    @property
    def characteristics(self) -> pd.DataFrame:
        """The characteristics of the volumes, with ``volume_id``."""
        return self.volumes[["volume_id", *CHARACTERISTICS]]


def training_runs(
    profiles: Sequence[Path],
    catalogue: Path,
    history: Path,
    batches: Sequence[str],
    apps: Collection[str],
    coarse_points: int,
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
        Grid of the characteristics. Those of another grid cannot be compared.

    Raises
    ------
    ConfigError
        If there is no such recorded batch.
    TableError
        If a table is missing or cannot be read, or a recorded batch has no images.
    """
    import pandas as pd

    tables = [_read(path, "run `dvc repro profile`, which writes it") for path in profiles]
    runs = [table.assign(batch="") for table in tables]
    volumes = [read_on_record(catalogue / ON_RECORD)]
    for name in dict.fromkeys(batches):
        batch = _batch(history, name)
        images = _images(batch)
        runs.append(load_history([batch]).assign(batch=name))
        volumes.append(images.assign(image_set=name))
    all_runs = pd.concat([table for table in runs if len(table)] or runs[:1], ignore_index=True)
    # The project's own come first: they stay.
    all_runs = all_runs[all_runs["app"].isin(list(apps))].drop_duplicates("cell_key")
    # Campaigns record no grid: theirs is that of the configuration that measured them.
    columns = [*VOLUME_COLUMNS, "image_set", "coarse_points"]
    all_volumes = pd.concat([table.reindex(columns=columns) for table in volumes])
    all_volumes = all_volumes.drop_duplicates("volume_id", ignore_index=True)
    same_grid = all_volumes["coarse_points"].fillna(coarse_points) == coarse_points
    problem = "volume catalogued with another features.coarse_points"
    return TrainingRuns(
        all_runs.reset_index(drop=True),
        all_volumes.assign(problem=same_grid.map({True: None, False: problem})),
    )


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
