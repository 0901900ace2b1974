"""Answers beyond the range of a table's training rows: the trend at the edge as a power law.

A model that was fitted to logarithms grows exponentially in a feature beyond its range, and a
tree not at all. Here a row is moved to the edge of the range, where the model is asked, and the
trend between there and a point within the range is continued: as a power of the feature, since
sizes and CPUs multiply the work. How far that holds is not known, so bounds widen with distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import LOG, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.features.any_table import Columns
    from voxcast.models.conformal import Calibrator
    from voxcast.models.forecaster import Forecaster, Prediction
    from voxcast.models.query import Query

SPAN = 10.0  # times the edge, within which the trend is measured
STEEPEST = 3.0  # power that is continued; a steeper one is more likely noise
UNCERTAIN_POWER = 0.5  # by which the bound is steeper than the prediction
WIDER = 1.5  # times the width of a bound within the range, and at least this ratio
FARTHEST = 1000.0  # times the largest label, or one part in so many of the smallest


@dataclass(frozen=True)
class _Excess:
    """A number outside its range: the edge, a point within, and the logarithm of the distance."""

    edge: float
    inner: float
    distance: float  # with the sign of the direction; 0 where a power law is not defined
    unsigned: float


def continued(
    forecaster: Forecaster, queries: Sequence[Query], columns: Columns, quantile: float
) -> list[Prediction]:
    """Predict the rows of a table; those out of range continue the trend of the model.

    The first of the three quantiles is left as the forecaster gives it.
    """

    def predict(rows: Sequence[Query]) -> list[Prediction]:
        return forecaster.predict(rows, lower_quantile=1 - quantile, upper_quantile=quantile)

    predictions = predict(queries)
    beyond = [n for n, prediction in enumerate(predictions) if prediction.out_of_range]
    if not beyond:
        return predictions
    model = forecaster.model_at("header")
    ranges = model.model.ranges(queries[beyond[0]])
    excesses = [_excesses(queries[n], columns, ranges) for n in beyond]
    probes: list[Query] = []
    for n, by_name in zip(beyond, excesses, strict=True):
        edge = _moved(queries[n], {name: e.edge for name, e in by_name.items()}, columns, ranges)
        probes.append(edge)
        probes += [_moved(edge, {name: e.inner}, columns, ranges) for name, e in by_name.items()]
    answers = iter(predict(probes))
    for n, by_name in zip(beyond, excesses, strict=True):
        at_edge = next(answers)
        trend = sum(_trend(at_edge, next(answers), excess) for excess in by_name.values())
        distance = sum(excess.unsigned for excess in by_name.values())
        predictions[n] = _beyond(predictions[n], at_edge, trend, distance, model.calibrators)
    return predictions


def _excesses(
    query: Query, columns: Columns, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, _Excess]:
    excesses = {}
    for name in columns.numbers:
        low, high = ranges.get(f"{PREFIX}{name}", (-math.inf, math.inf))
        value = query.features.get(f"{PREFIX}{name}")
        if not isinstance(value, str | None) and (value < low or value > high):
            excesses[name] = _excess(float(value), low, high)
    return excesses


def _excess(value: float, low: float, high: float) -> _Excess:
    edge = high if value > high else low
    if edge <= 0 or value <= 0:  # a power law has no trend there: the value at the edge is held
        unsigned = math.log1p(abs(value - edge) / (high - low or abs(edge) or 1.0))
        return _Excess(edge, edge, 0.0, unsigned)
    middle = math.sqrt(low * high) if low > 0 else 0.0
    inner = max(middle, high / SPAN) if value > high else min(middle, low * SPAN)
    distance = math.log(value / edge)
    return _Excess(edge, inner, distance, abs(distance))


def _moved(
    query: Query,
    values: Mapping[str, float],
    columns: Columns,
    ranges: Mapping[str, tuple[float, float]],
) -> Query:
    """Return a query with other numbers, and with their logarithms."""
    features = dict(query.features)
    for name, value in values.items():
        features[f"{PREFIX}{name}"] = value
        if name in columns.logs and value > 0:
            limits = ranges.get(f"{LOG}{name}", (-math.inf, math.inf))
            features[f"{LOG}{name}"] = float(np.clip(math.log(value), *limits))
    return replace(query, features=features)


def _trend(at_edge: Prediction, within: Prediction, excess: _Excess) -> float:
    """Return by how much the logarithm of the prediction changes from the edge to the row."""
    if excess.edge == excess.inner or not excess.distance:
        return 0.0
    (edge,), (inner,) = (
        [math.log(values[1]) for values in prediction.quantiles.values()]
        for prediction in (at_edge, within)
    )
    power = (edge - inner) / math.log(excess.edge / excess.inner)
    return min(max(power, -STEEPEST), STEEPEST) * excess.distance


def _beyond(
    prediction: Prediction,
    at_edge: Prediction,
    trend: float,
    distance: float,
    calibrators: Mapping[str, Calibrator],
) -> Prediction:
    quantiles = {}
    for target, (lower, median, upper) in at_edge.quantiles.items():
        measured = [scores.measured for scores in calibrators[target].by_app.values()]
        log = math.log(median) + trend
        log = max(log, min(low for low, _ in measured) - math.log(FARTHEST))
        log = min(log, max(high for _, high in measured) + math.log(FARTHEST))
        width = max(WIDER * math.log(upper / median), math.log(WIDER))
        width = min(width + UNCERTAIN_POWER * distance, math.log(FARTHEST))
        quantiles[target] = (
            math.exp(log + math.log(lower / median)), math.exp(log), math.exp(log + width),
        )  # fmt: skip
    return replace(prediction, quantiles=quantiles, calibrated=False)
