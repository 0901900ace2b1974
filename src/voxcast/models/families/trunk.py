"""The network: from a small volume and its grid to the characteristics of the native volume.

A small 3D U-Net (Çiçek et al. 2016) finds which share of each block of cells is in the foreground
mask; a path beside it estimates the other characteristics, and corrects the mask's total for what
pooling lost. The masks of generated volumes are known exactly, so no measured run is needed.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from voxcast.errors import ModelError, one_line
from voxcast.features.rows import CONTENT
from voxcast.images.network_volume import CHANNELS, STEPS, points_of
from voxcast.models.families.trunk_files import OTHERS, WEIGHTS_FILE, read_trunk
from voxcast.models.model_files import (
    RETRAIN,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


WIDTH = 16
BLOCK = 2  # cells along each axis of a block, which is a position of the finest level
CORRECTION = 0.1  # of the logarithm of the mask's share, for an output of one
PACKAGED = Path(__file__).parent
BATCH = 16


class VolumeTrunk(nn.Module):
    """The U-Net with its path of scalars.

    Parameters
    ----------
    width : int
        Channels of the finest level.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.first = _block(len(CHANNELS) * BLOCK**3 + 6, width)
        self.fine = _block(width, width)
        self.middle = nn.Sequential(_block(width, 2 * width), _block(2 * width, 2 * width))
        self.coarse = nn.Sequential(_block(2 * width, 3 * width), _block(3 * width, 3 * width))
        self.up_middle = _block(5 * width, 2 * width)
        self.up_fine = _block(3 * width, width)
        self.mask = nn.Conv3d(width, 1, 1)
        self.scalars = nn.Sequential(
            nn.Linear(4 * width + 6, 2 * width), nn.ReLU(), nn.Linear(2 * width, 1 + len(OTHERS))
        )
        # A family is fitted many times to the same volumes.
        self._estimated: dict[bytes, np.ndarray] = {}
        self.centre: torch.Tensor
        self.scale: torch.Tensor
        self.register_buffer("centre", torch.zeros(len(OTHERS)))
        self.register_buffer("scale", torch.ones(len(OTHERS)))

    @classmethod
    def of_weights(cls, weights: Mapping[str, np.ndarray]) -> VolumeTrunk:
        """Return a trunk with the weights that `weights` returned.

        Raises
        ------
        ModelError
            If they are of another network.
        """
        try:
            trunk = cls(weights["mask.weight"].shape[1])
            trunk.load_state_dict({name: _tensor(array) for name, array in weights.items()})
        except (KeyError, IndexError, RuntimeError) as error:
            problem = f"weights of another network: {one_line(error)[:120]}"
            raise ModelError(problem, WEIGHTS_FILE, RETRAIN) from None
        return trunk.eval()

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights by name; numbers that are not whole are float16."""
        return {
            name: value.numpy().astype(np.float16 if value.is_floating_point() else np.int64)
            for name, value in self.state_dict().items()
        }

    def train(self, mode: bool = True) -> VolumeTrunk:
        """Switch to training, which forgets earlier estimates, or to evaluation."""
        if mode:
            self._estimated.clear()
        return super().train(mode)

    def forward(
        self, maps: torch.Tensor, grid: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the mask, the logarithm of its share of the grid, and `OTHERS`, standardised.

        Parameters
        ----------
        maps : Tensor, shape (n, channels, p, p, p)
            Cells, 0 to 1.
        grid : Tensor, shape (n, 6)
            Logarithms of the voxels in a cell and of the spacing in millimetres, along each axis.

        Returns
        -------
        mask : Tensor, shape (n, p / 2, p / 2, p / 2)
            Logits of the share of each block of cells.
        log_share : Tensor, shape (n,)
        others : Tensor, shape (n, len(OTHERS))
        """
        blocks = _blocks(maps)
        everywhere = grid[:, :, None, None, None].expand(-1, -1, *blocks.shape[2:])
        fine = self.fine(self.first(torch.cat([blocks, everywhere], 1)))
        middle = self.middle(_down(fine))
        coarse = self.coarse(_down(middle))
        middle = self.up_middle(torch.cat([middle, _up(coarse, middle)], 1))
        fine = self.up_fine(torch.cat([fine, _up(middle, fine)], 1))
        mask = self.mask(fine)[:, 0]
        pooled = torch.cat([fine.mean((2, 3, 4)), coarse.mean((2, 3, 4)), grid], 1)
        scalars = self.scalars(pooled)
        share = torch.sigmoid(mask).mean((1, 2, 3))
        log_share = torch.log(share + 1e-6) + CORRECTION * scalars[:, 0]
        return mask, log_share, scalars[:, 1:]

    def estimates(self, volumes: np.ndarray) -> dict[str, np.ndarray]:
        """Return the estimated features of the contents of small volumes, each of shape (n,).

        Estimates of an unknown volume are not a number.

        Parameters
        ----------
        volumes : ndarray, shape (n,)
            Of `voxcast.images.network_volume.volume_dtype`.
        """
        numbers = np.full((len(volumes), 1 + len(OTHERS)), np.nan)
        keys = [hashlib.sha256(volume.tobytes()).digest() for volume in volumes]
        has_grid = is_known(volumes)
        new = {key: n for n, key in enumerate(keys) if has_grid[n] and key not in self._estimated}
        self.eval()
        with torch.inference_mode():
            for first in range(0, len(new), BATCH):
                batch = list(new.items())[first : first + BATCH]
                rows = self._numbers(volumes[[n for _, n in batch]])
                self._estimated |= dict(zip([key for key, _ in batch], rows, strict=True))
        for n in np.flatnonzero(has_grid):
            numbers[n] = self._estimated[keys[n]]
        fraction = np.exp(np.minimum(numbers[:, 0], 0.0))
        voxels = fraction * volumes["shape"].prod(axis=1, dtype=float)
        ml = voxels * volumes["spacing_mm"].prod(axis=1, dtype=float) / 1000
        features = {
            "log_foreground_voxels": np.log1p(voxels),
            "foreground_megavoxels": voxels / 1e6,
            "log_foreground_ml": np.log1p(ml),
            "foreground_fraction": fraction,
            **dict(zip(OTHERS, numbers[:, 1:].T, strict=True)),
        }
        return {f"{CONTENT}{name}": values for name, values in features.items()}

    def _numbers(self, volumes: np.ndarray) -> np.ndarray:
        """Return the logarithm of the mask's share, and `OTHERS`, in one row for each volume."""
        _, log_share, others = self(*tensors(volumes))
        numbers = torch.cat([log_share[:, None], others * self.scale + self.centre], 1)
        return np.asarray(numbers.numpy(), dtype=float)


