"""The networks that `dnn_train` trains: fully connected, VGG16 and ResNet-50, of any width.

VGG16 is configuration D of Simonyan and Zisserman (2015) with batch normalisation, ResNet-50 that
of He et al. (2016). At ``width=64`` they have the published architectures.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

NETWORKS = ("fully_connected", "vgg16", "resnet50")
# Channels as multiples of the width; None halves the image.
_VGG16 = (1, 1, None, 2, 2, None, 4, 4, 4, None, 8, 8, 8, None, 8, 8, 8, None)
VGG16_POOLINGS = _VGG16.count(None)
_RESNET50 = (3, 4, 6, 3)
_EXPANSION = 4


def build(
    network: str,
    *,
    image_size: int,
    layers: int,
    neurons: int,
    width: int,
    classes: int = 10,
    channels: int = 1,
) -> nn.Module:
    """Return an untrained network for square images.

    Parameters
    ----------
    network : str
        One of `NETWORKS`.
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
        return nn.Sequential(nn.Flatten(), *_dense(sizes), nn.Linear(sizes[-1], classes))
    if network == "vgg16":
        return _vgg16(image_size, neurons, width, classes, channels)
    return _resnet50(width, classes, channels)


def _dense(sizes: list[int]) -> list[nn.Module]:
    pairs = itertools.pairwise(sizes)
    return [part for before, after in pairs for part in (nn.Linear(before, after), nn.ReLU())]


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
    flat_size = before * (image_size // 2**VGG16_POOLINGS) ** 2
    dense = _dense([flat_size, neurons, neurons])
    return nn.Sequential(*parts, nn.Flatten(), *dense, nn.Linear(neurons, classes))


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
            parts.append(_Bottleneck(before, width * 2**stage, stride))
            before = width * 2**stage * _EXPANSION
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class _Bottleneck(nn.Module):
    """Three convolutions with a shortcut: the identity or a fourth convolution."""

    def __init__(self, before: int, narrow: int, stride: int) -> None:
        super().__init__()
        after = narrow * _EXPANSION
        self.body = nn.Sequential(
            *_normalised(before, narrow, 1),
            nn.ReLU(),
            *_normalised(narrow, narrow, 3, stride),
            nn.ReLU(),
            *_normalised(narrow, after, 1),
        )
        same = before == after and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*_normalised(before, after, 1, stride))
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images, shape (n, before, h, w), as (n, 4 narrow, h / stride, w / stride)."""
        out: torch.Tensor = nn.functional.relu(self.body(images) + self.shortcut(images))
        return out


def _normalised(before: int, after: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    # The normalisation has the bias already.
    convolution = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after)]
