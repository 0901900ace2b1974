"""A point model with bounds: quantiles of every target, calibrated on out-of-fold residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.conformal import Calibrator
from voxcast.models.distance import distances
from voxcast.models.point_model import CPU, WALL, PointModel, log_targets
from voxcast.models.side import Side, margins

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.models.query import Query
    from voxcast.models.speed.speeds import Speeds

Quantiles = tuple[float, float]  # lower and upper

TIMES = (CPU, WALL)  # which the speed of a machine changes; memory it does not


@dataclass(frozen=True)
class CalibratedModel:
    """A point model with a calibrator per target.

    ``extrapolator`` predicts queries that are out of range; if None, this model predicts them too.
    An extrapolator has ``sides``, by name: a query past an end of the range gets the widest of
    their bounds and of its own. Of tables it has ``trend_shares``: by column, how much of its
    trend is continued, see `voxcast.models.trend_bend`; 1 where a column lacks.
    """

    model: PointModel
    calibrators: dict[str, Calibrator]
    extrapolator: CalibratedModel | None = None
    sides: dict[str, Side] | None = None
    trend_shares: dict[str, float] | None = None

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
        logs = np.stack([self.model.predict(queries)] * 3, axis=-1)
        medians = logs[:, :, 1]
        limits = np.stack([medians, medians], axis=-1)
        calibrated = np.ones(len(queries), dtype=bool)
        for rows, calibrators, widths, extra in self._layers(queries):
            for k, target in enumerate(self.model.targets):
                calibrator, median = calibrators[target], medians[rows, k]
                bounds = calibrator.bounds(
                    median, lower_quantile, upper_quantile, widths[:, k], extra
                )
                logs[rows, k, 0] = np.minimum(logs[rows, k, 0], bounds.lower)
                logs[rows, k, 2] = np.maximum(logs[rows, k, 2], bounds.upper)
                calibrated[rows] &= bounds.calibrated
                floor, ceiling = calibrator.limits(median)
                limits[rows, k, 0] = np.minimum(limits[rows, k, 0], floor)
                limits[rows, k, 1] = np.maximum(limits[rows, k, 1], ceiling)
        calibrated &= self._widen(logs, queries, (lower_quantile, upper_quantile))
        calibrated &= (logs[:, :, 2] <= limits[:, :, 1]).all(axis=1)
        logs[:, :, 0] = np.maximum(logs[:, :, 0], limits[:, :, 0])
        logs[:, :, 2] = np.minimum(logs[:, :, 2], limits[:, :, 1])
        return np.exp(logs), calibrated

    def _layers(
        self, queries: Sequence[Query]
    ) -> Iterator[tuple[np.ndarray, dict[str, Calibrator], np.ndarray, np.ndarray]]:
        """Yield positions, calibrators, widths (n, targets) and margins (n,) of bounds.

        The widest bounds of a query hold.
        """
        positions, targets = np.arange(len(queries)), self.model.targets
        same = np.ones((len(queries), len(targets)))
        if self.sides is None:
            yield positions, self.calibrators, same, np.zeros(len(queries))
            return
        far = distances(self.model, queries)
        extra = margins(far, self.sides)
        yield positions, self.calibrators, same, extra
        for name, side in self.sides.items():
            past = np.array([n for n in positions if name in far[n].by_side], dtype=int)
            lengths = np.array([far[n].by_side[name] for n in past])
            if len(past):
                yield past, side.calibrators, side.widths(lengths, targets), extra[past]

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
        extrapolator = self.extrapolator and self.extrapolator.with_speeds(speeds)
        return replace(self, model=replace(self.model, speeds=speeds), extrapolator=extrapolator)

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
        if self.sides is not None:
            content["sides"] = {name: side.to_json() for name, side in self.sides.items()}
        if self.trend_shares:
            content["trend_shares"] = self.trend_shares
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
        sides = None
        if "sides" in content:
            sides = {name: Side.from_json(side) for name, side in content["sides"].items()}
        model = PointModel.load(folder)
        return cls(model, calibrators, extrapolator, sides, content.get("trend_shares"))


def calibrate(
    model: PointModel,
    table: pd.DataFrame,
    log_predictions: np.ndarray,
    factor: float,
    stopped: Collection[str] = (),
    *,
    widths: np.ndarray | None = None,
    either_sign: bool = False,
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
    widths : ndarray, shape (n_runs, targets), optional
        See `voxcast.models.conformal.Calibrator.fit`.
    either_sign : bool
        See `voxcast.models.conformal.Calibrator.fit`.
    """
    logs = log_targets(table, model.targets)
    units = table["unit" if "unit" in table else "subject"].tolist()
    calibrators = {
        target: Calibrator.fit(
            logs[:, k], log_predictions[:, k], units, factor, stopped,
            widths=1.0 if widths is None else widths[:, k], either_sign=either_sign,
        )
        for k, target in enumerate(model.targets)
    }  # fmt: skip
    return CalibratedModel(model, calibrators)
