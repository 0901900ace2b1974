"""What is registered: a point model with its calibration, for each input level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.rows import CONTENT
from voxcast.files import read_json, write_json
from voxcast.models.conformal import Calibrator
from voxcast.models.point_model import InputLevel, PointModel, actual_logs
from voxcast.models.selection.blends import Blend

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row
    from voxcast.models.selection.cross_validation import OutOfFold


@dataclass(frozen=True)
class Prediction:
    """The distribution of one run to be, as three quantiles per target.

    Attributes
    ----------
    quantiles : dict of str to tuple of float
        Lower, median and upper of each target in its own unit.
    input_level : {"header", "volume"}
        What was known of the volume.
    family : str
        Which family answered.
    calibrated : bool
        Whether the history holds subjects enough to promise the upper bound, for a run like those
        that were measured.
    out_of_range : tuple of str
        Features in which this run is unlike all that were measured; the answer extrapolates.
    """

    quantiles: dict[str, tuple[float, float, float]]
    input_level: InputLevel
    family: str
    calibrated: bool
    out_of_range: tuple[str, ...]


@dataclass(frozen=True)
class CalibratedModel:
    """A point model with a calibrator per target.

    ``extrapolator`` answers runs that are out of range; with None this model answers them too.
    """

    model: PointModel | Blend
    calibrators: dict[str, Calibrator]
    extrapolator: CalibratedModel | None = None

    def quantiles(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: np.ndarray | None,
        host_classes: Sequence[str | None],
        lower_quantile: float,
        upper_quantile: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return quantiles in the targets' units, and whether the upper one is calibrated.

        Returns
        -------
        quantiles : ndarray, shape (n, targets, 3)
        promised : ndarray of bool, shape (n,)
        """
        logs = self.model.predict(rows, cpus, volumes, host_classes)
        spread = self.model.spread(rows, volumes)
        offsets = np.empty((len(rows), len(self.model.targets), 2))
        promised = np.ones(len(rows), dtype=bool)
        apps = np.array([str(row.get("app", "")) for row in rows], dtype=object)
        for app in dict.fromkeys(apps):
            at = apps == app
            for k, target in enumerate(self.model.targets):
                calibrator = self.calibrators[target]
                offsets[at, k] = calibrator.offsets(app, lower_quantile, upper_quantile)
                promised[at] &= calibrator.promises(app, upper_quantile)
        bounds = logs[:, :, None] + offsets * spread
        found = np.exp(np.stack([bounds[:, :, 0], logs, bounds[:, :, 1]], axis=-1))
        return found, promised


