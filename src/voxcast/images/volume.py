"""A volume: opened once, its header parsed once, its voxels read in blocks of bounded size.

A damaged, short or compressed file is never held in memory as a whole. Figures computed from the
voxels are in `voxcast.images.characteristics` and `voxcast.images.network_volume`.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.images.foreground import Foreground, VoxelBits, foreground
from voxcast.images.header import (
    COPY_AGAIN,
    MAX_VOXELS,
    ImageHeader,
    check_complete,
    file_size_bytes,
    header_of,
    itk_refusal,
    read_nifti_header,
    scaling_of,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

POINTS = 64
BLOCK_BYTES = 4 * 2**20
MAX_LINES = 2**21  # along the first axis: the runs of a mask take memory for each
# A larger volume is decompressed a second time instead of being kept between two passes.
KEPT_BYTES = 256 * 2**20
MAX_PADDING_BYTES = 2**30


@dataclass(frozen=True)
class CoarseVolume:
    """Every `stride`-th voxel of a volume, in its native orientation.

    `data` is float32 and finite; `shape` and `spacing_mm` describe the native grid.
    """

    data: np.ndarray
    stride: tuple[int, int, int]
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, ...]
    axcodes: str


@dataclass(frozen=True)
class VolumeContents:
    """What one reading of the voxels gives.

    Attributes
    ----------
    coarse : CoarseVolume
        Every k-th voxel, with the shape and the spacing of the native grid.
    foreground : Foreground
        Size and form of the foreground mask on the native grid.
    bright : VoxelBits
        The voxels of the native grid at or above its mean, a bit for each.
    voxel_sha256 : str
        Hash of voxels, type, shape, scaling and affine (to 1e-4).
    """

    coarse: CoarseVolume
    foreground: Foreground
    bright: VoxelBits
    voxel_sha256: str


@dataclass(frozen=True, eq=False)
class Volume:
    """An open volume; the value of a voxel is ``stored * slope + intercept``.

    Attributes
    ----------
    affine : numpy.ndarray
        From voxels to millimetres in any unit of the file, shape (4, 4).
    dtype : numpy.dtype
        Of the voxels as stored.
    offset_bytes : int
        Position of the first voxel in the (uncompressed) file.
    itk_refusal : str
        See `voxcast.images.header.itk_refusal`.
    """

    path: Path
    header: ImageHeader
    affine: np.ndarray
    dtype: np.dtype[Any]
    offset_bytes: int
    slope: float
    intercept: float
    itk_refusal: str = ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Volume:
        """Parse the header of a ``.nii`` or ``.nii.gz`` file.

        Raises
        ------
        ImageError
            If it is not a NIfTI file, is cut short, holds no voxels, does not have three axes, or
            has no orientation.
        """
        path = Path(path)
        size_bytes = file_size_bytes(path)
        nifti = read_nifti_header(path)
        header, affine = header_of(nifti, path, size_bytes)
        volume = cls(
            path, header, affine, nifti.get_data_dtype(), nifti.get_data_offset(),
            *scaling_of(nifti), itk_refusal(nifti),
        )  # fmt: skip
        check_complete(
            path, size_bytes, volume.offset_bytes + header.voxels * volume.dtype.itemsize
        )
        return volume

    def check_size(self, max_voxels: int) -> None:
        """Raise ImageError if the volume has more than ``max_voxels`` voxels, or too many lines.

        A head at 7 T in 0.25 mm has 5e8; a compressed file of some megabytes can declare any
        number, and reading it would take minutes.
        """
        if self.header.voxels > max_voxels:
            sizes = " x ".join(map(str, self.header.shape))
            raise ImageError(
                f"has {self.header.voxels} voxels ({sizes}), at most {max_voxels} are read",
                self.path,
                "resample it, or set features.max_voxels in conf for learning",
            )
        lines = self.header.voxels // self.header.shape[0]
        if lines > MAX_LINES:
            problem = (
                f"has {lines} lines of {self.header.shape[0]} voxels, at most {MAX_LINES} are read"
            )
            raise ImageError(problem, self.path, "store its longest axis first")

    def blocks(self, max_voxels: int = MAX_VOXELS) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the voxels as stored, in the order of the file, with the position of each first.

        A block is one-dimensional, of some MiB. The checksum of a compressed file is checked after
        its last voxel, so figures computed from the blocks are valid only after the last one.

        Raises
        ------
        ImageError
            If the volume has more than ``max_voxels`` voxels, or its voxels are damaged.
        """
        self.check_size(max_voxels)
        is_compressed = self.path.suffix.lower() == ".gz"
        try:
            # Not through nibabel, which stops before gzip's checksum and lets damage pass.
            with gzip.open(self.path) if is_compressed else self.path.open("rb") as stream:
                yield from self._stored(stream)
                if is_compressed:
                    _read_padding(stream, self.path)
        except (EOFError, zlib.error, OSError) as error:
            problem = f"voxels are damaged ({one_line(error)})"
            raise ImageError(problem, self.path, COPY_AGAIN) from None

    def values(self, stored: np.ndarray) -> np.ndarray:
        """Return the values of voxels as stored, float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(stored.astype(np.float64) * self.slope + self.intercept)

    def read(self, points: int = POINTS, max_voxels: int = MAX_VOXELS) -> VolumeContents:
        """Read the coarse grid, the foreground on the native grid, and the hash of the content.

        Memory is at most 256 MiB for the voxels, one bit for each of them, and what a few planes
        and a mask's runs take.

        Raises
        ------
        ImageError
            See `coarse`.
        """
        header = self.header
        affine = (self.affine.round(4) + 0.0).tolist()  # + 0.0 makes -0.0 and 0.0 equal
        facts = (header.shape, self.dtype.str, self.slope, self.intercept, affine)
        digest = hashlib.sha256(repr(facts).encode())
        keep = header.voxels * self.dtype.itemsize <= KEPT_BYTES
        blocks: list[tuple[int, np.ndarray]] = []
        total = 0.0

        def on_block(first: int, block: np.ndarray) -> None:
            nonlocal total
            digest.update(block.data)
            is_exact = block.dtype.kind in "iu" and block.dtype.itemsize < 8
            with np.errstate(over="ignore", invalid="ignore"):
                of_block = self._finite(block).sum(dtype=np.int64 if is_exact else np.float64)
            total += float(of_block)
            if keep:
                blocks.append((first, block))

        coarse = self.coarse(points, max_voxels, on_block)
        if not math.isfinite(total):
            raise self._out_of_precision()
        mean = (
            total / header.voxels
        )  # of the voxels as stored: scaling keeps their order or turns it
        bright = VoxelBits(header.shape)
        for first, block in blocks if keep else self.blocks(max_voxels):
            values = self._finite(block)
            bright.set(first, values >= mean if self.slope > 0 else values <= mean)
        blocks.clear()
        mask = foreground(bright, coarse.stride)
        return VolumeContents(coarse, mask, bright, digest.hexdigest())

    def _stored(self, stream: BinaryIO | gzip.GzipFile) -> Iterator[tuple[int, np.ndarray]]:
        skip = self.offset_bytes
        while skip > 0 and (data := stream.read(min(skip, BLOCK_BYTES))):
            skip -= len(data)
        voxels, size = self.header.voxels, self.dtype.itemsize
        step = max(BLOCK_BYTES // size // 8, 1) * 8  # `VoxelBits` packs eight
        for first in range(0, voxels, step):
            count = min(step, voxels - first)
            data = stream.read(count * size)
            if len(data) < count * size:
                raise EOFError(f"{(voxels - first) * size - len(data)} bytes are missing")
            yield first, np.frombuffer(data, self.dtype)

    def coarse(
        self,
        points: int = POINTS,
        max_voxels: int = MAX_VOXELS,
        on_block: Callable[[int, np.ndarray], object] = lambda _first, _block: None,
    ) -> CoarseVolume:
        """Read every k-th voxel, so that no axis has more than ``points``.

        Voxels that are not finite become 0. Memory does not depend on the size of the volume.

        Parameters
        ----------
        on_block : callable
            Called with each of `blocks`.

        Raises
        ------
        ImageError
            As `blocks`; and if all voxels are NaN, or all are equal, or their range is beyond
            single precision.
        """
        header = self.header
        self.check_size(max_voxels)
        stride = strides(header.shape, points)
        axes = [np.arange(0, n, step) for n, step in zip(header.shape, stride, strict=True)]
        picked = Picked(self, axes)
        for first, block in self.blocks(max_voxels):
            on_block(first, block)
            picked.add(first, block)
        data = self._single(picked.voxels)
        if not np.isfinite(data).any() or np.ptp(data[np.isfinite(data)]) == 0:
            # Rare, so every voxel is checked before a volume is rejected.
            self._check_varies(max_voxels)
        data = np.nan_to_num(data, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        with np.errstate(over="ignore"):
            extent = float(np.ptp(data))
        single = np.finfo(np.float32)
        # 0 is the first of the coarse grid; the voxels between its points vary.
        if extent and not single.tiny <= extent <= single.max:
            raise self._out_of_precision()
        return CoarseVolume(data, stride, header.shape, header.spacing_mm, header.axcodes)

    def _single(self, stored: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(self.values(stored), dtype=np.float32)

    def _out_of_precision(self) -> ImageError:
        then = "divide them by their maximum"
        return ImageError("the range of its voxels is beyond single precision", self.path, then)

    def _check_varies(self, max_voxels: int) -> None:
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for _, block in self.blocks(max_voxels):
            values = self._single(block)
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, finite.min()), max(high, finite.max())
                if low < high:
                    return
        if low > high:
            raise ImageError("has no finite voxel (NaN only)", self.path, "make it again")
        raise ImageError(f"is constant, all voxels are {low:g}", self.path, "make it again")

    def _finite(self, stored: np.ndarray) -> np.ndarray:
        """Return voxels as stored; where they are not finite, the value that is scaled to 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            if stored.dtype.kind != "f" or np.isfinite(stored.sum(dtype=np.float64)):
                return stored
            finite = np.isfinite(stored * self.slope + self.intercept)
        return np.where(finite, stored, -self.intercept / self.slope)


