"""The header of a NIfTI file, and checks of the file without reading voxels.

`voxcast.images.volume` opens a file and reads its voxels.
"""

from __future__ import annotations

import gzip
import logging
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

MAX_VOXELS = 10**9  # of a volume whose voxels are read, unless a user allows more
COPY_AGAIN = "copy or convert the file again"
MAX_OFFSET_BYTES = 64 * 2**20  # extensions of the header lie before the voxels
# Millimetres of a unit by its code in NIfTI: metres and micrometres, which ITK converts too. All
# other codes are read as millimetres.
_UNIT_MM = {1: 1e3, 3: 1e-3}
_UNIT_BITS = 0b111  # other units are of time
ENDINGS = (".nii", ".nii.gz")
# ITK multiplies the matrix of normalised axes by its transpose and compares it with the identity.
_ORTHONORMAL_TOLERANCE = 1e-4
SHAPE_COLUMNS = ("shape_i", "shape_j", "shape_k")
SPACING_COLUMNS = ("spacing_i_mm", "spacing_j_mm", "spacing_k_mm")
# Columns of a header in every table and request, with their types.
HEADER_TYPES: dict[str, type] = {
    **dict.fromkeys(SHAPE_COLUMNS, int),
    **dict.fromkeys(SPACING_COLUMNS, float),
    "axcodes": str,
    "obliqueness_deg": float,
    "dtype": str,
    "bytes_per_voxel": int,
    "file_size_bytes": int,
}
HEADER_COLUMNS = tuple(HEADER_TYPES)


@dataclass(frozen=True)
class ImageHeader:
    """Grid and storage of one volume; `spacing_mm` and `shape` are in the file's own order."""

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, ...]
    axcodes: str
    obliqueness_deg: float
    dtype: str
    bytes_per_voxel: int
    file_size_bytes: int

    @property
    def voxels(self) -> int:
        """Number of voxels."""
        return math.prod(self.shape)

    def columns(self) -> dict[str, Any]:
        """Return the header's columns of the catalogue."""
        values = (*self.shape, *self.spacing_mm, self.axcodes, self.obliqueness_deg)
        storage = (self.dtype, self.bytes_per_voxel, self.file_size_bytes)
        return dict(zip(HEADER_COLUMNS, (*values, *storage), strict=True))


def read_nifti_header(path: Path) -> Any:
    """Return the header of a file as nibabel has it; nothing behind it is read.

    Raises
    ------
    ImageError
        If it is not a NIfTI file, cannot be read, or has its voxels in the header or far behind.
    """
    import nibabel

    not_nifti = ImageError("not a NIfTI file", path, "convert it to .nii or .nii.gz")
    name = path.name.lower()
    if not name.endswith(ENDINGS):
        raise not_nifti
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as stream:
            start = stream.read(nibabel.Nifti2Header.sizeof_hdr)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImageError(
            f"damaged or truncated gzip ({one_line(error)})", path, COPY_AGAIN
        ) from None
    except OSError as error:
        raise ImageError(f"cannot be read ({one_line(error)})", path, COPY_AGAIN) from None
    kinds: tuple[Any, ...] = (nibabel.Nifti1Header, nibabel.Nifti2Header)
    for kind in kinds:
        size_bytes = kind.sizeof_hdr
        if not kind.may_contain_header(start):
            continue
        header = kind(start[:size_bytes], check=False)
        offset_bytes = float(header["vox_offset"])
        if not size_bytes <= offset_bytes <= MAX_OFFSET_BYTES:  # true for NaN, too
            raise ImageError(
                f"voxels begin at byte {offset_bytes:g}, not in {size_bytes} to "
                f"{MAX_OFFSET_BYTES}",
                path,
                COPY_AGAIN,
            )
        try:
            header.check_fix()
            header.get_data_dtype()
            header.get_slope_inter()
        except nibabel.spatialimages.HeaderDataError:
            raise not_nifti from None
        return header
    raise not_nifti


def header_of(nifti: Any, path: Path, size_bytes: int) -> tuple[ImageHeader, np.ndarray]:
    """Return what a header of nibabel says, and its affine from voxels to millimetres.

    Raises
    ------
    ImageError
        If it holds no voxels, does not have three axes, or has no orientation.
    """
    import nibabel

    shape = _three_axes(nifti.get_data_shape(), path)
    dtype = nifti.get_data_dtype()
    if dtype.kind not in "iuf":
        raise ImageError(f"voxels are {dtype}, not numbers", path, "give a scalar image")
    affine = _affine(nifti, path)
    obliqueness_rad = float(np.abs(nibabel.affines.obliquity(affine)).max())
    header = ImageHeader(
        shape=shape,
        spacing_mm=tuple(_spacing_mm(affine).tolist()),
        axcodes="".join(nibabel.aff2axcodes(affine)),
        obliqueness_deg=round(math.degrees(obliqueness_rad), 3),
        dtype=dtype.name,
        bytes_per_voxel=dtype.itemsize,
        file_size_bytes=size_bytes,
    )
    return header, affine


def file_size_bytes(path: Path) -> int:
    """Return the size of a file that can be read.

    Raises
    ------
    ImageError
        If it is missing, a folder, empty, or may not be read.
    """
    if path.is_dir():
        raise ImageError("is a folder, not a volume", path, "name a .nii or .nii.gz file in it")
    try:
        with path.open("rb") as stream:
            size_bytes = stream.seek(0, 2)
    except FileNotFoundError:
        raise ImageError("no such file", path) from None
    except PermissionError:
        raise ImageError("may not be read", path, "change its permissions") from None
    except OSError as error:
        raise ImageError(f"cannot be read ({error.strerror})", path) from None
    if size_bytes == 0:
        raise ImageError("file is empty", path, COPY_AGAIN)
    return size_bytes


