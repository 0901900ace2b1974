"""A file of small volumes by volume id: ``volumes.npz``, without pickled objects."""

from __future__ import annotations

import lzma
import zipfile
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path
from voxcast.images.network_volume import points_of, volume_dtype

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

SMALL_VOLUMES = "volumes.npz"
UNREADABLE = (OSError, ValueError, KeyError, IndexError, EOFError, lzma.LZMAError)
# Of every member, so that the same volumes are the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)


def write_small_volumes(path: Path, volumes: Mapping[str, np.ndarray], points: int) -> None:
    """Write small volumes of ``points``, compressed; the same volumes are the same bytes."""
    ids = sorted(volumes)
    stacked = np.array([volumes[key] for key in ids], volume_dtype(points))
    arrays = {"volume_id": np.array(ids, dtype=str), "volumes": stacked}
    # A fifth smaller than numpy's own compression, which reads it, too.
    with atomic_path(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", DATE)
            member.compress_type = zipfile.ZIP_LZMA
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def read_small_volumes(path: Path, then: str) -> dict[str, np.ndarray]:
    """Return the small volumes of a file by volume id, none without a file; see `read_stacked`."""
    if not path.is_file():
        return {}
    return dict(zip(*read_stacked(path, then), strict=True))


def read_stacked(path: Path, then: str) -> tuple[list[str], np.ndarray]:
    """Return the ids of a file and their small volumes, shape (n,).

    Parameters
    ----------
    then : str
        What the user can do if it cannot be read.

    Raises
    ------
    TableError
        If it is missing, cannot be read, or was not written by `write_small_volumes`.
    """
    try:
        with np.load(path, allow_pickle=False) as content:
            ids, volumes = content["volume_id"], content["volumes"]
        if volumes.dtype != volume_dtype(points_of(volumes)) or ids.shape != volumes.shape:
            raise ValueError("other fields than maps, shape and spacing_mm")
    except (*UNREADABLE, zipfile.BadZipFile) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, then) from None
    return [str(name) for name in ids], volumes


def copy_small_volumes(folder: Path, target: Path, ids: Collection[str]) -> None:
    """Write the small volumes of some ids from the file of one folder into that of another."""
    volumes = read_small_volumes(folder / SMALL_VOLUMES, "build the catalogue again")
    chosen = {key: volume for key, volume in volumes.items() if key in ids}
    if chosen:
        points = points_of(next(iter(chosen.values())))
        write_small_volumes(target / SMALL_VOLUMES, chosen, points)
