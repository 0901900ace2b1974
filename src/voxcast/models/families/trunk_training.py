"""Training of the trunk: on generated volumes, whose masks are known, and on runs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from voxcast.images.network_volume import STEPS
from voxcast.models.families.trunk import BATCH, VolumeTrunk, tensors
from voxcast.models.families.trunk_files import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from voxcast.models.families.trunk_examples import Examples


LEARNING_RATE = 4e-3
# An error of a twentieth of the mask counts linearly: a mask that merges with the scalp is rare.
LINEAR_FROM = 0.05
SIZE_WEIGHT, OTHERS_WEIGHT = 3.0, 0.1
OTHERS_LIMIT = 4.0  # standard deviations
STOPPING_SHARE, PATIENCE = 1 / 8, 5


def untrained(seed: int) -> VolumeTrunk:
    """Return a trunk of random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VolumeTrunk().eval()


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
    trunk = untrained(seed).train()
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
        for batch in _batches(np.arange(len(maps)), generator):
            cubes, truth = _mirrored([maps[batch], masks[batch]], generator)
            mask, log_share, estimated = trunk(cubes, grid[batch])
            loss = nn.functional.binary_cross_entropy_with_logits(mask, truth)
            loss = loss + SIZE_WEIGHT * nn.functional.smooth_l1_loss(
                log_share, log_shares[batch], beta=LINEAR_FROM
            )
            loss = loss + OTHERS_WEIGHT * nn.functional.smooth_l1_loss(estimated, others[batch])
            _step(optimiser, loss)
            schedule.step()
            losses.append(loss.item())
        on_epoch(epoch, float(np.mean(losses)))
    return trunk.eval()


def fit_to_runs(
    trunk: VolumeTrunk,
    x: np.ndarray,
    y: np.ndarray,
    volumes: np.ndarray,
    epochs: int,
    learning_rate: float,
    seed: int,
) -> VolumeTrunk:
    """Return a copy of a trunk, trained on runs through a linear head that is then thrown away.

    The eighth of the volumes that no step sees decides which pass is kept. Statistics of batches
    stay the trunk's unless it was never trained: batches are small and subjects few.

    Parameters
    ----------
    x, y : ndarray, shape (n, columns) and (n, outputs)
        Columns of the runs and logarithms to predict.
    volumes : ndarray, shape (n,)
        Known small volumes.
    """
    columns, targets = _standardised(x), _standardised(y)
    maps, grid = tensors(volumes)
    train, stopping = _stopping_split(volumes, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = nn.Linear(columns.shape[1] + 1 + len(OTHERS), targets.shape[1])
    trunk = copy.deepcopy(trunk).train()

    def loss_of(batch: torch.Tensor, cubes: torch.Tensor) -> torch.Tensor:
        _, log_share, others = trunk(cubes, grid[batch])
        outputs = head(torch.cat([columns[batch], log_share[:, None], others], 1))
        # Disturbed runs must not count quadratically.
        return nn.functional.smooth_l1_loss(outputs, targets[batch], beta=0.5)

    optimiser = torch.optim.AdamW(
        [
            {"params": trunk.parameters(), "lr": learning_rate},
            {"params": head.parameters(), "lr": max(learning_rate, LEARNING_RATE)},
        ],
        weight_decay=1e-2,
    )
    best_loss, best_weights, worse = float("inf"), copy.deepcopy(trunk.state_dict()), 0
    for _ in range(epochs):
        trunk.train()
        for batch in _batches(train, generator):
            (cubes,) = _mirrored([maps[batch]], generator)
            _step(optimiser, loss_of(batch, cubes))
        stopping_loss = -float("inf")  # of none: the last pass is kept
        if len(stopping):
            trunk.eval()
            rows = torch.from_numpy(stopping)
            with torch.inference_mode():
                stopping_loss = float(loss_of(rows, maps[rows]))
        worse += 1
        if stopping_loss < best_loss or not len(stopping):
            best_loss, worse = stopping_loss, 0
            best_weights = copy.deepcopy(trunk.state_dict())
        if worse >= PATIENCE:
            break
    trunk.load_state_dict(best_weights)
    return trunk.eval()


def _batches(rows: np.ndarray, generator: torch.Generator) -> Iterator[torch.Tensor]:
    order = torch.from_numpy(rows)[torch.randperm(len(rows), generator=generator)]
    # Statistics need more than one volume.
    return (batch for batch in order.split(BATCH) if len(batch) > 1 or len(rows) == 1)


def _step(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def _mirrored(cubes: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Mirror the volumes of a batch left to right, all cubes of one or none."""
    mirror = torch.rand(len(cubes[0]), generator=generator) < 0.5
    return [
        torch.where(mirror.reshape(-1, *[1] * (cube.ndim - 1)), cube.flip(-3), cube)
        for cube in cubes
    ]


def _standardised(values: np.ndarray) -> torch.Tensor:
    scale = values.std(axis=0)
    standardised = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    return torch.from_numpy(standardised.astype(np.float32))


def _stopping_split(volumes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows for training and for early stopping; no volume is on both sides."""
    names, indices = np.unique([volume.tobytes() for volume in volumes], return_inverse=True)
    count = round(STOPPING_SHARE * len(names))
    chosen = np.random.default_rng(seed).permutation(len(names))[:count]
    stopping = np.isin(indices, chosen)
    return np.flatnonzero(~stopping), np.flatnonzero(stopping)


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
