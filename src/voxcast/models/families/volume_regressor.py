"""The network as a regressor: training, prediction, files. Deterministic per seed on a CPU."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ModelError
from voxcast.files import read_json, write_json
from voxcast.models.families.quantile_regressor import MINIMUM_SPREAD

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from voxcast.models.families.cnn import VolumeNet

_SCALES = ("x_mean", "x_scale", "y_mean", "y_scale", "y_low", "y_high")
# Far from what it has seen a network goes straight on, and a column that hardly varied in training
# makes anything far: columns count up to this many standard deviations, and answers reach at most
# a factor of four beyond the values seen.
COLUMN_LIMIT = 5.0
REACH_LOG = float(np.log(4))
# With fewer distinct volumes each is needed to learn from, and training runs its course.
LEAST_VOLUMES = 40
KEPT_SHARE = 1 / 8
PATIENCE = 10
LOW, HIGH = 0.05, 0.95


class VolumeRegressor:
    """`voxcast.models.families.cnn.VolumeNet` behind the interface of the other families.

    Parameters
    ----------
    width, dropout
        See `VolumeNet`.
    epochs : int
        Passes over the training runs.
    learning_rate : float
        Peak of a one-cycle schedule of AdamW.
    columns : {"all", "grid"}
        What it is told beside the voxels; which columns those are is decided by its family.
    seed : int
        Of weights, order and dropout.
    """

    def __init__(
        self,
        width: int = 8,
        epochs: int = 60,
        learning_rate: float = 3e-3,
        dropout: float = 0.1,
        columns: str = "all",
        seed: int = 0,
        batch_size: int = 16,
    ) -> None:
        self.width = width
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.columns = columns
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
            train, kept = _sides(volumes, self.seed)
            net.start_from(_ridge(columns[train], goal[train]))
            self._descend(net, cubes, columns, goal, train, kept)
        self.net_ = net.eval().cpu()
        return self

    def _descend(
        self,
        net: VolumeNet,
        cubes: torch.Tensor,
        columns: torch.Tensor,
        goal: torch.Tensor,
        train: torch.Tensor,
        kept: torch.Tensor,
    ) -> None:
        """Train; where runs are kept back, leave the network as it was best on them."""
        import torch

        steps = self.epochs * -(-len(train) // self.batch_size)
        optimiser = torch.optim.AdamW(net.parameters(), self.learning_rate, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, self.learning_rate, total_steps=steps
        )
        on_gpu = cubes.device.type == "cuda"
        scaler = torch.amp.GradScaler("cuda", enabled=on_gpu)
        least, best, since = float("inf"), None, 0
        for _ in range(self.epochs):
            net.train()
            for batch in train[torch.randperm(len(train))].split(self.batch_size):
                optimiser.zero_grad()
                with torch.autocast(cubes.device.type, enabled=on_gpu):
                    medians, spreads = net(_flipped(cubes[batch]), columns[batch])
                loss = _loss(medians.float(), spreads.float(), goal[batch])
                scaler.scale(loss).backward()
                scaler.step(optimiser)
                scaler.update()
                schedule.step()
            if not len(kept):
                continue
            net.eval()
            with torch.inference_mode():
                medians, spreads = net(cubes[kept], columns[kept])
                now = float(_loss(medians, spreads, goal[kept]))
            since += 1
            if now < least:
                least, since = now, 0
                best = {name: value.clone() for name, value in net.state_dict().items()}
            if since >= max(PATIENCE, self.epochs // 3):
                break
        if best is not None:
            net.load_state_dict(best)

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms, shape (n, outputs)."""
        logs = self._answers(x, volumes)[0] * self.y_scale_ + self.y_mean_
        return np.clip(logs, self.y_low_ - REACH_LOG, self.y_high_ + REACH_LOG)

    def spread(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return the distance of both outer quantiles from the median, shape (n, outputs, 2)."""
        return np.maximum(self._answers(x, volumes)[1] * self.y_scale_[:, None], MINIMUM_SPREAD)

    def _answers(self, x: np.ndarray, volumes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        import torch

        cubes, columns = self._tensors(x, volumes, torch.device("cpu"))
        with torch.inference_mode():
            parts = [
                self.net_(cubes[batch], columns[batch]) for batch in torch.arange(len(x)).split(64)
            ]
        medians, spreads = (
            torch.cat(part).numpy().astype(float) for part in zip(*parts, strict=True)
        )
        return medians, spreads

    def _network(self, columns: int, outputs: int) -> VolumeNet:
        from voxcast.models.families.cnn import VolumeNet

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


def _sides(volumes: np.ndarray | None, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which rows to learn from and which tell when to stop; no volume is on both sides."""
    import torch

    assert volumes is not None  # noqa: S101  # `_tensors` has seen to it
    flat = np.ascontiguousarray(volumes).reshape(len(volumes), -1)
    names, of_row = np.unique(
        [hashlib.sha256(row.tobytes()).hexdigest() for row in flat], return_inverse=True
    )
    count = round(KEPT_SHARE * len(names)) if len(names) >= LEAST_VOLUMES else 0
    chosen = np.random.default_rng(seed).permutation(len(names))[:count]
    kept = np.isin(of_row, chosen)
    return torch.from_numpy(np.flatnonzero(~kept)), torch.from_numpy(np.flatnonzero(kept))


def _loss(medians: torch.Tensor, spreads: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Return the loss of the medians, and the pinball loss of the quantiles around them."""
    import torch

    # A run beside a busy neighbour should not pull quadratically.
    middle = torch.nn.functional.smooth_l1_loss(medians, goal, beta=0.5)
    fixed = medians.detach()  # what the quantiles want must not move the median
    below = goal - (fixed - spreads[..., 0])
    above = goal - (fixed + spreads[..., 1])
    low = torch.maximum(LOW * below, (LOW - 1) * below)
    high = torch.maximum(HIGH * above, (HIGH - 1) * above)
    return middle + (low + high).mean()


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
