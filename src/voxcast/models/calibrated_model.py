"""A point model with bounds: quantiles of every target, calibrated on out-of-fold residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.conformal import Calibrator
from voxcast.models.continuation import UNCERTAIN_POWER, WIDER, Trend, beyond
from voxcast.models.point_model import CPU, WALL, PointModel, log_targets

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.continuation import Beyond
    from voxcast.models.query import Query
    from voxcast.models.speed.speeds import Speeds

Quantiles = tuple[float, float]  # lower and upper
TREND = "trend"

TIMES = (CPU, WALL)  # which the speed of a machine changes; memory it does not


@dataclass(frozen=True)
class CalibratedModel:
    """A point model with a calibrator per target.

    Attributes
    ----------
    trend : Trend or None
        What is continued beyond the range of the training runs, see `voxcast.models.continuation`;
        None to answer as at the edge of the range.
    columns : Columns or None
        Of a table; None for images.
    """

    model: PointModel
    calibrators: dict[str, Calibrator]
    trend: Trend | None = None
    columns: Columns | None = None

    def quantiles(
        self,
        queries: Sequence[Query],
        lower_quantile: float,
        upper_quantile: float,
        out_of_range: Sequence[Collection[str]] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return quantiles in the targets' units, and whether the upper one is calibrated.

        Parameters
        ----------
        out_of_range : sequence, length n
            The features of each query that are out of range, where they are known already.

        Returns
        -------
        quantiles : ndarray, shape (n, targets, 3)
            Lower, median and upper.
        calibrated : ndarray of bool, shape (n,)
        """
        if out_of_range is None:
            out_of_range = self.model.range.outside([query.features for query in queries])
        is_beyond = np.array([bool(names) for names in out_of_range], bool)
        in_range = list(queries)
        moved = None
        if is_beyond.any():
            far = [in_range[n] for n in np.flatnonzero(is_beyond)]
            moved = beyond(self.model, self.trend, far, self.columns)
            for n, edge in zip(np.flatnonzero(is_beyond), moved.edges, strict=True):
                in_range[n] = edge
        logs = np.stack([self.model.predict(in_range)] * 3, axis=-1)
        calibrated = ~is_beyond
        for k, target in enumerate(self.model.targets):
            calibrator = self.calibrators[target]
            at_range = logs[:, k, 1].copy()
            bounds = calibrator.bounds(at_range, lower_quantile, upper_quantile)
            logs[:, k, 0], logs[:, k, 2] = bounds.lower, bounds.upper
            calibrated &= bounds.calibrated
            if moved is not None:
                logs[is_beyond, k] = self._continued(calibrator, logs[is_beyond, k], moved, k)
        calibrated &= self._widen(logs, queries, (lower_quantile, upper_quantile))
        for k, target in enumerate(self.model.targets):
            floor, ceiling = self.calibrators[target].limits(logs[:, k, 1])
            calibrated &= logs[:, k, 2] <= ceiling
            logs[:, k, 0] = np.maximum(logs[:, k, 0], floor)
            logs[:, k, 2] = np.minimum(logs[:, k, 2], ceiling)
        return np.exp(logs), calibrated

    def _continued(
        self, calibrator: Calibrator, at_edge: np.ndarray, moved: Beyond, target: int
    ) -> np.ndarray:
        """Return the quantiles of rows beyond the range from those at its edge, (n, 3)."""
        distances, medians = moved.distances, at_edge[:, 1] + moved.trends[:, target]
        if self.columns is not None:  # of any table no answer is farther outside than labels span
            low, high = calibrator.measured
            medians = np.clip(medians, 2 * low - high, 2 * high - low)
            distances = np.minimum(distances, high - low)
        widths = np.abs(at_edge[:, [0, 2]] - at_edge[:, [1]])
        widths = np.maximum(WIDER * widths, math.log(WIDER))
        widths += (UNCERTAIN_POWER * distances + moved.unknown)[:, None]
        return np.column_stack([medians - widths[:, 0], medians, medians + widths[:, 1]])

    def _widen(
        self, logs: np.ndarray, queries: Sequence[Query], quantiles: Quantiles
    ) -> np.ndarray:
        """Widen the bounds of times by the uncertainty of the machine's speed, in quadrature.

        ``logs`` are changed in place.

        Returns
        -------
        ndarray of bool, shape (n,)
            Whether the machine is known well enough for a calibrated bound.
        """
        speeds = self.model.speeds
        if speeds is None:
            return np.ones(len(queries), dtype=bool)
        estimates = self.model.speed_estimates(queries)
        sd = np.array([estimate.sd for estimate in estimates])
        for k, target in enumerate(self.model.targets):
            if target not in TIMES:
                continue
            median = logs[:, k, 1]
            for side, quantile in zip((0, 2), quantiles, strict=True):
                offset = logs[:, k, side] - median
                unknown = np.array([estimate.deviation(quantile) for estimate in estimates])
                wider = np.sign(side - 1) * np.hypot(offset, unknown)
                logs[:, k, side] = median + np.where(sd > 0, wider, offset)
        return np.array([speeds.knows(query.host, query.sitting) for query in queries], bool)

    def with_speeds(self, speeds: Speeds) -> CalibratedModel:
        """Return the model with other speeds of machines."""
        return replace(self, model=replace(self.model, speeds=speeds))

    def speed(
        self, query: Query, lower_quantile: float, upper_quantile: float
    ) -> tuple[bool, int, tuple[float, float, float]]:
        """Return whether the machine of a query is known, its runs, and quantiles of its speed.

        A speed is a multiple of the reference machine's.
        """
        speeds = self.model.speeds
        if speeds is None:
            return True, 0, (1.0, 1.0, 1.0)
        estimate = speeds.estimate(query.host, query.sitting)
        lower, median, upper = (
            math.exp(estimate.log_speed + estimate.deviation(quantile))
            for quantile in (lower_quantile, 0.5, upper_quantile)
        )
        is_known = speeds.knows(query.host, query.sitting)
        return is_known, speeds.runs(query.host), (lower, median, upper)

    def missing_subjects(self, quantile: float) -> int:
        """Return how many more subjects it takes to calibrate an upper bound; 0 if it is."""
        return max(calibrator.missing(quantile) for calibrator in self.calibrators.values())

    @property
    def measured_subjects(self) -> int:
        """Number of subjects that the bounds are based on."""
        return min(calibrator.subjects for calibrator in self.calibrators.values())

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the models into ``folder`` and return everything else in a JSON-able form."""
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder)
        content: dict[str, Any] = {
            "calibrators": {name: c.to_json() for name, c in self.calibrators.items()}
        }
        if self.trend is not None:
            (folder / TREND).mkdir(exist_ok=True)
            self.trend.model.save(folder / TREND)
            content[TREND] = self.trend.shares
        return content

    @classmethod
    def load(cls, content: dict[str, Any], folder: Path) -> CalibratedModel:
        """Read what `save` wrote and returned; of a table its columns are to be added."""
        calibrators = {name: Calibrator.from_json(c) for name, c in content["calibrators"].items()}
        trend = None
        if TREND in content:
            trend = Trend(PointModel.load(folder / TREND), content[TREND])
        return cls(PointModel.load(folder), calibrators, trend)


def calibrate(
    model: PointModel,
    table: pd.DataFrame,
    log_predictions: np.ndarray,
    factor: float,
    stopped: Collection[str] = (),
) -> CalibratedModel:
    """Calibrate a model fitted on ``table`` by out-of-fold predictions.

    Parameters
    ----------
    model : PointModel
        Fitted on all of ``table``.
    table : DataFrame
        Training runs. A column ``unit``, if there is one, names what gives one score instead of
        the subject.
    log_predictions : ndarray, shape (n_runs, targets)
        Out-of-fold predictions of the same recipe.
    factor : float
        See `voxcast.models.conformal.Calibrator`.
    stopped : collection of str
        Subjects or units with a run that was stopped before it completed.
    """
    logs = log_targets(table, model.targets)
    units = table["unit" if "unit" in table else "subject"].tolist()
    calibrators = {
        target: Calibrator.fit(logs[:, k], log_predictions[:, k], units, factor, stopped)
        for k, target in enumerate(model.targets)
    }
    return CalibratedModel(model, calibrators)
