"""Parts of the trainings: images, networks, and an epoch.

Images are scikit-learn's digits or seeded synthetic ones. `dnn_train` trains a fully connected
network, VGG16 (configuration D of Simonyan and Zisserman 2015, with batch normalisation) or
ResNet-50 (He et al. 2016); at ``width=64`` they have the published architectures. `ddp_train`
trains a small convolutional or a residual network that normalise by groups of channels of one
image (Wu and He 2018): batch normalisation would depend on the images of one process, and so on
the number of processes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from voxcast.errors import RunError

if TYPE_CHECKING:
    import numpy.typing as npt

CLASSES = 10
HELD_OUT_SHARE = 0.2  # relative to the training images; of the digits at most this share
GROUPS = 4  # of channels that `ddp_train` normalises; the width is a multiple of it
_PATTERN = 8  # pixels of an edge before resizing, as in the digits
_NOISE = 1.5  # standard deviation; 1 for the patterns
# Channels as multiples of the width; None halves the image.
_VGG16 = (1, 1, None, 2, 2, None, 4, 4, 4, None, 8, 8, 8, None, 8, 8, 8, None)
_RESNET50 = (3, 4, 6, 3)
_EXPANSION = 4
_by_groups = functools.partial(nn.GroupNorm, GROUPS)


def train_epoch(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    images: TensorDataset,
    batches: Iterable[torch.Tensor],
    device: torch.device | None = None,
) -> torch.Tensor:
    """Take a step with each batch of rows; return the mean loss of an image before its step."""
    total, seen = torch.zeros((), device=device), 0
    for rows in batches:
        pixels, classes = (part.to(device) for part in images[rows])
        loss = nn.functional.cross_entropy(network(pixels), classes)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.detach() * len(rows)
        seen += len(rows)
    return total / seen


@torch.no_grad()
def correct(
    network: nn.Module,
    images: TensorDataset,
    batches: Iterable[torch.Tensor],
    device: torch.device | None = None,
) -> torch.Tensor:
    """Return the number of images in batches of rows whose class the network finds."""
    total = torch.zeros((), device=device)
    for rows in batches:
        pixels, classes = (part.to(device) for part in images[rows])
        total += (network(pixels).argmax(1) == classes).sum()
    return total


def load_images(parameters: Mapping[str, Any]) -> tuple[TensorDataset, TensorDataset]:
    """Return training and held-out images, shape (n, 1, size, size), with their classes.

    Parameters
    ----------
    parameters : mapping
        Of an application. `dataset` is ``digits``: the 1797 handwritten digits of scikit-learn, a
        fifth of them held out, the others repeated if there are fewer than `samples`; or
        ``synthetic``: one random pattern for each class, under noise. Images of 8 by 8 pixels are
        resized to edges of `image_size`, linearly. `seed` decides order, patterns and noise.

    Raises
    ------
    RunError
        If the digits are requested and scikit-learn is not installed.
    """
    samples, image_size = parameters["samples"], parameters["image_size"]
    rng = np.random.default_rng(parameters["seed"])
    held_out = max(1, round(HELD_OUT_SHARE * samples))
    if parameters["dataset"] == "digits":
        return _digits(samples, held_out, image_size, rng)
    patterns = _resized(rng.standard_normal((CLASSES, _PATTERN, _PATTERN)), image_size)
    return _synthetic(patterns, samples, rng), _synthetic(patterns, held_out, rng)


def _digits(
    samples: int, held_out: int, image_size: int, rng: np.random.Generator
) -> tuple[TensorDataset, TensorDataset]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        then = "install scikit-learn, or use dataset=synthetic"
        raise RunError("needs scikit-learn", "dataset digits", then) from None
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    last = round(HELD_OUT_SHARE * len(order))
    pixels = _resized(digits.images / 8.0 - 1.0, image_size)
    all_digits = TensorDataset(pixels, torch.from_numpy(digits.target))
    # Held out before anything is repeated: no image is in both sets.
    rows = np.resize(order[last:], samples), order[:last][:held_out]
    training, test = (TensorDataset(*all_digits[torch.from_numpy(part)]) for part in rows)
    return training, test


def _synthetic(patterns: torch.Tensor, samples: int, rng: np.random.Generator) -> TensorDataset:
    classes = torch.from_numpy(rng.integers(0, CLASSES, samples))
    noise = rng.standard_normal((samples, *patterns.shape[1:]), dtype=np.float32)
    return TensorDataset(_NOISE * torch.from_numpy(noise) + patterns[classes], classes)


def _resized(images: npt.NDArray[np.float64], size: int) -> torch.Tensor:
    """Return square images, shape (n, m, m), resized linearly to (n, 1, size, size), float32."""
    pixels = torch.from_numpy(images)[:, None]
    return nn.functional.interpolate(pixels, (size, size), mode="bilinear").float()


def dnn_network(
    network: str,
    *,
    image_size: int,
    layers: int,
    neurons: int,
    width: int,
    classes: int = CLASSES,
    channels: int = 1,
) -> nn.Module:
    """Return an untrained network for square images.

    Parameters
    ----------
    network : str
        ``fully_connected``, ``vgg16`` or ``resnet50``.
    image_size : int
        Pixels of an edge; at least 32 for VGG16, which halves it five times.
    layers, neurons : int
        Hidden layers of the fully connected net; neurons of each, and of VGG16's two hidden
        layers at the end.
    width : int
        Channels of the first block of VGG16 and ResNet-50; later blocks have multiples of it.
    classes, channels : int
        Outputs, and colours of the images.
    """
    if network == "fully_connected":
        sizes = [channels * image_size**2, *[neurons] * layers]
        return nn.Sequential(nn.Flatten(), *dense(sizes), nn.Linear(sizes[-1], classes))
    if network == "vgg16":
        return _vgg16(image_size, neurons, width, classes, channels)
    return _resnet50(width, classes, channels)


def dense(sizes: list[int], activation: Callable[[], nn.Module] = nn.ReLU) -> list[nn.Module]:
    """Return fully connected layers, each followed by its activation."""
    pairs = itertools.pairwise(sizes)
    return [part for before, after in pairs for part in (nn.Linear(before, after), activation())]


def _vgg16(image_size: int, neurons: int, width: int, classes: int, channels: int) -> nn.Module:
    parts: list[nn.Module] = []
    before = channels
    for multiple in _VGG16:
        if multiple is None:
            parts.append(nn.MaxPool2d(2))
            continue
        after = multiple * width
        # Without the normalisation sixteen layers do not learn from scratch in a few epochs.
        parts += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    flat_size = before * (image_size // 2 ** _VGG16.count(None)) ** 2
    hidden = dense([flat_size, neurons, neurons])
    return nn.Sequential(*parts, nn.Flatten(), *hidden, nn.Linear(neurons, classes))


def _resnet50(width: int, classes: int, channels: int) -> nn.Module:
    parts: list[nn.Module] = [
        nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    before = width
    for stage, blocks in enumerate(_RESNET50):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            parts.append(_bottleneck(before, width * 2**stage, stride))
            before = width * 2**stage * _EXPANSION
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class _Residual(nn.Module):
    """Convolutions with a shortcut, which is a convolution too where the shape changes."""

    def __init__(self, body: list[nn.Module], shortcut: list[nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images, shape (n, before, h, w), as (n, after, h / stride, w / stride)."""
        out: torch.Tensor = nn.functional.relu(self.body(images) + self.shortcut(images))
        return out


