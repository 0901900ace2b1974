"""The networks that `ddp_train` trains: a small convolutional one and a residual one.

They normalise by groups of channels of one image (Wu and He 2018). Batch normalisation would
depend on which images a process holds, and so on the number of processes.
"""

from __future__ import annotations

import torch
from torch import nn

MODELS = ("small_cnn", "resnet")
CLASSES = 10
GROUPS = 4  # the width is a multiple of it


def build(model: str, width: int) -> nn.Module:
    """Return an untrained network for images of one channel and any size from 8 pixels on.

    Parameters
    ----------
    model : str
        One of `MODELS`. ``resnet`` has three stages of two residual blocks, as the networks of He
        et al. (2016) for small images.
    width : int
        Channels of the first layer, a multiple of `GROUPS`; later stages double them.
    """
    if model == "small_cnn":
        return nn.Sequential(
            *_convolution(1, width), nn.ReLU(), nn.MaxPool2d(2),
            *_convolution(width, 2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
            nn.Flatten(), nn.Linear(32 * width, CLASSES),
        )  # fmt: skip
    stages = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
    blocks = [
        block
        for before, after, stride in stages
        for block in (_ResidualBlock(before, after, stride), _ResidualBlock(after, after, 1))
    ]
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))
    return nn.Sequential(*_convolution(1, width), nn.ReLU(), *blocks, *end)


class _ResidualBlock(nn.Module):
    """Two convolutions with a shortcut, which is a convolution too where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(before, after, stride), nn.ReLU(), *_convolution(after, after)
        )
        same = before == after and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images, shape (n, before, h, w), as (n, after, h / stride, w / stride)."""
        out: torch.Tensor = nn.functional.relu(self.body(images) + self.shortcut(images))
        return out


def _convolution(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    # The normalisation has the bias already.
    convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.GroupNorm(GROUPS, after)]
