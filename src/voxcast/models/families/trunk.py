"""The network: from a small volume and its grid to the characteristics of the native volume.

A small 3D U-Net (Çiçek et al. 2016) finds which share of each block of cells is in the foreground
mask; a path beside it estimates the other characteristics, and corrects the mask's total for what
pooling lost. It is trained on generated volumes, whose masks are known exactly, so no measured run
is needed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from voxcast.errors import ModelError, one_line
from voxcast.features.rows import CONTENT
from voxcast.images.characteristics import CHARACTERISTICS, characteristics
from voxcast.images.network_volume import CHANNELS, STEPS, network_volume, points_of, pooled
from voxcast.images.volume import Volume
from voxcast.models.families.network import WEIGHTS_FILE, read_trunk
from voxcast.models.model_files import RETRAIN

# Characteristics that do not follow from the mask's share and the grid. They are estimated beside
# it in training only: what they need is seen better in the mask too.
SIZES = ("foreground_voxels", "foreground_ml", "foreground_fraction")
OTHERS = tuple(name for name in CHARACTERISTICS if name not in SIZES)
WIDTH = 16
BLOCK = 2  # cells along each axis of a block, which is a position of the finest level
CORRECTION = 0.1  # of the logarithm of the mask's share, for an output of one
PACKAGED = Path(__file__).parent
BATCH = 16
LEARNING_RATE = 4e-3
# An error of a twentieth of the mask counts linearly: a mask that merges with the scalp is rare.
LINEAR_FROM = 0.05
SIZE_WEIGHT, OTHERS_WEIGHT = 3.0, 0.1
OTHERS_LIMIT = 4.0  # standard deviations


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
        self._log_shares: dict[bytes, float] = {}
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
            self._log_shares.clear()
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
        pool, resize = nn.functional.max_pool3d, nn.functional.interpolate
        fine = self.fine(self.first(torch.cat([blocks, everywhere], 1)))
        middle = self.middle(pool(fine, 2))
        coarse = self.coarse(pool(middle, 2))
        middle = self.up_middle(torch.cat([middle, resize(coarse, middle.shape[2:])], 1))
        fine = self.up_fine(torch.cat([fine, resize(middle, fine.shape[2:])], 1))
        mask = self.mask(fine)[:, 0]
        pooled = torch.cat([fine.mean((2, 3, 4)), coarse.mean((2, 3, 4)), grid], 1)
        scalars = self.scalars(pooled)
        share = torch.sigmoid(mask).mean((1, 2, 3))
        log_share = torch.log(share + 1e-6) + CORRECTION * scalars[:, 0]
        return mask, log_share, scalars[:, 1:]

    def estimates(self, volumes: np.ndarray) -> dict[str, np.ndarray]:
        """Return the estimated sizes of the contents of small volumes, each of shape (n,).

        Estimates of an unknown volume are not a number.

        Parameters
        ----------
        volumes : ndarray, shape (n,)
            Of `voxcast.images.network_volume.volume_dtype`.
        """
        keys = [hashlib.sha256(volume.tobytes()).digest() for volume in volumes]
        is_known = np.all(volumes["shape"] > 0, axis=1)  # an unknown one is all zeros
        new = {key: n for n, key in enumerate(keys) if is_known[n] and key not in self._log_shares}
        self.eval()
        with torch.inference_mode():
            for first in range(0, len(new), BATCH):
                batch = list(new.items())[first : first + BATCH]
                _, log_shares, _ = self(*tensors(volumes[[n for _, n in batch]]))
                self._log_shares |= zip(
                    [key for key, _ in batch], log_shares.tolist(), strict=True
                )
        logs = np.array([self._log_shares.get(key, np.nan) for key in keys])
        fraction = np.exp(np.minimum(logs, 0.0))
        voxels = fraction * volumes["shape"].prod(axis=1, dtype=float)
        return {
            f"{CONTENT}log_foreground_voxels": np.log1p(voxels),
            f"{CONTENT}foreground_megavoxels": voxels / 1e6,
            f"{CONTENT}foreground_fraction": fraction,
        }


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


@dataclass(frozen=True)
class Examples:
    """Examples for the trunk.

    Attributes
    ----------
    volumes : ndarray, shape (n,)
        Small volumes.
    masks : ndarray of uint8, shape (n, p / 2, p / 2, p / 2)
        Share of the mask in each block of cells, 0 to 255.
    shares : ndarray, shape (n,)
        Share of the mask in the native grid.
    others : ndarray, shape (n, len(OTHERS))
        Characteristics that are not sizes.
    """

    volumes: np.ndarray
    masks: np.ndarray
    shares: np.ndarray
    others: np.ndarray

    def part(self, rows: np.ndarray) -> Examples:
        """Return some of the examples, by position."""
        return Examples(self.volumes[rows], self.masks[rows], self.shares[rows], self.others[rows])


def joined(parts: Iterable[Examples]) -> Examples:
    """Return several sets of examples as one."""
    columns = zip(*(astuple(part) for part in parts), strict=True)
    return Examples(*(np.concatenate(column) for column in columns))


def example_of(path: Path, points: int) -> Examples:
    """Return the example of a file with a volume, which is read as any other."""
    contents = Volume.open(path).read()
    numbers = characteristics(contents)
    mask = pooled(contents.foreground.coarse, contents.coarse, points // BLOCK)
    return Examples(
        network_volume(contents, points)[None],
        np.rint(255 * mask[None]).astype(np.uint8),
        np.array([numbers["foreground_fraction"]]),
        np.array([[numbers[name] for name in OTHERS]]),
    )


def pretrain(
    examples: Examples,
    *,
    epochs: int,
    seed: int,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> VolumeTrunk:
    """Train a trunk on generated volumes.

    The losses are of the mask in each block of cells, of the logarithm of its voxels, and of the
    other characteristics.

    Parameters
    ----------
    examples : Examples
        Small volumes, masks and characteristics.
    epochs : int
        Passes over the examples.
    on_epoch : callable
        Called after each pass with its number from 1, and the mean loss.

    Returns
    -------
    VolumeTrunk
        In evaluation mode.
    """
    maps, grid = tensors(examples.volumes)
    masks = torch.from_numpy(examples.masks.astype(np.float32) / 255)
    log_shares = torch.from_numpy(np.log(examples.shares).astype(np.float32))
    centre, scale = examples.others.mean(axis=0), examples.others.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    standardised = np.clip((examples.others - centre) / scale, -OTHERS_LIMIT, OTHERS_LIMIT)
    others = torch.from_numpy(standardised.astype(np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trunk = VolumeTrunk().train()
    trunk.centre.copy_(torch.from_numpy(centre))
    trunk.scale.copy_(torch.from_numpy(scale))
    steps = epochs * -(-len(maps) // BATCH)
    optimiser = torch.optim.AdamW(trunk.parameters(), LEARNING_RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, LEARNING_RATE, total_steps=steps, pct_start=0.2
    )
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(1, epochs + 1):
        losses = []
        for batch in _batches(len(maps), generator):
            cubes, truth = _mirrored([maps[batch], masks[batch]], generator)
            mask, log_share, estimated = trunk(cubes, grid[batch])
            loss = nn.functional.binary_cross_entropy_with_logits(mask, truth)
            loss = loss + SIZE_WEIGHT * nn.functional.smooth_l1_loss(
                log_share, log_shares[batch], beta=LINEAR_FROM
            )
            loss = loss + OTHERS_WEIGHT * nn.functional.smooth_l1_loss(estimated, others[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        on_epoch(epoch, float(np.mean(losses)))
    return trunk.eval()


def _batches(count: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    order = torch.randperm(count, generator=generator)
    return (batch for batch in order.split(BATCH) if len(batch) > 1)  # statistics need several


def _mirrored(cubes: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Mirror the volumes of a batch left to right, all cubes of one or none."""
    mirror = torch.rand(len(cubes[0]), generator=generator) < 0.5
    return [
        torch.where(mirror.reshape(-1, *[1] * (cube.ndim - 1)), cube.flip(-3), cube)
        for cube in cubes
    ]


def accuracy(trunk: VolumeTrunk, examples: Examples) -> dict[str, float]:
    """Return the errors of the mask's voxels, in percent, on examples that did not train.

    ``spread_without_network`` is the standard deviation of the mask's logarithm over the share at
    or above the mean, which is what remains to be learned; ``spread`` is the spread of the error.
    """
    estimated = trunk.estimates(examples.volumes)["content.foreground_fraction"]
    errors = np.log(estimated / examples.shares)
    above_mean = examples.volumes["maps"][:, 1].mean(axis=(1, 2, 3)) / STEPS
    to_learn = np.log(examples.shares / above_mean)
    absolute = 100 * np.abs(np.expm1(errors))
    return {
        "volumes": len(errors),
        "median": round(float(np.median(absolute)), 2),
        "p90": round(float(np.percentile(absolute, 90)), 2),
        "spread": round(100 * float(errors.std()), 2),
        "spread_without_network": round(100 * float(to_learn.std()), 2),
    }
