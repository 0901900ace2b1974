"""What a run's record keeps of its image: identity, header and characteristics, without voxels.

A row of ``images.parquet`` of a recorded batch, as a plain object that a plan can carry.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ImageError
from voxcast.files import canonical_json
from voxcast.images.bids import subject_of
from voxcast.images.catalogue import look_at
from voxcast.images.characteristic_versions import VERSIONS, versions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.images.characteristics import Characteristic
    from voxcast.images.headers import ImageHeader

ID_DIGITS = 16


def volume_facts(
    path: Path,
    header: ImageHeader,
    voxel_sha256: str,
    values: Mapping[str, float],
    coarse_points: int,
    lab: Mapping[str, Characteristic],
) -> dict[str, Any]:
    """Return the facts of a volume that was read.

    Parameters
    ----------
    values : mapping
        Its characteristics, computed on a grid of ``coarse_points``.
    lab : mapping
        Those of a laboratory that were computed, see `voxcast.images.lab_characteristics`.
    """
    return {
        "volume_id": voxel_sha256[:ID_DIGITS],
        "subject": subject_of(path),
        "coarse_points": coarse_points,
        VERSIONS: canonical_json(versions_of(lab)),
        **header.columns(),
        "voxel_sha256": voxel_sha256,
        **values,
    }


def read_volume_facts(
    path: Path, started_at: str, coarse_points: int, lab: Mapping[str, Characteristic]
) -> dict[str, Any]:
    """Read the facts of an image after a run on it.

    Parameters
    ----------
    started_at : str
        Start of the run, ISO 8601 with its time zone.

    Raises
    ------
    ImageError
        If the file is gone, was changed since, or cannot be used.
    """
    try:
        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}", path) from None
    # Slurm states whole seconds.
    if changed_at >= datetime.fromisoformat(started_at) + timedelta(seconds=1):
        raise ImageError("was changed after a run on it had started", path)
    look = look_at(path, None, coarse_points, None, lab=lab)
    if look.header is None or look.voxel_sha256 is None:
        raise ImageError(str(look.problem), path)
    return volume_facts(
        path, look.header, look.voxel_sha256, look.characteristics or {}, coarse_points, lab
    )
