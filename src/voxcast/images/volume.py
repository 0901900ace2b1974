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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.images.foreground import Foreground, RowBits, foreground
from voxcast.images.header import (
    COPY_AGAIN,
    MAX_VOXELS,
    ImageHeader,
    check_complete,
    file_size_bytes,
    header_of,
    itk_refusal,
    load_nifti,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

POINTS = 64
BLOCK_BYTES = 4 * 2**20
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
    """Figures from the voxels of a volume, each part computed once.

    Attributes
    ----------
    coarse : CoarseVolume
        Every k-th voxel, with the shape and the spacing of the native grid.
    foreground : Foreground
        Size and form of the foreground mask on the native grid.
    header : ImageHeader or None
        The header; a project's own characteristics always have it.
    bright : RowBits or None
        The voxels of the native grid at or above its mean, a bit for each.
    voxel_sha256 : str
        Hash of voxels, type, shape, scaling and affine (to 1e-4).
    """

    coarse: CoarseVolume
    foreground: Foreground
    header: ImageHeader | None = None
    bright: RowBits | None = None
    voxel_sha256: str = ""

    @cached_property
    def intensity(self) -> np.ndarray:
        """Intensity on the coarse grid from 0, the lowest, to 1, the highest; float32."""
        low, high = float(self.coarse.data.min()), float(self.coarse.data.max())
        scaled: np.ndarray = (self.coarse.data - np.float32(low)) * np.float32(
            1.0 / ((high - low) or 1.0)
        )
        return scaled

    @cached_property
    def above_mean(self) -> np.ndarray:
        """Which points of the coarse grid are at or above its mean."""
        above: np.ndarray = self.intensity >= self.intensity.mean(dtype=np.float64)
        return above

    @cached_property
    def mask(self) -> np.ndarray:
        """The foreground on the coarse grid; a mask of few voxels may have none there."""
        return self.foreground.coarse if self.foreground.coarse.any() else self.above_mean

    @cached_property
    def inside(self) -> np.ndarray:
        """Intensities inside of the mask, shape (points,)."""
        values: np.ndarray = self.intensity[self.mask]
        return values

    @cached_property
    def percentiles(self) -> tuple[float, ...]:
        """The 10th, 50th, 90th and 99th percentile of intensity."""
        return tuple(float(p) for p in np.percentile(self.intensity, (10, 50, 90, 99)))

    @cached_property
    def foreground_percentiles(self) -> tuple[float, ...]:
        """The 10th, 50th and 90th percentile of intensity inside of the mask."""
        return tuple(float(p) for p in np.percentile(self.inside, (10, 50, 90)))

    @property
    def median(self) -> float:
        """Median intensity inside of the mask; 1 where that is 0."""
        return float(np.median(self.inside)) or 1.0

    @property
    def grid_voxels(self) -> int:
        """Voxels of the native grid."""
        return math.prod(self.coarse.shape)

    @property
    def foreground_mm3(self) -> float:
        """Volume of the foreground mask."""
        return self.foreground.voxels * math.prod(self.coarse.spacing_mm)

    def over_top(self, percentile: int) -> float:
        """Return one of `percentiles`, by position, over the 99th."""
        return self.percentiles[percentile] / (self.percentiles[3] or 1.0)


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
        image = load_nifti(path)
        header, affine = header_of(image, path, size_bytes)
        voxels = image.dataobj
        volume = cls(
            path, header, affine, image.get_data_dtype(), int(voxels.offset),
            float(voxels.slope), float(voxels.inter), itk_refusal(image),
        )  # fmt: skip
        check_complete(
            path, size_bytes, volume.offset_bytes + header.voxels * volume.dtype.itemsize
        )
        return volume

    def check_size(self, max_voxels: int) -> None:
        """Raise ImageError if the volume has more than ``max_voxels`` voxels.

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

    @property
    def block_voxels(self) -> int:
        """Voxels in each of `blocks` but the last, or the last of a long row."""
        row, most = self.header.shape[0], max(1, BLOCK_BYTES // self.dtype.itemsize)
        return most // row * row or most

    def blocks(self, max_voxels: int = MAX_VOXELS) -> Iterator[np.ndarray]:
        """Yield the voxels as stored, in the order of the file, in one-dimensional arrays.

        A block holds as many whole rows of the first axis as fit into 4 MiB, or a part of one row
        that is longer than that. The checksum of a compressed file is checked after its last
        voxel, so figures computed from the blocks are valid only after the last one.

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
        blocks: list[np.ndarray] = []
        total = 0.0

        def on_block(block: np.ndarray) -> None:
            nonlocal total
            digest.update(block.data)
            total += self._sum(block)
            if keep:
                blocks.append(block)

        coarse = self.coarse(points, max_voxels, on_block)
        if not math.isfinite(total):
            raise self._out_of_precision()
        again = blocks if keep else self.blocks(max_voxels)
        bright = self._bright(again, total / header.voxels)
        blocks.clear()
        mask = foreground(bright, coarse.stride)
        return VolumeContents(coarse, mask, header, bright, digest.hexdigest())

    def _stored(self, stream: BinaryIO | gzip.GzipFile) -> Iterator[np.ndarray]:
        skip = self.offset_bytes
        while skip > 0 and (data := stream.read(min(skip, BLOCK_BYTES))):
            skip -= len(data)
        row, most, size = self.header.shape[0], self.block_voxels, self.dtype.itemsize
        left, row_left = self.header.voxels, row
        while left:
            count = min(most, left if most >= row else row_left)
            data = stream.read(count * size)
            if len(data) < count * size:
                raise EOFError(f"{left * size - len(data)} bytes are missing")
            block: np.ndarray[Any, Any] = np.frombuffer(data, self.dtype)
            yield block
            left -= count
            row_left = (row_left - count) or row

    def coarse(
        self,
        points: int = POINTS,
        max_voxels: int = MAX_VOXELS,
        on_block: Callable[[np.ndarray], object] = lambda _block: None,
    ) -> CoarseVolume:
        """Read every k-th voxel, so that no axis has more than ``points``.

        Voxels that are not finite become 0. Memory does not depend on the size of the volume.

        Parameters
        ----------
        on_block : callable
            Called with each block of voxels as stored.

        Raises
        ------
        ImageError
            As `blocks`; and if all voxels are NaN, or all are equal, or their range is beyond
            single precision.
        """
        header = self.header
        stride = strides(header.shape, points)
        i, j, k = (len(range(0, n, step)) for n, step in zip(header.shape, stride, strict=True))
        # Rows of the first axis in the order of the file.
        grid_rows: np.ndarray = np.empty((k * j, i), self.dtype)
        first = 0
        for block in self.blocks(max_voxels):
            on_block(block)
            _keep(block, first, header.shape, stride, grid_rows)
            first += block.size
        data = self._single(grid_rows.reshape(k, j, i).transpose(2, 1, 0))
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
        for block in self.blocks(max_voxels):
            values = self._single(block)
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, finite.min()), max(high, finite.max())
                if low < high:
                    return
        if low > high:
            raise ImageError("has no finite voxel (NaN only)", self.path, "make it again")
        raise ImageError(f"is constant, all voxels are {low:g}", self.path, "make it again")

    def _sum(self, block: np.ndarray) -> float:
        """Return the sum of voxels as stored, after `_finite`."""
        if block.dtype.kind in "iu":
            return float(block.sum(dtype=np.int64 if block.dtype.itemsize < 8 else np.float64))
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(block.sum(dtype=np.float64))
        return total if math.isfinite(total) else float(self._finite(block).sum(dtype=np.float64))

    def _bright(self, stored: Iterable[np.ndarray], mean: float) -> RowBits:
        """Return the voxels at or above the mean; ``mean`` is the mean of the voxels as stored.

        Scaling keeps their order, or turns it, so it need not be applied.
        """
        bits = RowBits(self.header.shape)
        width = self.header.shape[0]
        waiting: list[np.ndarray] = []  # parts of one row that is longer than a block
        row = 0
        for block in stored:
            waiting.append(block)
            if sum(part.size for part in waiting) % width:
                continue
            lines = (np.concatenate(waiting) if len(waiting) > 1 else block).reshape(-1, width)
            waiting = []
            if lines.dtype.kind == "f" and not np.isfinite(lines.sum()):
                lines = self._finite(lines)
            bits.set_rows(row, lines >= mean if self.slope > 0 else lines <= mean)
            row += len(lines)
        return bits

    def _finite(self, stored: np.ndarray) -> np.ndarray:
        """Return voxels as stored; where they are not finite, the value that is scaled to 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(stored * self.slope + self.intercept)
        return np.where(finite, stored, -self.intercept / self.slope)


def strides(shape: tuple[int, int, int], points: int) -> tuple[int, int, int]:
    """Return the steps that leave at most ``points`` voxels on each axis.

    Examples
    --------
    >>> strides((256, 64, 65), 64)
    (4, 1, 2)
    """
    i, j, k = (math.ceil(n / points) for n in shape)
    return (i, j, k)


def _keep(
    block: np.ndarray,
    first: int,
    shape: tuple[int, int, int],
    stride: tuple[int, int, int],
    grid_rows: np.ndarray,
) -> None:
    """Copy the voxels of a block that lie on the coarse grid to ``grid_rows``."""
    row, start = divmod(first, shape[0])  # a block starts within a row only if it is a part of it
    lines = block.reshape(-1, min(block.size, shape[0]))
    k, j = np.divmod(np.arange(row, row + len(lines)), shape[1])
    on_grid = np.flatnonzero((j % stride[1] == 0) & (k % stride[2] == 0))
    if not on_grid.size:
        return
    voxels = lines[:, -start % stride[0] :: stride[0]]
    column = -(-start // stride[0])
    width = len(range(0, shape[1], stride[1]))
    rows = k[on_grid] // stride[2] * width + j[on_grid] // stride[1]
    grid_rows[rows, column : column + voxels.shape[1]] = voxels[on_grid]


def _read_padding(stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
    """Read to the end, where gzip compares its checksum."""
    padding_bytes = 0
    while data := stream.read(1 << 20):
        padding_bytes += len(data)
        if padding_bytes > MAX_PADDING_BYTES:
            raise ImageError("holds more than 1 GiB after its last voxel", path, COPY_AGAIN)
