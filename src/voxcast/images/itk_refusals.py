"""Volumes that applications built on ITK, such as ANTs, refuse though NIfTI allows them.

voxcast reads them, so there is an answer for them; a run would fail. What is refused was tried
with antspyx 0.6.3 (ITK 5.4.5).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger = logging.getLogger(__name__)

_REFUSERS = "applications built on ITK, such as ANTs,"
# ITK multiplies the matrix of normalised axes by its transpose and compares it with the identity.
_ORTHONORMAL_TOLERANCE = 1e-4
_AS_FLOAT32 = "save it as float32, e.g. with nibabel"
_AS_NIFTI1 = "save it as NIfTI-1, e.g. with nibabel's Nifti1Image.from_image"
_RESAMPLED = "resample it, e.g. with nibabel.processing.resample_to_output"


def itk_refusal(path: Path) -> str:
    """Return why ITK or ANTs refuses a volume, and what to do; empty where they read it.

    Parameters
    ----------
    path : Path
        A file that `voxcast.images.headers.read_header` accepts; no voxel is read.
    """
    import nibabel

    image = nibabel.load(path)
    if not isinstance(image, nibabel.Nifti1Image):  # accepted files are
        return ""
    if isinstance(image, nibabel.Nifti2Image):
        return f"it is NIfTI-2; {_AS_NIFTI1}"
    dtype = image.get_data_dtype()
    voxels: Any = image.dataobj  # nibabel types it as any array; for a file it is a proxy
    # With a scaling ITK converts the voxels to float.
    if dtype.kind in "iu" and dtype.itemsize > 4 and (voxels.slope, voxels.inter) == (1, 0):
        return f"its voxels are {dtype.name}; {_AS_FLOAT32}"
    if not int(image.header["qform_code"]) and not _is_orthonormal(image.affine):
        return f"its axes are not at right angles (sform, and qform code is 0); {_RESAMPLED}"
    return ""


def _is_orthonormal(affine: np.ndarray) -> bool:
    axes = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    return bool(np.abs(axes @ axes.T - np.eye(3)).max() <= _ORTHONORMAL_TOLERANCE)


def log_itk_refusal(path: Path) -> None:
    """Warn of a volume that applications built on ITK refuse."""
    if refusal := itk_refusal(path):
        logger.warning("%s: %s refuse it: %s", path, _REFUSERS, refusal)


def log_itk_refusals(refusals: Iterable[tuple[Path, str]]) -> None:
    """Warn of the volumes of an image set, in one line for each reason.

    Parameters
    ----------
    refusals : iterable of tuple
        Of each volume the path, and what `itk_refusal` returns for it.
    """
    paths: dict[str, list[Path]] = defaultdict(list)
    for path, refusal in refusals:
        if refusal:
            paths[refusal].append(path)
    for refusal, refused in paths.items():
        logger.warning(
            "%s refuse %d of the volumes, the first is %s: %s",
            _REFUSERS, len(refused), refused[0], refusal,
        )  # fmt: skip
