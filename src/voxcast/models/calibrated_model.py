"""A point model with bounds: quantiles of every target, calibrated on out-of-fold residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.blend import Blend
from voxcast.models.conformal import Calibrator
from voxcast.models.point_model import PointModel, log_targets

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
        medians, spread = self.model.predict(queries), self.model.spread(queries)
        logs = np.stack([medians] * 3, axis=-1)
        calibrated = np.ones(len(queries), dtype=bool)
        apps = np.array([query.app for query in queries], dtype=object)
        for app in dict.fromkeys(apps):
            rows = np.flatnonzero(apps == app)
            for k, target in enumerate(self.model.targets):
                bounds = self.calibrators[target].bounds(
                    app, medians[rows, k], spread[rows, k], lower_quantile, upper_quantile
                )
                logs[rows, k, 0], logs[rows, k, 2] = bounds.lower, bounds.upper
                calibrated[rows] &= bounds.calibrated
        return np.exp(logs), calibrated

    def missing_subjects(self, query: Query, quantile: float) -> int:
        """Return how many more subjects it takes to calibrate an upper bound; 0 if it is."""
        calibrators = self.calibrators.values()
        return max(calibrator.missing(query.app, quantile) for calibrator in calibrators)

    def measured_subjects(self, query: Query) -> int:
        """Return the number of subjects that the bounds are based on."""
        return min(calibrator.subjects(query.app) for calibrator in self.calibrators.values())

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
    censored: Collection[tuple[str, ...]] = (),
) -> CalibratedModel:
    """Calibrate a model fitted on ``table`` by out-of-fold predictions.

    Parameters
    ----------
    model : Predictor
        Fitted on all of ``table``.
    table : DataFrame
        Training runs. A column ``unit``, if there is one, names what gives one score instead of
        the subject.
    out_of_fold : OutOfFold
        Predictions of the same recipe.
    factor : float
        See `voxcast.models.conformal.Scores.upper`.
    censored : collection of (app, subject) or (app, subject, unit)
        Runs that were stopped before they completed; they are not in the table.
    """
    logs, predictions = log_targets(table, model.targets), out_of_fold.log_predictions
    units = table["unit" if "unit" in table else "subject"].tolist()
    censored_units = {(run[0], run[-1]) for run in censored}
    apps = table["app"].tolist() if "app" in table else [""] * len(table)
    calibrators = {
        target: Calibrator.fit(
            logs[:, k], predictions[:, k], out_of_fold.spread[:, k], units, apps, factor,
            censored_units,
        )
        for k, target in enumerate(model.targets)
    }  # fmt: skip
    return CalibratedModel(model, calibrators)
