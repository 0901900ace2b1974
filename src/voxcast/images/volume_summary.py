"""What a question needs of the voxels of an image, from a cache where the same bytes were read.

An entry is found by the SHA-256 of all bytes of the file, with the code of this package and the
size of the grids. Size, time and inode of a file could tell sooner that it is the same, but not
safely: copies keep times, and network file systems answer with old ones. Hashing takes a few
hundredths of what reading does, see `results/cache/volume_summary.json`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError
from voxcast.files import sha256_file
from voxcast.images.network_volume import network_volume
from voxcast.images.voxels import check_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.content_cache import Arrays, ContentCache
    from voxcast.images.characteristics import Characteristic
    from voxcast.images.headers import Layout

FUNCTION = "volume_summary"


@dataclass(frozen=True, eq=False)
class VolumeSummary:
    """What a question needs of the voxels of an image.

    Attributes
    ----------
    voxel_sha256 : str
        See `voxcast.images.volumes.read_volume`.
    characteristics : dict of str to float
        Those of voxcast, and those of a laboratory that could be computed.
    network_volume : ndarray, optional
        Of `voxcast.images.network_volume.volume_dtype`; None if none was asked for.
    """

    voxel_sha256: str
    characteristics: dict[str, float]
    network_volume: np.ndarray | None = None


@dataclass(frozen=True)
class Grids:
    """Sizes of the grids that a volume is summarised on.

    Attributes
    ----------
    coarse_points : int
        Maximum number of voxels along an axis of the grid of the characteristics.
    network_points : int
        Cells along each axis of the small volume; 0 for none.
    """

    coarse_points: int
    network_points: int = 0


def volume_summary(
    path: Path,
    layout: Layout,
    grids: Grids,
    max_voxels: int,
    lab: Mapping[str, Characteristic],
    cache: ContentCache | None = None,
) -> VolumeSummary:
    """Return the summary of a volume, from the cache if it has that of the same bytes.

    With characteristics of a laboratory nothing is cached: their code may change at any time.

    Raises
    ------
    ImageError
        See `voxcast.images.volumes.read_volume`.
    """
    check_size(layout, path, max_voxels)
    if cache is None or lab:
        return _summarised(path, grids, max_voxels, lab)
    content = {**vars(grids), "file_sha256": _file_sha256(path)}
    version = _code_sha256()
    arrays = cache.get(FUNCTION, version, content)
    if arrays is not None:
        with contextlib.suppress(KeyError, ValueError):  # written by something else
            return _from_arrays(arrays)
    summary = _summarised(path, grids, max_voxels, lab)
    # Were the file replaced meanwhile, the bytes that were hashed are not those that were read.
    if _file_sha256(path) == content["file_sha256"]:
        cache.put(FUNCTION, version, content, _to_arrays(summary))
    return summary


def _summarised(
    path: Path, grids: Grids, max_voxels: int, lab: Mapping[str, Characteristic]
) -> VolumeSummary:
    from voxcast.images.characteristics import characteristics
    from voxcast.images.lab_characteristics import computed_lab_values
    from voxcast.images.volumes import read_volume

    volume = read_volume(path, grids.coarse_points, max_voxels)
    values = characteristics(volume.coarse, volume.foreground)
    values |= computed_lab_values(lab, volume, path)
    points = grids.network_points
    return VolumeSummary(
        volume.voxel_sha256, values, network_volume(volume, points) if points else None
    )


def _to_arrays(summary: VolumeSummary) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "voxel_sha256": np.array(summary.voxel_sha256),
        "names": np.array(list(summary.characteristics)),
        "values": np.array(list(summary.characteristics.values()), dtype=np.float64),
    }
    if summary.network_volume is not None:
        arrays["network_volume"] = summary.network_volume
    return arrays


def _from_arrays(arrays: Arrays) -> VolumeSummary:
    values = zip(arrays["names"].tolist(), arrays["values"].tolist(), strict=True)
    return VolumeSummary(
        str(arrays["voxel_sha256"]), dict(values), arrays.get("network_volume")
    )  # fmt: skip


def _file_sha256(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}", path) from None


@functools.cache
def _code_sha256() -> str:
    """Return the hash of the code that decides a summary."""
    digest = hashlib.sha256(np.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
