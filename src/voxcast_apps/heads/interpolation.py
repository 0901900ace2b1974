"""Linear interpolation of maps at any points, and the grids on which maps are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TemplateGrid:
    """A template-space grid: the coordinates of its first voxel's centre, and its spacing."""

    low_mm: np.ndarray
    spacing_mm: float
    shape: tuple[int, ...]


def sample(
    channels: torch.Tensor, grid: TemplateGrid, points_mm: torch.Tensor, edge: str = "zeros"
) -> torch.Tensor:
    """Interpolate channels ``(c, i, j, k)`` at points ``(..., 3)`` in reversed axis order.

    Parameters
    ----------
    edge : str
        Values outside the grid: ``zeros``, its ``border``, or its ``reflection``.
    """
    import torch

    extent_mm = grid.spacing_mm * (np.array(grid.shape) - 1.0)
    factor = torch.tensor((2 / extent_mm)[::-1].copy(), dtype=torch.float32)
    shift = torch.tensor((-2 * grid.low_mm / extent_mm - 1)[::-1].copy(), dtype=torch.float32)
    unit = torch.addcmul(shift, points_mm, factor)
    sampled: torch.Tensor = torch.nn.functional.grid_sample(
        channels[None], unit[None], mode="bilinear", padding_mode=edge, align_corners=True
    )[0]
    return sampled


def share_below(
    edge_mm: np.ndarray | float, distance_mm: np.ndarray, voxel_mm: float
) -> np.ndarray:
    """Return the share of a voxel that lies nearer than an edge, 0 to 1."""
    share: np.ndarray = np.clip((edge_mm - distance_mm) / voxel_mm + 0.5, 0.0, 1.0)
    return share


def share_of_sheet(
    half_mm: np.ndarray | float, distance_mm: np.ndarray, voxel_mm: float
) -> np.ndarray:
    """Return the share of a voxel in a sheet about a surface; thin ones fill little of it.

    Parameters
    ----------
    half_mm : numpy.ndarray or float
        Half the thickness of the sheet, not negative.
    distance_mm : numpy.ndarray
        Signed distance from the surface.
    """
    far = share_below(half_mm, distance_mm, voxel_mm)
    return np.asarray(far - share_below(-half_mm, distance_mm, voxel_mm))
