"""A point model with bounds: quantiles of every target, calibrated on out-of-fold residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.blend import Blend
from voxcast.models.conformal import Calibrator
from voxcast.models.out_of_fold import scaled_residuals
from voxcast.models.point_model import PointModel

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.models.out_of_fold import OutOfFold
    from voxcast.models.point_model import Predictor
    from voxcast.models.query import Query


@dataclass(frozen=True)
class CalibratedModel:
    """A point model with a calibrator per target.

    ``extrapolator`` predicts queries that are out of range; if None, this model predicts them too.
    """

    model: Predictor
    calibrators: dict[str, Calibrator]
    extrapolator: CalibratedModel | None = None

    def quantiles(
        self, queries: Sequence[Query], lower_quantile: float, upper_quantile: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return quantiles in the targets' units, and whether the upper one is calibrated.

        Returns
        -------
        quantiles : ndarray, shape (n, targets, 3)
            Lower, median and upper.
        calibrated : ndarray of bool, shape (n,)
        """
        logs = self.model.predict(queries)
        spread = self.model.spread(queries)
        offsets = np.empty((len(queries), len(self.model.targets), 2))
        calibrated = np.ones(len(queries), dtype=bool)
        apps = np.array([query.app for query in queries], dtype=object)
        for app in dict.fromkeys(apps):
            mask = apps == app
            for k, target in enumerate(self.model.targets):
                calibrator = self.calibrators[target]
                offsets[mask, k] = calibrator.offsets(app, lower_quantile, upper_quantile)
                calibrated[mask] &= calibrator.is_calibrated(app, upper_quantile)
        bounds = logs[:, :, None] + offsets * spread
        return np.exp(np.stack([bounds[:, :, 0], logs, bounds[:, :, 1]], axis=-1)), calibrated

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the models into ``folder`` and return everything else in a JSON-able form."""
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder)
        content: dict[str, Any] = {
            "calibrators": {name: c.to_json() for name, c in self.calibrators.items()}
        }
        if self.extrapolator is not None:
            content["extrapolator"] = self.extrapolator.save(folder / "extrapolator")
        return content

    @classmethod
    def load(cls, content: dict[str, Any], folder: Path) -> CalibratedModel:
        """Read what `save` wrote and returned."""
        calibrators = {name: Calibrator.from_json(c) for name, c in content["calibrators"].items()}
        extrapolator = None
        if "extrapolator" in content:
            extrapolator = cls.load(content["extrapolator"], folder / "extrapolator")
        is_blend = (folder / "blend.json").is_file()
        model = Blend.load(folder) if is_blend else PointModel.load(folder)
        return cls(model, calibrators, extrapolator)


def calibrate(
    model: Predictor,
    table: pd.DataFrame,
    out_of_fold: OutOfFold,
    factor: float,
    censored: Collection[tuple[str, str]] = (),
) -> CalibratedModel:
    """Calibrate a model fitted on ``table`` by out-of-fold predictions.

    Parameters
    ----------
    model : Predictor
        Fitted on all of ``table``.
    table : DataFrame
        Training runs.
    out_of_fold : OutOfFold
        Predictions of the same recipe.
    factor : float
        See `voxcast.models.conformal.Scores.upper`.
    censored : collection of (app, subject)
        Runs that were stopped before they completed; they are not in the table.
    """
    residuals = scaled_residuals(table, out_of_fold, model.targets)
    subjects = table["subject"].tolist()
    apps = table["app"].tolist() if "app" in table else [""] * len(table)
    calibrators = {
        target: Calibrator.fit(residuals[:, k].tolist(), subjects, apps, factor, censored)
        for k, target in enumerate(model.targets)
    }
    return CalibratedModel(model, calibrators)
