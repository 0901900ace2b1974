"""The network as a regressor: training, prediction, files. Deterministic per seed on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ModelError
from voxcast.files import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from voxcast.models.cnn import VolumeNet

_SCALES = ("x_mean", "x_scale", "y_mean", "y_scale", "y_low", "y_high")
# Far from what it has seen a network goes straight on, and a column that hardly varied in training
# makes anything far: columns count up to this many standard deviations, and answers reach at most
# a factor of four beyond the values seen.
COLUMN_LIMIT = 5.0
REACH_LOG = float(np.log(4))


class VolumeRegressor:
    """`voxcast.models.cnn.VolumeNet` behind the interface of the other families.

    Parameters
    ----------
    width, dropout
        See `VolumeNet`.
    epochs : int
        Passes over the training runs.
    learning_rate : float
        Peak of a one-cycle schedule of AdamW.
    seed : int
        Of weights, order and dropout.
    """

    def __init__(
        self,
        width: int = 8,
        epochs: int = 60,
        learning_rate: float = 3e-3,
        dropout: float = 0.1,
        seed: int = 0,
        batch_size: int = 16,
    ) -> None:
        self.width = width
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.seed = seed
        self.batch_size = batch_size

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> VolumeRegressor:
        """Learn logarithms ``y``, shape (n, outputs), from columns and volumes (n, p, p, p)."""
        import torch

        self.x_mean_, self.x_scale_ = _standard(x)
        self.y_mean_, self.y_scale_ = _standard(y)
        self.y_low_, self.y_high_ = y.min(axis=0), y.max(axis=0)
        device = _device()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            net = self._network(x.shape[1], y.shape[1]).to(device)
            cubes, columns = self._tensors(x, volumes, device)
            goal = torch.tensor((y - self.y_mean_) / self.y_scale_, dtype=torch.float32).to(device)
            net.start_from(_ridge(columns, goal))
            steps = self.epochs * -(-len(x) // self.batch_size)
            optimiser = torch.optim.AdamW(net.parameters(), self.learning_rate, weight_decay=1e-2)
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, self.learning_rate, total_steps=steps
            )
            net.train()
            for _ in range(self.epochs):
                for batch in torch.randperm(len(x)).split(self.batch_size):
                    optimiser.zero_grad()
                    # A run beside a busy neighbour should not pull quadratically.
                    loss = torch.nn.functional.smooth_l1_loss(
                        net(_flipped(cubes[batch]), columns[batch]), goal[batch], beta=0.5
                    )
                    loss.backward()
                    optimiser.step()
                    schedule.step()
        self.net_ = net.eval().cpu()
        return self

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms, shape (n, outputs)."""
        import torch

        cubes, columns = self._tensors(x, volumes, torch.device("cpu"))
        with torch.inference_mode():
            parts = [
                self.net_(cubes[batch], columns[batch]) for batch in torch.arange(len(x)).split(64)
            ]
        standardised: np.ndarray = torch.cat(parts).numpy().astype(float)
        logs = standardised * self.y_scale_ + self.y_mean_
        return np.clip(logs, self.y_low_ - REACH_LOG, self.y_high_ + REACH_LOG)

    def _network(self, columns: int, outputs: int) -> VolumeNet:
        from voxcast.models.cnn import VolumeNet

        return VolumeNet(columns, outputs, self.width, self.dropout)

    def _tensors(
        self, x: np.ndarray, volumes: np.ndarray | None, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        if volumes is None or len(volumes) != len(x):
            raise ModelError("the network needs one volume per row")
        cubes = torch.tensor(np.asarray(volumes, dtype=np.float32))[:, None]
        standardised = np.clip((x - self.x_mean_) / self.x_scale_, -COLUMN_LIMIT, COLUMN_LIMIT)
        columns = torch.tensor(standardised, dtype=torch.float32)
        return cubes.to(device), columns.to(device)

    def save(self, folder: Path) -> None:
        """Write ``network.json`` (numbers) and ``network.pt`` (a state dict, weights only)."""
        import torch

        numbers = {
            "width": self.width,
            "dropout": self.dropout,
            **{name: getattr(self, f"{name}_").tolist() for name in _SCALES},
        }
        write_json(folder / "network.json", numbers)
        torch.save(self.net_.state_dict(), folder / "network.pt")

    @classmethod
    def load(cls, folder: Path) -> VolumeRegressor:
        """Read what `save` wrote; weights only, so that no code comes with the file."""
        import torch

        numbers = read_json(folder / "network.json")
        regressor = cls(width=numbers["width"], dropout=numbers["dropout"])
        for name in _SCALES:
            setattr(regressor, f"{name}_", np.array(numbers[name]))
        regressor.net_ = regressor._network(len(numbers["x_mean"]), len(numbers["y_mean"]))
        regressor.net_.load_state_dict(torch.load(folder / "network.pt", weights_only=True))
        regressor.net_.eval()
        return regressor


def _standard(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = values.std(axis=0)
    return values.mean(axis=0), np.where(scale > 0, scale, 1.0)


def _ridge(columns: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Return the linear map from standardised columns to goal, shape (outputs, columns)."""
    import torch

    penalty = torch.eye(columns.shape[1], device=columns.device)
    return torch.linalg.solve(columns.T @ columns + penalty, columns.T @ goal).T


def _flipped(cubes: torch.Tensor) -> torch.Tensor:
    """Mirror each volume left to right with even odds: time does not know left from right."""
    import torch

    mirror = (torch.rand(len(cubes)) < 0.5).to(cubes.device)  # drawn on the CPU: one seed for all
    return torch.where(mirror[:, None, None, None, None], cubes.flip(2), cubes)


def _device() -> torch.device:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
