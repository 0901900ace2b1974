"""The 3-D U-Net that labels one tile, its use on all tiles, and the file of its weights.

It has the structure of SLANT's network (convolution, batch normalisation, ReLU; pooling by 2; skip
connections) but is smaller: two poolings instead of three, 4 classes instead of 133, and one
network for all tiles instead of one for each. The position of a tile is its input in three more
channels. Needs torch and numpy only.

The weights are a state dict of torch, read without running pickled code. Stage `tile_weights`
writes ``data/tile_weights/weights.pt``; copy it into this folder to install it, which changes the
version of the applications that use it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from voxcast.errors import ModelError, one_line
from voxcast.files import atomic_path
from voxcast_apps.tiles.grid import SHAPE, Tile

CLASSES = 4
CHANNELS = 4  # intensity, and the three coordinates
WIDTH = 16
WEIGHTS = Path(__file__).with_name("weights.pt")


class TileNet(nn.Module):
    """A U-Net with two poolings; each axis of its input must be a multiple of 4.

    Input ``(n, CHANNELS, i, j, k)``, output ``(n, CLASSES, i, j, k)``, the logits.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.down1 = _block(CHANNELS, width, width)
        self.down2 = _block(width, 2 * width, 2 * width)
        self.bottom = _block(2 * width, 4 * width, 4 * width)
        self.up2 = nn.ConvTranspose3d(4 * width, 2 * width, 2, stride=2)
        self.join2 = _block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.join1 = _block(2 * width, width)
        self.head = nn.Conv3d(width, CLASSES, 1)
        self.pool = nn.MaxPool3d(2)

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return the logits of each class in each voxel."""
        full_size = self.down1(tile)
        half_size = self.down2(self.pool(full_size))
        decoded = self.up2(self.bottom(self.pool(half_size)))
        decoded = self.up1(self.join2(torch.cat([half_size, decoded], dim=1)))
        logits: torch.Tensor = self.head(self.join1(torch.cat([full_size, decoded], dim=1)))
        return logits


@torch.inference_mode()
def label_tiles(
    normalised: np.ndarray, network: TileNet, device: torch.device, places: list[Tile]
) -> list[np.ndarray]:
    """Return the label of each voxel of each tile, one tile after the other as SLANT does."""
    network = network.to(device).eval()
    volume = with_coordinates(normalised).to(device)
    labels = []
    for place in places:
        logits = network(volume[(slice(None), *place)][None])[0]
        labels.append(logits.argmax(dim=0).to(torch.uint8).cpu().numpy())
    return labels


def with_coordinates(normalised: np.ndarray) -> torch.Tensor:
    """Return volume and coordinates from -1 to 1 as channels, float32 ``(4, i, j, k)``."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in SHAPE), indexing="ij")
    return torch.stack([torch.from_numpy(normalised.astype(np.float32)), *axes])


def _block(channels: int, *widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in widths:
        layers += [
            nn.Conv3d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
        ]
        channels = width
    return nn.Sequential(*layers)


def save_weights(network: TileNet, path: str | Path) -> None:
    """Write the weights as float16: half the size, and less than one label in 1000 changes."""
    state = {
        name: value.half() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    with atomic_path(path) as partial:
        torch.save(state, partial)


def load_weights(path: str | Path = WEIGHTS) -> TileNet:
    """Read weights into a network that is ready to label.

    Raises
    ------
    ModelError
        If the file is missing, is not a state dict, or belongs to another network.
    """
    try:
        # weights_only: tensors and plain containers, no code.
        state = torch.load(path, map_location="cpu", weights_only=True)
        network = TileNet()
        network.load_state_dict(state)
    except Exception as error:  # torch raises many types
        problem = f"is not this network's weights ({one_line(error)[:120]})"
        then = "train it again with `dvc repro tile_weights`"
        raise ModelError(problem, path, then) from None
    return network.eval()
