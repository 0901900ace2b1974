"""What the characteristics of a volume are computed from, each part computed once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from voxcast.images.foreground import Foreground
    from voxcast.images.headers import ImageHeader
    from voxcast.images.volumes import CoarseVolume


@dataclass(frozen=True)
class VolumeContents:
    """A volume that was read: its coarse grid, its foreground on the native grid, its header.

    Attributes
    ----------
    coarse : CoarseVolume
        Every k-th voxel, with the shape and the spacing of the native grid.
    foreground : Foreground
        Size and form of the foreground mask.
    header : ImageHeader or None
        The header; a project's own characteristics always have it.
    """

    coarse: CoarseVolume
    foreground: Foreground
    header: ImageHeader | None = None

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