@dataclass(frozen=True)
class Forecaster:
    """Predicts quantiles from rows; with the header alone it knows less and says wider bounds."""

    models_by_input_level: dict[InputLevel, CalibratedModel]

    @property
    def family(self) -> str:
        """The family that answers when the voxels are known."""
        return self._best.model.family

    @property
    def _best(self) -> CalibratedModel:
        return self.models_by_input_level[
            "volume" if "volume" in self.models_by_input_level else "header"
        ]

    def predict(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: Sequence[np.ndarray | None],
        *,
        lower_quantile: float = 0.05,
        upper_quantile: float = 0.95,
        host_classes: Sequence[str | None] | None = None,
    ) -> list[Prediction]:
        """Predict each row at the best input level that what is known of it allows.

        Parameters
        ----------
        rows : sequence of Row
            Features; with ``content.`` features when the voxels are known.
        cpus : sequence of int
            CPUs of each row.
        volumes : sequence of ndarray or None
            Small volume of each row, None where there is none.
        lower_quantile, upper_quantile : float
            Probabilities of the outer quantiles, 0 < lower < 0.5 < upper < 1.
        """
        if not 0 < lower_quantile < 0.5 < upper_quantile < 1:
            raise ModelError(
                f"quantiles must satisfy 0 < {lower_quantile} < 0.5 < {upper_quantile} < 1"
            )
        hosts = list(host_classes) if host_classes is not None else [None] * len(rows)
        predictions: dict[int, Prediction] = {}
        chosen = [
            self._input_level(row, volume) for row, volume in zip(rows, volumes, strict=True)
        ]
        for input_level, calibrated in self.models_by_input_level.items():
            at = [n for n, other in enumerate(chosen) if other == input_level]
            unlike = dict(
                zip(at, calibrated.model.out_of_range([rows[n] for n in at]), strict=True)
            )
            inside = [n for n in at if not unlike[n] or calibrated.extrapolator is None]
            outside = sorted(set(at) - set(inside))
            for own, whose in ((inside, calibrated), (outside, calibrated.extrapolator)):
                if not own or whose is None:
                    continue
                cubes = None
                if whose.model.needs_volume:
                    cubes = np.stack([v for n in own if (v := volumes[n]) is not None])
                asked = [rows[n] for n in own]
                quantiles, promised = whose.quantiles(
                    asked,
                    [cpus[n] for n in own],
                    cubes,
                    [hosts[n] for n in own],
                    lower_quantile,
                    upper_quantile,
                )
                for n, of_row, kept in zip(own, quantiles.tolist(), promised, strict=True):
                    predictions[n] = Prediction(
                        dict(zip(whose.model.targets, map(tuple, of_row), strict=True)),
                        input_level,
                        whose.model.family,
                        bool(kept) and not unlike[n],
                        unlike[n],
                    )
        return [predictions[n] for n in range(len(rows))]

    def usual(self, row: Row, volume: np.ndarray | None) -> dict[str, float]:
        """Return the medians of training, at the input level at which a row is answered."""
        return self.models_by_input_level[self._input_level(row, volume)].model.usual(row)

    def _input_level(self, row: Row, volume: np.ndarray | None) -> InputLevel:
        known = any(name.startswith(CONTENT) for name in row)
        whole = self.models_by_input_level.get("volume")
        if whole is not None and known and (volume is not None or not whole.model.needs_volume):
            return "volume"
        return "header" if "header" in self.models_by_input_level else "volume"

    def save(self, folder: Path) -> None:
        """Write all levels into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {}
        for input_level, calibrated in self.models_by_input_level.items():
            content[input_level] = _save_calibrated(calibrated, folder / input_level)
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
                input_level: _load_calibrated(own, folder / input_level)
                for input_level, own in content.items()
            }
        )


def _save_calibrated(calibrated: CalibratedModel, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    calibrated.model.save(folder)
    content: dict[str, Any] = {
        "calibrators": {t: c.to_json() for t, c in calibrated.calibrators.items()}
    }
    if calibrated.extrapolator is not None:
        content["extrapolator"] = _save_calibrated(
            calibrated.extrapolator, folder / "extrapolator"
        )
    return content


def _load_calibrated(content: dict[str, Any], folder: Path) -> CalibratedModel:
    own = {t: Calibrator.from_json(c) for t, c in content["calibrators"].items()}
    extrapolator = (
        _load_calibrated(content["extrapolator"], folder / "extrapolator")
        if "extrapolator" in content
        else None
    )
    return CalibratedModel(_load_model(folder), own, extrapolator)


def calibrate(
    model: PointModel | Blend,
    table: pd.DataFrame,
    out_of_fold: OutOfFold,
    factor: float,
    censored: Collection[tuple[str, str]] = (),
) -> CalibratedModel:
    """Join a model fitted on ``table`` with calibrators from its out-of-fold predictions.

    Parameters
    ----------
    model : PointModel
        Fitted on all of ``table``.
    table : DataFrame
        Training runs.
    out_of_fold : OutOfFold
        Of each run by a model that saw nothing of its subject.
    factor : float
        See `Calibrator`.
    censored : collection of (app, subject)
        Runs that were ended before they were done, which are not in the table.
    """
    scaled = scaled_residuals(table, out_of_fold, model.targets)
    subjects = table["subject"].tolist()
    apps = table["app"].tolist() if "app" in table else [""] * len(table)
    return CalibratedModel(
        model,
        {
            target: Calibrator.fit(scaled[:, k].tolist(), subjects, apps, factor, censored)
            for k, target in enumerate(model.targets)
        },
    )


def scaled_residuals(
    table: pd.DataFrame, out_of_fold: OutOfFold, targets: Sequence[str]
) -> np.ndarray:
    """Return measured less predicted logarithms, shape (n_runs, targets).

    They are in units of what each answer says of its own uncertainty, on the side it erred to.
    """
    residuals = actual_logs(table, targets) - out_of_fold.logs
    down, up = out_of_fold.spread[..., 0], out_of_fold.spread[..., 1]
    found: np.ndarray = np.where(residuals > 0, residuals / up, residuals / down)
    return found


def _load_model(folder: Path) -> PointModel | Blend:
    return Blend.load(folder) if (folder / "blend.json").is_file() else PointModel.load(folder)
