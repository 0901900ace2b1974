"""The network as a regressor: characteristics estimated from the small volume, and a closed form.

The trunk estimates from the small volume, as learned on generated ones, see
`voxcast.models.families.trunk`; a tabular head learns from header and estimates, on the runs. So
few runs are needed, and a fit takes no longer than fitting the head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ModelError
from voxcast.models.families.regressors import TabularRegressor
from voxcast.models.families.trunk_files import read_trunk, write_trunk

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.models.families.trunk import VolumeTrunk

PRETRAINED, UNTRAINED = "pretrained", "untrained"
TRUNK_FOLDER, HEAD_FOLDER = "trunk", "head"


class VolumeRegressor:
    """A trunk and a tabular head with the interface `Regressor`.

    Parameters
    ----------
    head : TabularRegressor
        Learns from the columns and the estimates.
    estimates : tuple of str
        Features of the contents that the head sees, as their estimates.
    start : {"pretrained", "untrained"}
        The trunk of the package, or one of random weights.
    epochs : int
        Passes of the trunk over the training runs; with 0 it stays as it is.
    learning_rate : float
        Of these passes.
    seed : int
        Of random weights, order and mirroring.
    """

    def __init__(
        self,
        head: TabularRegressor,
        estimates: tuple[str, ...],
        start: str = PRETRAINED,
        epochs: int = 0,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.head = head
        self.estimates = estimates
        self.start = start
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.seed = seed
        self.trunk_: VolumeTrunk | None = None
        self.weights: dict[str, np.ndarray] = {}  # of a trunk that was read

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> VolumeRegressor:
        """Learn logarithms ``y``, shape (n, outputs), from columns and small volumes (n,).

        Runs whose volume is unknown do not train; if all are, the estimates are constant.
        """
        from voxcast.models.families.trunk import is_known, pretrained
        from voxcast.models.families.trunk_training import fit_to_runs, untrained

        volumes = _checked(volumes, len(x))
        has_volume = is_known(volumes)
        trunk = pretrained() if self.start == PRETRAINED else untrained(self.seed)
        if self.epochs and has_volume.any():
            runs = x[has_volume], y[has_volume], volumes[has_volume]
            trunk = fit_to_runs(trunk, *runs, self.epochs, self.learning_rate, self.seed)
        self.trunk_ = trunk
        estimated = self._estimates(volumes)
        train = has_volume if has_volume.any() else np.ones(len(x), dtype=bool)
        self.medians_ = np.nan_to_num(np.median(estimated[train], axis=0))
        self.head.fit(self._filled(x[train], estimated[train]), y[train], None)
        return self

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms, shape (n, outputs)."""
        estimated = self._estimates(_checked(volumes, len(x)))
        return self.head.predict(self._filled(x, estimated), None)

    def save(self, folder: Path) -> None:
        """Write the head, and the trunk that it was fitted with."""
        for name in (TRUNK_FOLDER, HEAD_FOLDER):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.head.save(folder / HEAD_FOLDER)
        facts = {"estimates": list(self.estimates), "medians": self.medians_.tolist()}
        write_trunk(folder / TRUNK_FOLDER, self._trunk_weights(), facts)

    @classmethod
    def load(cls, folder: Path) -> VolumeRegressor:
        """Read what `save` wrote.

        The network is built when a volume first needs it: a header alone needs no torch.

        Raises
        ------
        ModelError
            If a file is missing, damaged or of something else.
        """
        weights, facts = read_trunk(folder / TRUNK_FOLDER)
        try:
            regressor = cls(TabularRegressor.load(folder / HEAD_FOLDER), tuple(facts["estimates"]))
            regressor.medians_ = np.array(facts["medians"], dtype=float)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"not a network: {error!r}", folder / TRUNK_FOLDER) from None
        regressor.weights = weights
        return regressor

    def _trunk_weights(self) -> dict[str, np.ndarray]:
        if self.trunk_ is None:
            return self.weights
        return self.trunk_.weights()

    def _estimates(self, volumes: np.ndarray) -> np.ndarray:
        """Return the estimates that the head sees, shape (n, estimates); nan where unknown."""
        if self.trunk_ is None:
            from voxcast.models.families.trunk import VolumeTrunk

            self.trunk_ = VolumeTrunk.of_weights(self.weights)
        columns = self.trunk_.estimates(volumes)
        return np.column_stack([columns[name] for name in self.estimates])

    def _filled(self, x: np.ndarray, estimated: np.ndarray) -> np.ndarray:
        return np.hstack([x, np.where(np.isfinite(estimated), estimated, self.medians_)])


def _checked(volumes: np.ndarray | None, count: int) -> np.ndarray:
    if volumes is None or len(volumes) != count:
        raise ModelError("the network needs one volume per row")
    return volumes