def is_known(volumes: np.ndarray) -> np.ndarray:
    """Return which small volumes are known; an unknown one is all zeros."""
    return np.asarray((volumes["shape"] > 0).all(axis=1))


def tensors(volumes: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return maps and grids of known small volumes, as `VolumeTrunk.forward` takes them."""
    maps = torch.from_numpy(volumes["maps"].astype(np.float32) / STEPS)
    per_cell = np.log(volumes["shape"] / points_of(volumes))
    grid = np.concatenate([per_cell, np.log(volumes["spacing_mm"])], axis=1)
    return maps, torch.from_numpy(grid.astype(np.float32))


@functools.cache
def pretrained() -> VolumeTrunk:
    """Return the trunk of the package; it is not to be changed."""
    return VolumeTrunk.of_weights(read_trunk(PACKAGED)[0])


def _tensor(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.float() if tensor.is_floating_point() else tensor


def _block(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(before, after, 3, padding=1, bias=False), nn.BatchNorm3d(after), nn.ReLU()
    )


def _blocks(maps: torch.Tensor) -> torch.Tensor:
    """Return the cells of each block as channels, shape (n, channels * 8, p / 2, p / 2, p / 2)."""
    n, channels, points = maps.shape[:3]
    half = points // BLOCK
    split = maps.reshape(n, channels, half, BLOCK, half, BLOCK, half, BLOCK)
    return split.permute(0, 1, 3, 5, 7, 2, 4, 6).reshape(n, -1, half, half, half)


def _down(features: torch.Tensor) -> torch.Tensor:
    return nn.functional.max_pool3d(features, 2)


def _up(features: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(features, size=like.shape[2:], mode="nearest")
