"""Fields of noise whose zero sets are folded sheets: sulci, and vessels where two of them cross.

A tile is made once per process. Every head takes another part of it, turned and stretched.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from voxcast_apps.heads.interpolation import TemplateGrid, sample

if TYPE_CHECKING:
    import torch

TILE_POINTS = 96
TILE_GRID = TemplateGrid(np.zeros(3), 2.0, (TILE_POINTS,) * 3)
# Distance between neighbouring sheets of each field in the tile: sulci, vessels, vessels.
SHEETS_MM = (10.0, 24.0, 24.0)
_RELATIVE_WIDTH = 0.2
_FARTHEST = 0.6  # of the distance between sheets


class FoldedSheets:
    """The sheets of one head.

    Parameters
    ----------
    seed : int
        Decides the part of the tile.
    sheets_mm : float
        Distance between neighbouring sulci.
    """

    def __init__(self, seed: int, sheets_mm: float) -> None:
        import torch
        from scipy.spatial.transform import Rotation

        rng = np.random.default_rng([seed, 2])
        self._stretch = sheets_mm / SHEETS_MM[0]
        turn = Rotation.random(rng=rng).as_matrix() / self._stretch
        self._turn = torch.from_numpy(turn.astype(np.float32))
        extent_mm = TILE_GRID.spacing_mm * (TILE_POINTS - 1)
        self._shift_mm = torch.from_numpy(rng.uniform(0, extent_mm, 3).astype(np.float32))

    def distances_mm(self, points_mm: torch.Tensor, fields: slice = slice(None)) -> np.ndarray:
        """Return signed distances from the sheets of fields, shape ``(fields, ...)``.

        Parameters
        ----------
        points_mm : torch.Tensor
            In the template, shape ``(..., 3)``.
        """
        flat = points_mm.reshape(1, 1, -1, 3) @ self._turn + self._shift_mm
        sampled = sample(_tile()[fields], TILE_GRID, flat, edge="reflection").numpy()
        distances: np.ndarray = (
            sampled.reshape(len(sampled), *points_mm.shape[:-1]) * self._stretch
        )
        return distances


@functools.cache
def _tile() -> torch.Tensor:
    import torch

    rng = np.random.default_rng(11)
    return torch.from_numpy(np.stack([_signed_distance_mm(rng, mm) for mm in SHEETS_MM]))


def _signed_distance_mm(rng: np.random.Generator, sheets_mm: float) -> np.ndarray:
    """Return the distance from the zero set of noise of one wavelength: value over gradient."""
    noise = rng.standard_normal((TILE_POINTS,) * 3)
    cycles = np.fft.fftfreq(TILE_POINTS, TILE_GRID.spacing_mm)
    along = np.fft.rfftfreq(TILE_POINTS, TILE_GRID.spacing_mm)
    frequency = np.sqrt(
        cycles[:, None, None] ** 2 + cycles[None, :, None] ** 2 + along[None, None, :] ** 2
    )
    wanted = 1 / (2 * sheets_mm)  # a wave has two zeros
    band = np.exp(-0.5 * ((frequency - wanted) / (_RELATIVE_WIDTH * wanted)) ** 2)
    field = np.fft.irfftn(np.fft.rfftn(noise) * band, s=noise.shape, axes=(0, 1, 2))
    slopes = np.gradient(field, TILE_GRID.spacing_mm)
    slope = np.sqrt(sum(s * s for s in slopes))
    distance = field / np.maximum(slope, 0.3 * slope.mean())
    farthest = _FARTHEST * sheets_mm
    return np.asarray(np.clip(distance, -farthest, farthest), np.float32)
