"""Every volume that was ever catalogued, with the image set in which it was last catalogued.

Runs outlive the images they were measured on. A volume keeps its header, its characteristics and
its small volume when its image set is replaced, so that its runs still train.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path
from voxcast.images.characteristic_versions import (
    VERSIONS,
    current_rows,
    is_current,
    versions_of,
)
from voxcast.images.header import HEADER_TYPES
from voxcast.images.network_volume import (
    SMALL_VOLUMES,
    points_of,
    read_small_volumes,
    write_small_volumes,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    import numpy as np
    import pandas as pd
    import pyarrow

logger = logging.getLogger(__name__)

ON_RECORD = "on_record.parquet"
_REQUIRED: dict[str, type] = {
    **dict.fromkeys(("volume_id", "subject", "session", "image_set"), str),
    "coarse_points": int,  # grid of the characteristics
    **HEADER_TYPES,
    "voxel_sha256": str,
}
PATH = "path"  # of the file when it was catalogued
# DVC tracks the catalogue of the project, and not those of campaigns.
RESTORE = "restore it (data/catalogue with `dvc checkout`), or remove it to forget earlier images"


class VolumesOnRecord:
    """The volumes on record in a catalogue folder; empty if it has none yet.

    Parameters
    ----------
    folder : str or os.PathLike
        Folder of the catalogue.
    versions : mapping, optional
        Versions of the characteristics by name, see `read_on_record`.

    Raises
    ------
    TableError
        If a file is broken, or was not written here.
    """

    def __init__(
        self, folder: str | os.PathLike[str], versions: Mapping[str, int] | None = None
    ) -> None:
        self.folder = Path(folder)
        self.versions = versions_of({}) if versions is None else dict(versions)
        path = self.folder / ON_RECORD
        self._rows: dict[str, dict[str, Any]] = {}
        if path.is_file():
            rows = read_on_record(path, self.versions).to_dict("records")
            # Without any path the column holds NaN.
            self._rows = {
                row["volume_id"]: {**row, PATH: _text_or_none(row[PATH])}
                for row in cast("list[dict[str, Any]]", rows)
            }
        volumes = read_small_volumes(self.folder / SMALL_VOLUMES, RESTORE)
        self._volumes = {key: volume for key, volume in volumes.items() if key in self._rows}

    def outdated(self) -> list[dict[str, Any]]:
        """Return the rows of which a characteristic is of another version, or not computed."""
        return [r for r in self._rows.values() if not is_current(r[VERSIONS], self.versions)]

    def add(self, rows: Iterable[dict[str, Any]], volumes: Mapping[str, np.ndarray]) -> None:
        """Add catalogued volumes and write both files; a volume on record is replaced.

        Parameters
        ----------
        rows : iterable of dict
            Values of the columns of `read_on_record`.
        volumes : mapping
            Small volume of each by volume id, all of the same number of points. Those on record
            on a grid of another size are dropped.
        """
        self._rows |= {row["volume_id"]: row for row in rows}
        (points,) = {points_of(volume) for volume in volumes.values()}
        same_size = {
            key: volume for key, volume in self._volumes.items() if points_of(volume) == points
        }
        if dropped := len(set(self._volumes) - set(same_size) - set(volumes)):
            logger.warning(
                "%d small volumes of earlier images are dropped: they have another number of "
                "points; the network sees those images as unknown", dropped,
            )  # fmt: skip
        self._volumes = {**same_size, **volumes}
        # First, as a volume without a row is ignored, but not the other way round.
        write_small_volumes(self.folder / SMALL_VOLUMES, self._volumes, points)
        ordered = [self._rows[key] for key in sorted(self._rows)]
        write_rows(self.folder / ON_RECORD, ordered, _schema(self.versions))


def read_on_record(
    path: str | os.PathLike[str], versions: Mapping[str, int] | None = None
) -> pd.DataFrame:
    """Read a table of volumes on record.

    Parameters
    ----------
    versions : mapping, optional
        Versions of the characteristics by name; those of voxcast by default. Values of another
        version are unknown.

    Returns
    -------
    DataFrame
        One row per volume, sorted by ``volume_id``, with `columns_of`.

    Raises
    ------
    TableError
        If it is missing, broken, or lacks a column that is no characteristic.
    """
    versions = versions_of({}) if versions is None else versions
    import pyarrow
    import pyarrow.parquet

    if not Path(path).is_file():
        raise TableError("no such file", path, "run `dvc repro catalogue`, which writes it")
    try:
        table = pyarrow.parquet.read_table(path)
        if missing := [name for name in _REQUIRED if name not in table.column_names]:
            raise TableError(f"lacks the column {missing[0]}", path, RESTORE)
        fields = [field for field in _schema(versions) if field.name in table.column_names]
        typed = table.select([field.name for field in fields]).cast(pyarrow.schema(fields))
        rows = current_rows(typed.to_pandas(), versions)
        rows = rows.reindex(columns=list(columns_of(versions)))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, RESTORE) from None
    if rows["volume_id"].isna().any() or not rows["volume_id"].is_unique:
        raise TableError("has a volume without an identifier, or twice", path, RESTORE)
    return rows


def columns_of(versions: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns of a table of volumes on record, with these characteristics."""
    return tuple(_types(versions))


def write_rows(path: Path, rows: list[dict[str, Any]], schema: pyarrow.Schema) -> None:
    """Write rows atomically as Parquet."""
    import pyarrow
    import pyarrow.parquet

    with atomic_path(path) as partial:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), partial)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _types(versions: Mapping[str, int]) -> dict[str, type]:
    return {**_REQUIRED, PATH: str, **dict.fromkeys(versions, float), VERSIONS: str}


def _schema(versions: Mapping[str, int]) -> pyarrow.Schema:
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    return pyarrow.schema([(n, arrow_types[type_]) for n, type_ in _types(versions).items()])
