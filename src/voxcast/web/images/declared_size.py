"""The size that a NIfTI header declares, checked before anything of that size is read."""

from __future__ import annotations

import gzip
import math
import zlib
from typing import TYPE_CHECKING, Any

from voxcast.errors import ImageError, one_line
from voxcast.images.header import COPY_AGAIN

if TYPE_CHECKING:
    from pathlib import Path

_START_BYTES = 540  # of a header of NIfTI-2, the longer one


def check_declared_size(path: Path, max_voxels: int) -> None:
    """Refuse a file whose header declares too many voxels; other faults are not looked for.

    Raises
    ------
    ImageError
        If it does, or its first bytes cannot be decompressed.
    """
    from nibabel import Nifti1Header, Nifti2Header
    from nibabel.spatialimages import HeaderDataError

    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            start = stream.read(_START_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImageError(
            f"damaged or truncated gzip ({one_line(error)})", path, COPY_AGAIN
        ) from None
    kinds: tuple[Any, ...] = (Nifti1Header, Nifti2Header)
    for kind in kinds:
        if not kind.may_contain_header(start):  # as nibabel chooses the format
            continue
        header = kind(start[: kind.template_dtype.itemsize], check=False)
        try:
            voxels = math.prod(int(n) for n in header.get_data_shape())
        except HeaderDataError as error:
            raise ImageError(f"its shape cannot be read ({one_line(error)})", path) from None
        if voxels > max_voxels:
            raise ImageError(
                f"declares {voxels} voxels, at most {max_voxels} are read here", path,
                "resample it, or read it with `voxcast inspect` and send the row",
            )  # fmt: skip