def _bottleneck(before: int, narrow: int, stride: int) -> _Residual:
    after = narrow * _EXPANSION
    body = [
        *_convolution(before, narrow, nn.BatchNorm2d, kernel=1), nn.ReLU(),
        *_convolution(narrow, narrow, nn.BatchNorm2d, stride), nn.ReLU(),
        *_convolution(narrow, after, nn.BatchNorm2d, kernel=1),
    ]  # fmt: skip
    same = before == after and stride == 1
    return _Residual(
        body, [] if same else _convolution(before, after, nn.BatchNorm2d, stride, kernel=1)
    )


def _convolution(
    before: int,
    after: int,
    normalisation: Callable[[int], nn.Module],
    stride: int = 1,
    *,
    kernel: int = 3,
) -> list[nn.Module]:
    # The normalisation has the bias already.
    convolution = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, normalisation(after)]


def ddp_network(model: str, width: int) -> nn.Module:
    """Return an untrained network for images of one channel and any size from 8 pixels on.

    Parameters
    ----------
    model : str
        ``small_cnn``, or ``resnet``, which has three stages of two residual blocks, as the
        networks of He et al. (2016) for small images.
    width : int
        Channels of the first layer, a multiple of `GROUPS`; later stages double them.
    """
    first = [*_convolution(1, width, _by_groups), nn.ReLU()]
    if model == "small_cnn":
        return nn.Sequential(
            *first, nn.MaxPool2d(2),
            *_convolution(width, 2 * width, _by_groups), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
            nn.Flatten(), nn.Linear(32 * width, CLASSES),
        )  # fmt: skip
    steps = [(1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1)]
    blocks = [_grouped_block(width * before, width * after, step) for before, after, step in steps]
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))
    return nn.Sequential(*first, *blocks, *end)


def _grouped_block(before: int, after: int, stride: int) -> _Residual:
    first = _convolution(before, after, _by_groups, stride)
    body = [*first, nn.ReLU(), *_convolution(after, after, _by_groups)]
    if before == after and stride == 1:
        return _Residual(body, [])
    return _Residual(body, [nn.Conv2d(before, after, 1, stride=stride, bias=False)])
