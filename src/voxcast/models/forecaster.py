"""What is registered: a point model with its calibration, for each level of what is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.rows import CONTENT
from voxcast.files import read_json, write_json
from voxcast.models.conformal import Calibrator
from voxcast.models.point_model import LEVELS, Level, PointModel, actual_logs
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row


@dataclass(frozen=True)
class Prediction:
    """The distribution of one run to be, as three quantiles per target.

    Attributes
    ----------
    quantiles : dict of str to tuple of float
        Lower, median and upper of each target in its own unit.
    level : {"header", "volume"}
        What was known of the volume.
    family : str
        Which family answered.
    calibrated : bool
        Whether the history holds subjects enough to promise the upper bound, for a run like those
        that were measured.
    beyond : tuple of str
        Features in which this run is unlike all that were measured; the answer extrapolates.
    """

    quantiles: dict[str, tuple[float, float, float]]
    level: Level
    family: str
    calibrated: bool
    beyond: tuple[str, ...]


@dataclass(frozen=True)
class Tier:
    """One level: its point model and a calibrator per target."""

    model: PointModel
    calibrators: dict[str, Calibrator]


@dataclass(frozen=True)
class Forecaster:
    """Predicts quantiles from rows; with the header alone it knows less and says wider bounds."""

    tiers: dict[Level, Tier]

    @property
    def family(self) -> str:
        """The family that answers when the voxels are known."""
        return self.tiers["volume"].model.family

    def predict(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: Sequence[np.ndarray | None],
        *,
        lower: float = 0.05,
        upper: float = 0.95,
        host_classes: Sequence[str | None] | None = None,
    ) -> list[Prediction]:
        """Predict each row at the best level that what is known of it allows.

        Parameters
        ----------
        rows : sequence of Row
            Features; with ``content.`` features when the voxels are known.
        cpus : sequence of int
            CPUs of each row.
        volumes : sequence of ndarray or None
            Small volume of each row, None where there is none.
        lower, upper : float
            Levels of the outer quantiles, 0 < lower < 0.5 < upper < 1.
        """
        if not 0 < lower < 0.5 < upper < 1:
            raise ModelError(f"quantiles must satisfy 0 < {lower} < 0.5 < {upper} < 1")
        hosts = list(host_classes) if host_classes is not None else [None] * len(rows)
        predictions: dict[int, Prediction] = {}
        chosen = [self._level(row, volume) for row, volume in zip(rows, volumes, strict=True)]
        for level in LEVELS:
            at = [n for n, other in enumerate(chosen) if other == level]
            if not at:
                continue
            tier = self.tiers[level]
            cubes = np.stack([v for n in at if (v := volumes[n]) is not None]) if (
                tier.model.needs_volume
            ) else None  # fmt: skip
            logs = tier.model.predict(
                [rows[n] for n in at], [cpus[n] for n in at], cubes, [hosts[n] for n in at]
            )
            for n, of_row in zip(at, logs, strict=True):
                predictions[n] = _prediction(tier, level, rows[n], of_row, lower, upper)
        return [predictions[n] for n in range(len(rows))]

    def _level(self, row: Row, volume: np.ndarray | None) -> Level:
        known = any(name.startswith(CONTENT) for name in row)
        if known and (volume is not None or not self.tiers["volume"].model.needs_volume):
            return "volume"
        return "header"

    def save(self, folder: Path) -> None:
        """Write all levels into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {}
        for level, tier in self.tiers.items():
            tier.model.save(folder / level)
            content[level] = {t: c.to_json() for t, c in tier.calibrators.items()}
        write_json(folder / "forecaster.json", content)

    @classmethod
    def load(cls, folder: Path) -> Forecaster:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If there is no model in ``folder``.
        """
        if not (folder / "forecaster.json").is_file():
            raise ModelError("holds no model", folder, "train one with `make repro`")
        content = read_json(folder / "forecaster.json")
        return cls(
            {
                level: Tier(
                    PointModel.load(folder / level),
                    {t: Calibrator.from_json(c) for t, c in content[level].items()},
                )
                for level in LEVELS
            }
        )


def _prediction(
    tier: Tier, level: Level, row: Row, logs: np.ndarray, lower: float, upper: float
) -> Prediction:
    app = str(row["app"])
    quantiles = {}
    for target, log in zip(TARGETS, logs, strict=True):
        low, high = tier.calibrators[target].offsets(app, lower, upper)
        quantiles[target] = (
            float(np.exp(log + low)), float(np.exp(log)), float(np.exp(log + high))
        )  # fmt: skip
    beyond = tuple(tier.model.beyond(row))
    promised = all(c.promises(app, upper) for c in tier.calibrators.values())
    return Prediction(quantiles, level, tier.model.family, promised and not beyond, beyond)


def calibrate(
    model: PointModel, table: pd.DataFrame, out_of_fold: np.ndarray, factor: float
) -> Tier:
    """Join a model fitted on ``table`` with calibrators from its out-of-fold predictions.

    Parameters
    ----------
    model : PointModel
        Fitted on all of ``table``.
    table : DataFrame
        Training runs.
    out_of_fold : ndarray, shape (n_runs, 3)
        Predicted logarithms of each run by a model that saw nothing of its subject.
    factor : float
        See `Calibrator`.
    """
    residuals = actual_logs(table) - out_of_fold
    subjects, apps = table["subject"].tolist(), table["app"].tolist()
    return Tier(
        model,
        {
            target: Calibrator.fit(residuals[:, k].tolist(), subjects, apps, factor)
            for k, target in enumerate(TARGETS)
        },
    )
