"""The grid of a generated volume: field of view, spacing and shape, independent of its content.

The number of voxels is drawn independently, so that over an image set the size of a volume and
the head in it are unrelated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

Shape = tuple[int, int, int]
# Its multiples modulo 1 fill the unit interval evenly, for any number of them.
GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class FixedGrid:
    """A grid that some subjects share: number `first` and every `every`-th after it.

    Heads may be cut or have air around them. With `spacing_mm` None the spacing is that with which
    the field of view keeps its volume.
    """

    first: int
    every: int
    shape: tuple[int, ...]
    spacing_mm: float | None


@dataclass(frozen=True)
class Sizes:
    """The parameters of an image set that decide its grids.

    `voxels` are the fewest, the most frequent and the most voxels of a grid, or the fewest and the
    most of evenly spread ones. `axis_voxels` are the fewest and the most of one axis. A subject
    gets the first of its `fixed_grids`.
    """

    voxels: tuple[int, ...]
    axis_voxels: tuple[int, ...]
    fixed_grids: tuple[FixedGrid, ...] = ()

    def checked(self) -> Sizes:
        """Return itself.

        Raises
        ------
        ConfigError
            For an invalid parameter, with its name.
        """
        voxels, axis = self.voxels, self.axis_voxels
        if len(voxels) not in (2, 3) or voxels[0] <= 0 or list(voxels) != sorted(voxels):
            raise ConfigError(
                f"needs two or three increasing numbers above 0, not {list(voxels)}",
                "images.voxels",
            )
        if len(axis) != 2 or not 4 <= axis[0] <= axis[1]:
            raise ConfigError(
                f"needs two increasing numbers from 4, not {list(axis)}", "images.axis_voxels"
            )
        if axis[1] ** 3 < voxels[0] or axis[0] ** 3 > voxels[-1]:
            raise ConfigError(f"allows no grid of {voxels[0]} voxels", "images.axis_voxels")
        for n, grid in enumerate(self.fixed_grids):
            spacing_mm = 1.0 if grid.spacing_mm is None else grid.spacing_mm
            if len(grid.shape) != 3 or min(*grid.shape, grid.first, grid.every, spacing_mm) <= 0:
                raise ConfigError(
                    "needs first, every, a shape of three, and a spacing or null, all above 0",
                    f"images.fixed_grids[{n}]",
                )
        return self

    def fixed(self, index: int) -> FixedGrid | None:
        """Return the fixed grid of a subject, None for most."""
        for grid in self.fixed_grids:
            if index >= grid.first and (index - grid.first) % grid.every == 0:
                return grid
        return None


def even_share(seed: int, index: int) -> float:
    """Return a number from 0 to 1 for a subject; consecutive subjects are spread evenly.

    With independent draws a hundred subjects could cost twice or half the planned time.
    """
    start = float(np.random.default_rng(np.random.SeedSequence([seed, 0])).random())
    return (start + index * GOLDEN_RATIO) % 1.0


def free_grid(
    extent_mm: Sequence[float], aspect: Sequence[float], sizes: Sizes, share: float
) -> tuple[Shape, tuple[float, ...]]:
    """Return shape and spacing in millimetres of a grid for a field of view.

    Parameters
    ----------
    extent_mm : sequence of float
        Field of view along the three axes.
    aspect : sequence of float
        Relative spacing along each axis, e.g. 1, 1 and 3 for thick slices.
    share : float
        Share of the volumes of the set that are smaller, 0 to 1. Logarithms of the numbers of
        voxels have a triangular or an even distribution, cut to what this field of view can have.

    Raises
    ------
    ConfigError
        If no grid of `sizes` fits the field of view.
    """
    extent = np.asarray(extent_mm, float)
    fewest, most = sizes.axis_voxels
    for ratio in (np.asarray(aspect, float), np.ones(3)):  # thick slices only where they fit
        steps = extent / ratio
        total = float(np.prod(steps))
        low = max(sizes.voxels[0], total * (fewest / steps.min()) ** 3)
        high = min(sizes.voxels[-1], total * (most / steps.max()) ** 3)
        if low <= high:
            break
    else:
        where = "images.axis_voxels"
        raise ConfigError(f"no grid of {fewest} to {most} fits {extent.round()} mm", where)
    voxels = _quantile(share, low, high, sizes.voxels)
    spacing_mm = (total / voxels) ** (1 / 3) * ratio
    shape = np.clip(np.rint(extent / spacing_mm), fewest, most).astype(int)
    return _triple(shape), tuple(round(float(mm), 4) for mm in spacing_mm)


def place(
    sizes: Sizes,
    share: float,
    fixed: FixedGrid | None,
    aspect: Sequence[float],
    brain_mm: tuple[np.ndarray, np.ndarray],
    wanted_mm: tuple[np.ndarray, np.ndarray],
) -> dict[str, tuple[float, ...]]:
    """Return the grid of a subject: ``shape``, ``spacing_mm`` and ``corner_mm``.

    The corner is the centre of the first voxel, in millimetres along the grid's axes.

    Parameters
    ----------
    fixed : FixedGrid, optional
        The grid it must have; `share` and `aspect` are then ignored.
    brain_mm, wanted_mm : tuple of numpy.ndarray
        Lowest and highest corner of the brain and of the requested field of view, in millimetres
        along the grid's axes.
    """
    extent_mm = wanted_mm[1] - wanted_mm[0]
    if fixed is None:
        shape, spacing_mm = free_grid(extent_mm, aspect, sizes, share)
    else:
        shape = _triple(np.asarray(fixed.shape))
        spacing = fixed.spacing_mm
        if spacing is None:
            same_volume_mm = float(np.prod(extent_mm / shape)) ** (1 / 3)
            smallest_mm = (brain_mm[1] - brain_mm[0]) / (np.asarray(shape, float) - 1)
            spacing = float(round(max(same_volume_mm, *smallest_mm), 4))
        spacing_mm = (spacing,) * 3
    reach_mm = (np.asarray(shape) - 1) * spacing_mm
    corner_mm = (wanted_mm[0] + wanted_mm[1] - reach_mm) / 2
    # Neck or air is cut first, and the brain only where it is too long.
    low_mm, high_mm = brain_mm[1] - reach_mm, brain_mm[0]
    corner_mm = np.where(low_mm <= high_mm, np.clip(corner_mm, low_mm, high_mm), corner_mm)
    corner = tuple(round(float(mm), 4) + 0.0 for mm in corner_mm)
    return {"shape": shape, "spacing_mm": spacing_mm, "corner_mm": corner}


def _quantile(share: float, low: float, high: float, voxels: Sequence[float]) -> float:
    """Return the quantile of the triangular or even distribution within `low` and `high`."""
    if len(voxels) == 2:
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    a, mode, b = (math.log(n) for n in voxels)
    if a == b:
        return voxels[0]

    def below(x: float) -> float:
        if x <= mode:
            return (x - a) ** 2 / ((b - a) * (mode - a)) if mode > a else 0.0
        return 1 - (b - x) ** 2 / ((b - a) * (b - mode))

    first, last = below(math.log(low)), below(math.log(high))
    p = first + share * (last - first)
    middle = (mode - a) / (b - a)
    if p < middle:
        return math.exp(a + (p * (b - a) * (mode - a)) ** 0.5)
    return math.exp(b - ((1 - p) * (b - a) * (b - mode)) ** 0.5)


def _triple(values: np.ndarray) -> Shape:
    i, j, k = (int(n) for n in values)
    return (i, j, k)