class Picked:
    """Some voxels of a volume as stored, taken from its blocks.

    Parameters
    ----------
    axes : sequence of ndarray
        Increasing indices along each axis, whose combinations are taken.
    """

    def __init__(self, volume: Volume, axes: Sequence[np.ndarray]) -> None:
        # Their positions in the file, which has the first axis innermost.
        grid = np.ravel_multi_index(np.ix_(*axes[::-1]), volume.header.shape[::-1])
        self._positions = grid.ravel()
        self._voxels = np.empty(grid.shape, volume.dtype)

    def add(self, first: int, block: np.ndarray) -> None:
        """Take what is in a block of `Volume.blocks`."""
        a, b = np.searchsorted(self._positions, (first, first + block.size))
        self._voxels.reshape(-1)[a:b] = block[self._positions[a:b] - first]

    @property
    def voxels(self) -> np.ndarray:
        """The voxels taken so far, shape (i, j, k)."""
        return self._voxels.transpose(2, 1, 0)


def strides(shape: tuple[int, int, int], points: int) -> tuple[int, int, int]:
    """Return the steps that leave at most ``points`` voxels on each axis.

    Examples
    --------
    >>> strides((256, 64, 65), 64)
    (4, 1, 2)
    """
    i, j, k = (math.ceil(n / points) for n in shape)
    return (i, j, k)


def _read_padding(stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
    """Read to the end, where gzip compares its checksum."""
    padding_bytes = 0
    while data := stream.read(1 << 20):
        padding_bytes += len(data)
        if padding_bytes > MAX_PADDING_BYTES:
            raise ImageError("holds more than 1 GiB after its last voxel", path, COPY_AGAIN)