def _three_axes(shape: tuple[int, ...], path: Path) -> tuple[int, int, int]:
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != 3:
        raise ImageError(
            f"has {len(shape)} axes {shape} where 3 are needed",
            path,
            "take one volume of it, e.g. nibabel.four_to_three",
        )
    if min(shape) < 1:
        raise ImageError(f"holds no voxels, its shape is {shape}", path, COPY_AGAIN)
    return (int(shape[0]), int(shape[1]), int(shape[2]))


def _affine(nifti: Any, path: Path) -> np.ndarray:
    import nibabel

    fix = "write one into the header, e.g. nibabel's set_sform(affine, code=1)"
    if not int(nifti["sform_code"]) and not int(nifti["qform_code"]):
        raise ImageError("has no affine (sform and qform code are 0)", path, fix)
    affine = np.array(nifti.get_best_affine(), dtype=np.float64)
    affine[:3] *= _UNIT_MM.get(int(nifti["xyzt_units"]) & _UNIT_BITS, 1.0)
    singular = not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9
    # Of axes of very different lengths, or nearly in one plane, nibabel names some only, and a
    # spacing of less than 10 nm is an error.
    if singular or None in nibabel.aff2axcodes(affine) or not _spacing_mm(affine).all():
        raise ImageError("its affine is singular", path, fix)
    return affine


def _spacing_mm(affine: np.ndarray) -> np.ndarray:
    import nibabel

    sizes: np.ndarray = nibabel.affines.voxel_sizes(affine).round(5)
    return sizes


def check_complete(path: Path, size_bytes: int, end_bytes: int) -> None:
    """Raise ImageError if a file ends before its last voxel, at ``end_bytes``.

    Only sizes are compared: the size of the file, or the one in the last four bytes of gzip.
    """
    if path.suffix.lower() != ".gz":
        if size_bytes < end_bytes:
            raise ImageError(f"is cut short: {size_bytes} of {end_bytes} bytes", path, COPY_AGAIN)
        return
    with path.open("rb") as stream:
        stream.seek(-4, 2)
        (noted_bytes,) = struct.unpack("<I", stream.read(4))
    if noted_bytes == end_bytes % 2**32:
        return
    # The trailer of a file in several gzip members (bgzip, pigz -i) counts the last member only,
    # and some writers pad: what looks truncated is decompressed before it is rejected.
    try:
        length_bytes = 0
        with gzip.open(path) as stream:
            while length_bytes < end_bytes and (block := stream.read(1 << 20)):
                length_bytes += len(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImageError(f"truncated gzip ({one_line(error)})", path, COPY_AGAIN) from None
    if length_bytes < end_bytes:
        raise ImageError(f"is cut short: {length_bytes} of {end_bytes} bytes", path, COPY_AGAIN)


def itk_refusal(nifti: Any) -> str:
    """Return why applications built on ITK, such as ANTs, refuse an image that NIfTI allows.

    voxcast reads it, so there is an answer for it; a run would fail. What is refused was tried
    with antspyx 0.6.3 (ITK 5.4.5). The text says what to do; it is empty where they read it.
    """
    import nibabel

    if isinstance(nifti, nibabel.Nifti2Header):
        then = "save it as NIfTI-1, e.g. with nibabel's Nifti1Image.from_image"
        return f"it is NIfTI-2; {then}"
    dtype = nifti.get_data_dtype()
    # With a scaling ITK converts the voxels to float.
    if dtype.kind in "iu" and dtype.itemsize > 4 and scaling_of(nifti) == (1, 0):
        return f"its voxels are {dtype.name}; save it as float32, e.g. with nibabel"
    axes = nifti.get_best_affine()[:3, :3]
    axes = axes / np.linalg.norm(axes, axis=0)
    is_orthonormal = np.abs(axes @ axes.T - np.eye(3)).max() <= _ORTHONORMAL_TOLERANCE
    if not int(nifti["qform_code"]) and not is_orthonormal:
        then = "resample it, e.g. with nibabel.processing.resample_to_output"
        return f"its axes are not at right angles (sform, and qform code is 0); {then}"
    return ""


def scaling_of(nifti: Any) -> tuple[float, float]:
    """Return slope and intercept of a header of nibabel, which are 1 and 0 without a scaling."""
    slope, intercept = nifti.get_slope_inter()
    return (1.0 if slope is None else slope), (0.0 if intercept is None else intercept)


def log_itk_refusals(refusals: Sequence[tuple[Path, str]]) -> None:
    """Warn of volumes that applications built on ITK refuse, in one line for each reason.

    Parameters
    ----------
    refusals : sequence of tuple
        Of each volume the path, and what `itk_refusal` returned for it.
    """
    for reason in dict.fromkeys(reason for _, reason in refusals if reason):
        paths = [path for path, other in refusals if other == reason]
        more, them = "", "it"
        if len(paths) > 1:
            more, them = f" and {counted(len(paths) - 1, 'other')}", "them"
        refusers = "applications built on ITK, such as ANTs,"
        logger.warning("%s%s: %s refuse %s: %s", paths[0], more, refusers, them, reason)
