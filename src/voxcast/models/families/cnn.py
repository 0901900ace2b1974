"""The network: a small 3D CNN over the volume, combined with the columns of the row.

The volume is resampled to a small cube, which loses its spacing and extent; these are among the
columns.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn


class VolumeNet(nn.Module):
    """Four blocks of convolution, pooled to one vector, joined with the columns.

    The first block halves the grid by its stride: at full resolution it would cost more than all
    other blocks together.

    The columns also go straight to the output through a linear path; `start_from` sets it to what
    they explain linearly (twice the voxels, twice the time), and the joined path learns the rest.

    Parameters
    ----------
    columns : int
        Number of columns of the row.
    outputs : int
        Number of outputs (standardised logarithms). Each has three heads: a median, and how far
        below and above it the outer quantiles are, which cannot cross it.
    width : int
        Channels of the first block; each block doubles them.
    dropout : float
        Share of the joined vector dropped in training.
    """

    def __init__(self, columns: int, outputs: int, width: int, dropout: float) -> None:
        super().__init__()
        channels = [1, width, 2 * width, 4 * width, 8 * width]
        blocks = [
            nn.Sequential(
                nn.Conv3d(before, after, kernel_size=3, padding=1, stride=2 if before == 1 else 1),
                # Batches are small and subjects few: statistics of a batch would be noise.
                nn.GroupNorm(4, after),
                nn.ReLU(),
                nn.MaxPool3d(2, ceil_mode=True),
            )
            for before, after in itertools.pairwise(channels)
        ]
        self.volume_path = nn.Sequential(*blocks, nn.AdaptiveAvgPool3d(1), nn.Flatten())
        self.joined_path = nn.Sequential(
            nn.Linear(channels[-1] + columns, 32),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(32, 3 * outputs),
        )
        self.column_path = nn.Linear(columns, outputs)
        self.outputs = outputs

    def start_from(self, weights: torch.Tensor) -> None:
        """Initialise the network to the linear map ``weights``, shape (outputs, columns)."""
        with torch.no_grad():
            self.column_path.weight.copy_(weights)
            self.column_path.bias.zero_()
            for parameter in self.joined_path[-1].parameters():
                parameter.zero_()

    def forward(
        self, volumes: torch.Tensor, columns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return medians, shape (n, outputs), and distances to the quantiles, (n, outputs, 2).

        Parameters
        ----------
        volumes : Tensor, shape (n, 1, p, p, p)
            Normalised volumes.
        columns : Tensor, shape (n, columns)
            Standardised columns.
        """
        pooled = self.volume_path(volumes)
        joined = self.joined_path(torch.cat([pooled, columns], dim=1))
        medians: torch.Tensor = self.column_path(columns) + joined[:, : self.outputs]
        raw = joined[:, self.outputs :].reshape(-1, self.outputs, 2)
        # The initial distance is a tenth of a standard deviation.
        return medians, nn.functional.softplus(raw - 2.25)
