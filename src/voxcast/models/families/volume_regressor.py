"""The network as a regressor: training, prediction, files. Deterministic per seed on a CPU."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ModelError
from voxcast.files import sha256_file
from voxcast.models.families.quantile_regressor import MINIMUM_SPREAD
from voxcast.models.model_files import read_checked, read_sealed, write_sealed

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from voxcast.models.families.cnn import VolumeNet

_SCALES = ("x_mean", "x_scale", "y_mean", "y_scale", "y_low", "y_high")
# The network extrapolates linearly, and columns that hardly varied in training are easily out of
# range. Columns are therefore clipped to this many standard deviations, and predictions to a
# factor of four outside the training values.
COLUMN_LIMIT = 5.0
REACH_LOG = float(np.log(4))
# With fewer distinct volumes, all are used for training, without early stopping.
MINIMUM_VOLUMES = 40
NUMBERS_FILE, WEIGHTS_FILE = "network.json", "network.pt"
STOPPING_SHARE = 1 / 8
PATIENCE = 10
LOW, HIGH = 0.05, 0.95


class VolumeRegressor:
    """`voxcast.models.families.cnn.VolumeNet` with the interface `Regressor`.

    Parameters
    ----------
    width, dropout
        See `VolumeNet`.
    epochs : int
        Passes over the training runs.
    learning_rate : float
        Peak of a one-cycle schedule of AdamW.
    columns : {"all", "grid"}
        Columns used beside the voxels; the family selects them.
    seed : int
        Seed of weights, order and dropout.
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
        self.net_: VolumeNet | None = None
        self.weights = b""  # of a network that was read

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> VolumeRegressor:
        """Learn logarithms ``y``, shape (n, outputs), from columns and volumes (n, p, p, p)."""
        import torch

        self.x_mean_, self.x_scale_ = _mean_and_scale(x)
        self.y_mean_, self.y_scale_ = _mean_and_scale(y)
        self.y_low_, self.y_high_ = y.min(axis=0), y.max(axis=0)
        device = _device()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            net = self._untrained(x.shape[1], y.shape[1]).to(device)
            cubes, columns = self._tensors(x, volumes, device)
            targets = torch.tensor((y - self.y_mean_) / self.y_scale_, dtype=torch.float32).to(
                device
            )
            train, stopping = _stopping_split(volumes, self.seed)
            net.start_from(_ridge(columns[train], targets[train]))
            self._train(net, cubes, columns, targets, train, stopping)
        self.net_ = net.eval().cpu()
        return self

    def _train(
        self,
        net: VolumeNet,
        cubes: torch.Tensor,
        columns: torch.Tensor,
        targets: torch.Tensor,
        train: torch.Tensor,
        stopping: torch.Tensor,
    ) -> None:
        """Train; with runs for early stopping, restore the weights that were best on them."""
        import torch

        steps = self.epochs * -(-len(train) // self.batch_size)
        optimiser = torch.optim.AdamW(net.parameters(), self.learning_rate, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, self.learning_rate, total_steps=steps
        )
        on_gpu = cubes.device.type == "cuda"
        scaler = torch.amp.GradScaler("cuda", enabled=on_gpu)
        best_loss, best_weights, epochs_since_best = float("inf"), None, 0
        for _ in range(self.epochs):
            net.train()
            for batch in train[torch.randperm(len(train))].split(self.batch_size):
                optimiser.zero_grad()
                with torch.autocast(cubes.device.type, enabled=on_gpu):
                    medians, spreads = net(_flipped(cubes[batch]), columns[batch])
                loss = _loss(medians.float(), spreads.float(), targets[batch])
                scaler.scale(loss).backward()
                scaler.step(optimiser)
                scaler.update()
                schedule.step()
            if not len(stopping):
                continue
            net.eval()
            with torch.inference_mode():
                medians, spreads = net(cubes[stopping], columns[stopping])
                stopping_loss = float(_loss(medians, spreads, targets[stopping]))
            epochs_since_best += 1
            if stopping_loss < best_loss:
                best_loss, epochs_since_best = stopping_loss, 0
                best_weights = {name: value.clone() for name, value in net.state_dict().items()}
            if epochs_since_best >= max(PATIENCE, self.epochs // 3):
                break
        if best_weights is not None:
            net.load_state_dict(best_weights)

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms, shape (n, outputs)."""
        logs: np.ndarray = self._outputs(x, volumes)[0] * self.y_scale_ + self.y_mean_
        clipped: np.ndarray = np.clip(logs, self.y_low_ - REACH_LOG, self.y_high_ + REACH_LOG)
        return clipped

    def spread(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return the distance of both outer quantiles from the median, shape (n, outputs, 2)."""
        spread: np.ndarray = self._outputs(x, volumes)[1] * self.y_scale_[:, None]
        return np.asarray(np.maximum(spread, MINIMUM_SPREAD))

    def _outputs(self, x: np.ndarray, volumes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        import torch

        net = self._network()
        cubes, columns = self._tensors(x, volumes, torch.device("cpu"))
        with torch.inference_mode():
            parts = [net(cubes[batch], columns[batch]) for batch in torch.arange(len(x)).split(64)]
        medians, spreads = (
            torch.cat(part).numpy().astype(float) for part in zip(*parts, strict=True)
        )
        return medians, spreads

    def _untrained(self, columns: int, outputs: int) -> VolumeNet:
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

        torch.save(self._network().state_dict(), folder / WEIGHTS_FILE)
        numbers = {
            "width": self.width,
            "dropout": self.dropout,
            "weights_sha256": sha256_file(folder / WEIGHTS_FILE),
            **{name: getattr(self, f"{name}_").tolist() for name in _SCALES},
        }
        write_sealed(folder / NUMBERS_FILE, numbers)

    @classmethod
    def load(cls, folder: Path) -> VolumeRegressor:
        """Read what `save` wrote; only weights, so that the file cannot run code.

        The network is built when it is first used: a query without voxels does not need it.

        Raises
        ------
        ModelError
            If a file is missing, damaged or of something else.
        """
        numbers = read_sealed(folder / NUMBERS_FILE)
        try:
            regressor = cls(width=numbers["width"], dropout=numbers["dropout"])
            for name in _SCALES:
                setattr(regressor, f"{name}_", np.array(numbers[name], dtype=float))
            regressor.weights = read_checked(folder / WEIGHTS_FILE, numbers["weights_sha256"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"not a network: {error!r}", folder / NUMBERS_FILE) from None
        return regressor

    def _network(self) -> VolumeNet:
        """Return the network: the fitted one, or that of the weights that were read."""
        import torch

        if self.net_ is None:
            net = self._untrained(len(self.x_mean_), len(self.y_mean_))
            net.load_state_dict(torch.load(io.BytesIO(self.weights), weights_only=True))
            self.net_ = net.eval()
        return self.net_


def _mean_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = values.std(axis=0)
    return values.mean(axis=0), np.where(scale > 0, scale, 1.0)


def _stopping_split(volumes: np.ndarray | None, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows for training and those for early stopping; no volume is on both sides."""
    import torch

    assert volumes is not None  # noqa: S101  # checked by `_tensors`
    flat = np.ascontiguousarray(volumes).reshape(len(volumes), -1)
    names, name_indices = np.unique(
        [hashlib.sha256(row.tobytes()).hexdigest() for row in flat], return_inverse=True
    )
    count = round(STOPPING_SHARE * len(names)) if len(names) >= MINIMUM_VOLUMES else 0
    stopping_names = np.random.default_rng(seed).permutation(len(names))[:count]
    stopping = np.isin(name_indices, stopping_names)
    return torch.from_numpy(np.flatnonzero(~stopping)), torch.from_numpy(np.flatnonzero(stopping))


def _loss(medians: torch.Tensor, spreads: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of the medians, and the pinball loss of the quantiles around them."""
    import torch

    # Disturbed runs must not count quadratically.
    median_loss = torch.nn.functional.smooth_l1_loss(medians, targets, beta=0.5)
    detached = medians.detach()  # the quantiles must not move the median
    below = targets - (detached - spreads[..., 0])
    above = targets - (detached + spreads[..., 1])
    low = torch.maximum(LOW * below, (LOW - 1) * below)
    high = torch.maximum(HIGH * above, (HIGH - 1) * above)
    return median_loss + (low + high).mean()


def _ridge(columns: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the linear map from standardised columns to targets, (outputs, columns)."""
    import torch

    penalty = torch.eye(columns.shape[1], device=columns.device)
    weights: torch.Tensor = torch.linalg.solve(columns.T @ columns + penalty, columns.T @ targets)
    return weights.T


def _flipped(cubes: torch.Tensor) -> torch.Tensor:
    """Mirror each volume left to right with probability 0.5."""
    import torch

    mirror = (torch.rand(len(cubes)) < 0.5).to(
        cubes.device
    )  # drawn on the CPU, the same on all devices
    return torch.where(mirror[:, None, None, None, None], cubes.flip(2), cubes)


def _device() -> torch.device:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
