"""The network as a regressor: sizes estimated from the small volume, and a closed form.

The trunk estimates from the small volume, as learned on generated ones, see
`voxcast.models.families.trunk`. The estimates have the names of characteristics of the contents,
so the head is an estimator of another family; it learns from header and estimates, on the runs.
So few runs are needed, and a fit takes no longer than fitting the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.models.families import regressors
from voxcast.models.families.regressors import Scale, TabularRegressor
from voxcast.models.model_files import read_arrays, read_sealed, write_arrays, write_sealed

if TYPE_CHECKING:
    import optuna

    from voxcast.models.families.trunk import VolumeTrunk

DEFAULTS = {"head": "ridge", "alpha": 0.1, "length": 3.0, "noise": 0.05}
# The estimates that the head sees, by its scale.
ESTIMATES = {
    "relative": ("content.foreground_megavoxels",),
    "log": ("content.log_foreground_voxels", "content.foreground_megavoxels"),
}
TRUNK_FOLDER, HEAD_FOLDER = "trunk", "head"
WEIGHTS_FILE, FACTS_FILE, HASH = "trunk.npz", "trunk.json", "weights_sha256"


def suggest(trial: optuna.Trial) -> dict[str, Any]:
    """Draw the parameters of a network's head."""
    return {
        "head": trial.suggest_categorical("head", ["ridge", "gaussian_process"]),
        "alpha": trial.suggest_float("alpha", 1e-2, 1e2, log=True),
        "length": trial.suggest_float("length", 0.5, 20.0, log=True),
        "noise": trial.suggest_float("noise", 1e-3, 0.5, log=True),
    }


def scale_of(params: dict[str, Any]) -> Scale:
    """Return the scale on which the head is fitted: sizes add, for a ridge."""
    return "relative" if params["head"] == "ridge" else "log"


def network_regressor(
    params: dict[str, Any], seed: int, columns: Sequence[str]
) -> VolumeRegressor:
    """Return an unfitted network with its head."""
    scale = scale_of(params)
    names = [*columns, *ESTIMATES[scale]]
    process = {"length": params["length"], "noise": params["noise"], "linear": True}

    def build() -> Any:
        if scale == "relative":
            return regressors.ridge(params, seed, names)
        return regressors.gaussian_process(process, seed, names)

    head = TabularRegressor(build, scale, "ridge__sample_weight")
    return VolumeRegressor(head, ESTIMATES[scale])


class VolumeRegressor:
    """The trunk and a tabular head, with the interface of `TabularRegressor`.

    Parameters
    ----------
    head : TabularRegressor
        Learns from the columns and the estimates.
    estimates : tuple of str
        Features of the contents that the head sees, as their estimates.
    weights : mapping of str to ndarray, optional
        Of a trunk that was read; by default the package's.
    """

    def __init__(
        self,
        head: TabularRegressor,
        estimates: tuple[str, ...],
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.head = head
        self.estimates = estimates
        self.weights = weights
        self.trunk_: VolumeTrunk | None = None

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> VolumeRegressor:
        """Learn logarithms ``y``, shape (n, outputs), from columns and small volumes (n,).

        Runs whose volume is unknown do not train; if all are, the estimates are constant.
        """
        estimated = self._estimates(volumes, len(x))
        train = np.isfinite(estimated).all(axis=1)
        if not train.any():
            train[:] = True
        self.medians_ = np.nan_to_num(np.median(estimated[train], axis=0))
        self.head.fit(self._filled(x[train], estimated[train]), y[train], None)
        return self

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms, shape (n, outputs)."""
        return self.head.predict(self._filled(x, self._estimates(volumes, len(x))), None)

    def save(self, folder: Path) -> None:
        """Write the head, and the trunk that it was fitted with."""
        (folder / HEAD_FOLDER).mkdir(parents=True, exist_ok=True)
        self.head.save(folder / HEAD_FOLDER)
        facts = {"estimates": list(self.estimates), "medians": self.medians_.tolist()}
        weights = self.weights if self.trunk_ is None else self.trunk_.weights()
        write_trunk(folder / TRUNK_FOLDER, weights or {}, facts)

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
        head = TabularRegressor.load(folder / HEAD_FOLDER)
        try:
            regressor = cls(head, tuple(facts["estimates"]), weights)
            regressor.medians_ = np.array(facts["medians"], dtype=float)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"not a network: {error!r}", folder / TRUNK_FOLDER) from None
        return regressor

    def _estimates(self, volumes: np.ndarray | None, count: int) -> np.ndarray:
        """Return the estimates that the head sees, shape (n, estimates); nan where unknown."""
        if volumes is None or len(volumes) != count:
            raise ModelError("the network needs one volume per row")
        if self.trunk_ is None:
            from voxcast.models.families.trunk import VolumeTrunk, pretrained

            weights = self.weights
            self.trunk_ = pretrained() if weights is None else VolumeTrunk.of_weights(weights)
        columns = self.trunk_.estimates(volumes)
        return np.column_stack([columns[name] for name in self.estimates])

    def _filled(self, x: np.ndarray, estimated: np.ndarray) -> np.ndarray:
        return np.hstack([x, np.where(np.isfinite(estimated), estimated, self.medians_)])


def write_trunk(folder: Path, weights: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write ``trunk.npz``, and ``trunk.json`` with its hash and where it comes from."""
    folder.mkdir(parents=True, exist_ok=True)
    sha256 = write_arrays(folder / WEIGHTS_FILE, weights)
    write_sealed(folder / FACTS_FILE, {**facts, HASH: sha256})


def read_trunk(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the weights and the facts that `write_trunk` wrote; nothing is unpickled.

    Raises
    ------
    ModelError
        If a file is missing, damaged or of something else.
    """
    facts = read_sealed(folder / FACTS_FILE)
    if HASH not in facts:
        raise ModelError("not a trunk", folder / FACTS_FILE)
    return read_arrays(folder / WEIGHTS_FILE, facts[HASH]), facts
