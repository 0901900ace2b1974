"""Training of the network's weights, and evaluation of a segmentation."""

from __future__ import annotations

import contextlib
import io
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from voxcast_apps.arguments import Arguments
from voxcast_apps.tiles import alignment, tile_segment
from voxcast_apps.tiles.grid import SHAPE, TISSUES
from voxcast_apps.tiles.network import CLASSES, TileNet, with_coordinates

CROP = (40, 48, 40)
BATCH = 2
LEARNING_RATE = 4e-3


def train(
    volumes: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    *,
    steps: int,
    seed: int,
    crop: tuple[int, int, int] = CROP,
) -> TileNet:
    """Train the network on aligned volumes.

    Parameters
    ----------
    volumes, labels : sequence of numpy.ndarray
        Normalised intensities and uint8 labels, all of `grid.SHAPE`.
    steps : int
        Number of batches.
    crop : tuple of int
        Shape of a box in voxels, multiples of 4; a batch has `BATCH` boxes.

    Returns
    -------
    TileNet
        In evaluation mode.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = TileNet().train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, LEARNING_RATE, total_steps=steps, pct_start=0.15
    )
    inputs = [with_coordinates(volume) for volume in volumes]
    truths = [torch.from_numpy(label.astype(np.int64)) for label in labels]
    for _ in tqdm(range(steps), desc="training", unit="batch", disable=None):
        chosen = rng.integers(len(inputs), size=BATCH)
        boxes = [_box(inputs[n], truths[n], crop, rng) for n in chosen]
        batch = torch.stack([box for box, _ in boxes])
        truth = torch.stack([label for _, label in boxes])
        loss = _loss(network(batch), truth)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def example(scan: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return a scan and its labels on the network's grid, preprocessed as in the application."""
    import ants

    volume, truth = ants.image_read(str(scan)), ants.image_read(str(labels))
    with tempfile.TemporaryDirectory() as folder:
        aligned, transform = alignment.register(scan, volume, 1.0, Path(folder))
        moved = ants.apply_transforms(
            aligned, truth, [transform], interpolator="genericLabel"
        ).numpy()
    corrected = alignment.correct_bias(aligned, tile_segment.DEFAULTS["n4_iterations"])
    return alignment.normalise(corrected.numpy()), np.rint(moved).astype(np.uint8)


def evaluate(
    scans: Sequence[tuple[Path, Path]], weights_file: Path
) -> list[dict[str, float | str]]:
    """Run the whole application on scans and compare with their labels, on the scans' own grids.

    Returns
    -------
    list of dict
        One row per scan: its name, and the Dice overlap of each tissue.
    """
    import ants

    rows: list[dict[str, float | str]] = []
    for scan, labels in tqdm(scans, desc="evaluating", unit="scan", disable=None):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            out = Path(folder)
            options = Arguments(scan, out, 1, "cpu", tile_segment.DEFAULTS)
            tile_segment.segment(options, weights_file)
            files = (out / "labels.nii.gz", labels)
            predicted, truth = (ants.image_read(str(file)).numpy() for file in files)
        overlaps = zip(TISSUES[1:], dice(predicted, truth), strict=True)
        rows.append({"scan": scan.name, **{name: round(value, 4) for name, value in overlaps}})
    return rows


def dice(predicted: np.ndarray, truth: np.ndarray) -> list[float]:
    """Return the Dice overlap of each label from 1 on; NaN where both lack it."""
    pairs = [(predicted == label, truth == label) for label in range(1, CLASSES)]
    totals = [int(a.sum()) + int(b.sum()) for a, b in pairs]
    return [
        2 * int((a & b).sum()) / total if total else math.nan
        for (a, b), total in zip(pairs, totals, strict=True)
    ]


def _box(
    volume: torch.Tensor,
    truth: torch.Tensor,
    crop: tuple[int, int, int],
    rng: np.random.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut a random box, half of them mirrored, their contrast and noise varied."""
    start = [int(rng.integers(n - size + 1)) for n, size in zip(SHAPE, crop, strict=True)]
    place = tuple(slice(low, low + size) for low, size in zip(start, crop, strict=True))
    box, label = volume[(slice(None), *place)].clone(), truth[place]
    if rng.random() < 0.5:
        box, label = box.flip(1), label.flip(0)
        box[1] = -box[1]  # the coordinates are not mirrored
    box[0] = box[0] * float(rng.uniform(0.85, 1.15)) + float(rng.uniform(-0.15, 0.15))
    box[0] += float(rng.uniform(0, 0.15)) * torch.from_numpy(
        rng.standard_normal(crop, dtype=np.float32)
    )
    return box, label


def _loss(logits: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Cross-entropy for every voxel, and Dice for small classes."""
    shares, axes = logits.softmax(dim=1), (0, 2, 3, 4)
    one_hot = nn.functional.one_hot(truth, CLASSES).movedim(-1, 1).to(shares.dtype)
    overlap, total = (shares * one_hot).sum(axes), (shares + one_hot).sum(axes)
    soft_dice = ((2 * overlap + 1.0) / (total + 1.0))[1:].mean()
    loss: torch.Tensor = nn.functional.cross_entropy(logits, truth) + 1 - soft_dice
    return loss
