"""The summary of a volume, from a cache where the same bytes were read.

An entry is found by the SHA-256 of all bytes of the file, with the code of this package and the
size of the grids. Size, time and inode of a file could tell sooner that it is the same, but not
safely: copies keep times, and network file systems answer with old ones. Hashing takes a few
hundredths of the time of reading.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.files import sha256_file
from voxcast.images.characteristics import CURRENT_VERSIONS, VERSIONS, characteristics
from voxcast.images.header import MAX_VOXELS
from voxcast.images.network_volume import network_volume
from voxcast.images.volume import Volume
from voxcast.log import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.content_cache import ContentCache
    from voxcast.images.header import ImageHeader

FUNCTION = "volume_summary"
ID_DIGITS = 16


@dataclass(frozen=True, eq=False)
class VolumeSummary:
    """The facts that a question, a catalogue and a record of runs need of an image.

    Attributes
    ----------
    voxel_sha256 : str
        See `voxcast.images.volume.VolumeContents`.
    characteristics : dict of str to float
        See `voxcast.images.characteristics`.
    network_volume : ndarray, optional
        Of `voxcast.images.network_volume.volume_dtype`; None unless requested.
    itk_refusal : str
        Why applications built on ITK refuse it, empty where they read it.
    """

    header: ImageHeader
    voxel_sha256: str
    characteristics: dict[str, float]
    network_volume: np.ndarray | None = None
    itk_refusal: str = ""

    @property
    def volume_id(self) -> str:
        """Name of the volume in tables: the begin of its hash."""
        return self.voxel_sha256[:ID_DIGITS]

    def facts(self, subject: str, coarse_points: int) -> dict[str, Any]:
        """Return its row of ``images.parquet``, which a record of runs keeps of an image.

        Parameters
        ----------
        coarse_points : int
            Of the grid that its characteristics were computed on.
        """
        return {
            "volume_id": self.volume_id,
            "subject": subject,
            "coarse_points": coarse_points,
            VERSIONS: CURRENT_VERSIONS,
            **self.header.columns(),
            "voxel_sha256": self.voxel_sha256,
            **self.characteristics,
        }


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


def summarise(
    volume: Volume,
    grids: Grids,
    max_voxels: int = MAX_VOXELS,
    cache: ContentCache | None = None,
) -> VolumeSummary:
    """Return the summary of a volume, from the cache if the same bytes were read before.

    Raises
    ------
    ImageError
        See `voxcast.images.volume.Volume.read`.
    """
    volume.check_size(max_voxels)
    if cache is None:
        return _summarised(volume, grids, max_voxels)
    content = {**vars(grids), "file_sha256": _file_sha256(volume.path)}
    version = _code_sha256()
    arrays = cache.get(FUNCTION, version, content)
    if arrays is not None:
        with contextlib.suppress(KeyError, ValueError):  # written by something else
            values = zip(arrays["names"].tolist(), arrays["values"].tolist(), strict=True)
            return VolumeSummary(
                volume.header, str(arrays["voxel_sha256"]), dict(values),
                arrays.get("network_volume"), volume.itk_refusal,
            )  # fmt: skip
    summary = _summarised(volume, grids, max_voxels)
    # If the file was replaced meanwhile, other bytes may have been hashed than were read.
    if _file_sha256(volume.path) == content["file_sha256"]:
        cache.put(FUNCTION, version, content, _to_arrays(summary))
    return summary


def _summarised(volume: Volume, grids: Grids, max_voxels: int) -> VolumeSummary:
    contents = volume.read(grids.coarse_points, max_voxels)
    return VolumeSummary(
        volume.header, contents.voxel_sha256, characteristics(contents),
        network_volume(contents, grids.network_points) if grids.network_points else None,
        volume.itk_refusal,
    )  # fmt: skip


def summaries(
    paths: Sequence[Path],
    grids: Grids,
    max_voxels: int = MAX_VOXELS,
) -> list[VolumeSummary | str]:
    """Return the summary of each file, or in one line why it cannot be used."""
    import nibabel.orientations  # noqa: F401  # once, before threads: imports may race

    def read(path: Path) -> VolumeSummary | str:
        try:
            return summarise(Volume.open(path), grids, max_voxels)
        except ImageError as error:
            return one_line(error)
        except MemoryError:
            return f"{path}: too large for this machine's memory; crop or resample it"

    # Decompression and array arithmetic release the interpreter lock.
    with ThreadPoolExecutor(max_workers=2) as pool:
        reading = pool.map(read, paths)
        return list(progress(reading, total=len(paths), desc="reading volumes", unit="volume"))


def _to_arrays(summary: VolumeSummary) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "voxel_sha256": np.array(summary.voxel_sha256),
        "names": np.array(list(summary.characteristics)),
        "values": np.array(list(summary.characteristics.values()), dtype=np.float64),
    }
    if summary.network_volume is not None:
        arrays["network_volume"] = summary.network_volume
    return arrays


def _file_sha256(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}", path) from None


@functools.cache
def _code_sha256() -> str:
    """Return the hash of the code that decides a summary."""
    versions = [importlib.metadata.version(name) for name in ("numpy", "scipy", "nibabel")]
    digest = hashlib.sha256(" ".join(versions).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
