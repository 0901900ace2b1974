"""Every volume that was ever catalogued, with the image set in which it was last catalogued.

Runs outlive the images they were measured on. A volume keeps its header, its characteristics and
its small volume when its image set is replaced, so that its runs still train.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.headers import HEADER_TYPES

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    import pandas as pd
    import pyarrow

logger = logging.getLogger(__name__)

ON_RECORD, NETWORK_VOLUMES = "on_record.parquet", "volumes.npz"
_TYPES: dict[str, type] = {
    **dict.fromkeys(("volume_id", "subject", "session", "image_set"), str),
    "coarse_points": int,  # grid of the characteristics
    **HEADER_TYPES,
    "voxel_sha256": str,
    **dict.fromkeys(CHARACTERISTICS, float),
}
COLUMNS = tuple(_TYPES)
# DVC tracks the catalogue of the project, and not those of campaigns.
RESTORE = "restore it (data/catalogue with `dvc checkout`), or remove it to forget earlier images"


class VolumesOnRecord:
    """The volumes on record in a catalogue folder; empty if it has none yet.

    Parameters
    ----------
    folder : str or os.PathLike
        Folder of the catalogue.

    Raises
    ------
    TableError
        If a file is broken, or was not written here.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        path = self.folder / ON_RECORD
        self._rows: dict[str, dict[str, Any]] = {}
        if path.is_file():
            rows = read_on_record(path).to_dict("records")
            self._rows = {row["volume_id"]: cast("dict[str, Any]", row) for row in rows}
        volumes = _read_volumes(self.folder / NETWORK_VOLUMES)
        self._volumes = {key: volume for key, volume in volumes.items() if key in self._rows}

    def add(self, rows: Iterable[dict[str, Any]], volumes: Mapping[str, np.ndarray]) -> None:
        """Add catalogued volumes and write both files; a volume on record is replaced.

        Parameters
        ----------
        rows : iterable of dict
            Values of `COLUMNS`.
        volumes : mapping
            Small volume of each by volume id, shape (p, p, p). Those on record on a grid of
            another size are dropped.
        """
        self._rows |= {row["volume_id"]: row for row in rows}
        shapes = {volume.shape for volume in volumes.values()}
        same_size = {key: cube for key, cube in self._volumes.items() if cube.shape in shapes}
        if dropped := len(set(self._volumes) - set(same_size) - set(volumes)):
            logger.warning(
                "%d small volumes of earlier images are dropped: they have another number of "
                "points; the network sees those images as unknown", dropped,
            )  # fmt: skip
        self._volumes = {**same_size, **volumes}
        ids = sorted(self._volumes)
        # First, as a volume without a row is ignored, but not the other way round.
        with atomic_path(self.folder / NETWORK_VOLUMES) as partial:
            cubes = np.stack([self._volumes[key] for key in ids])
            np.savez(partial, volume_id=np.array(ids), volumes=cubes)
        write_rows(
            self.folder / ON_RECORD, [self._rows[key] for key in sorted(self._rows)], _schema()
        )


def read_on_record(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table of volumes on record.

    Returns
    -------
    DataFrame
        One row per volume, with `COLUMNS`, sorted by ``volume_id``.

    Raises
    ------
    TableError
        If it is missing, broken, or lacks a column.
    """
    import pyarrow
    import pyarrow.parquet

    if not Path(path).is_file():
        raise TableError("no such file", path, "run `dvc repro catalogue`, which writes it")
    try:
        table = pyarrow.parquet.read_table(path)
        if missing := [name for name in COLUMNS if name not in table.column_names]:
            raise TableError(f"lacks the column {missing[0]}", path, RESTORE)
        rows: pd.DataFrame = table.select(list(COLUMNS)).cast(_schema()).to_pandas()
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, RESTORE) from None
    if rows["volume_id"].isna().any() or not rows["volume_id"].is_unique:
        raise TableError("has a volume without an identifier, or twice", path, RESTORE)
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]], schema: pyarrow.Schema) -> None:
    """Write rows atomically as Parquet."""
    import pyarrow
    import pyarrow.parquet

    with atomic_path(path) as partial:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), partial)


def _read_volumes(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    try:
        with np.load(path, allow_pickle=False) as content:
            ids, volumes = content["volume_id"], content["volumes"]
            return {str(key): cube for key, cube in zip(ids, volumes, strict=True)}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, RESTORE) from None


def _schema() -> pyarrow.Schema:
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    return pyarrow.schema([(name, arrow_types[type_]) for name, type_ in _TYPES.items()])
