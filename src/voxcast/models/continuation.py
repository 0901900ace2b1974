"""Answers beyond the range of a table's training rows: the edge of the range, and a trend.

A model that was fitted to logarithms grows exponentially in a feature beyond its range, and a
tree not at all. Here a row is moved to the edge of the range, where the model is asked. The trend
of another model, between there and a point within the range, is continued as a power of the
feature, since sizes and CPUs multiply the work. Whether there is a trend is decided in
`voxcast.models.table_trend`, and how much of it is left at the edge. How far it holds is
not known, so bounds widen with distance.

A row that only combines numbers as no training row does stays where it is, and its bound widens
with the distance to the combinations that occurred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import LOG, PREFIX, exponential, logarithm
from voxcast.models.forecaster import Forecaster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.features.any_table import Columns
    from voxcast.models.conformal import Calibrator
    from voxcast.models.forecaster import Prediction
    from voxcast.models.point_model import PointModel
    from voxcast.models.query import Query

    Ranges = Mapping[str, tuple[float, float]]

SPAN = math.log(10)  # from the edge into the range, over which the trend is measured
STEEPEST = 3.0  # power that is continued; a steeper one is more likely noise
UNCERTAIN_POWER = 0.5  # by which the bound is steeper than the prediction
WIDER = 1.5  # times the width of a bound within the range, and at least this ratio


@dataclass(frozen=True)
class Step:
    """A number beyond its range, with a trend.

    Attributes
    ----------
    column : str
        The number.
    within : Query
        The edge, with this number moved further into the range.
    depth, distance : float
        Logarithms of how far that is from the edge, and of how far the row lies beyond it.
    is_above : bool
        Whether the row lies past the largest value.
    """

    column: str
    within: Query
    depth: float
    distance: float
    is_above: bool


@dataclass(frozen=True)
class Path:
    """The way of a row from the range to where it lies.

    ``edge`` is the row with its numbers moved into the range; ``distance`` is the logarithm of
    how far it lies beyond in all numbers together.
    """

    edge: Query
    steps: tuple[Step, ...]
    distance: float


def continued(
    forecaster: Forecaster, queries: Sequence[Query], columns: Columns, quantile: float
) -> list[Prediction]:
    """Predict the rows of a table; those out of range continue the trend of the extrapolator.

    Without an extrapolator they are answered as at the edge of the range. The first of the three
    quantiles is left as the forecaster gives it.
    """
    model = forecaster.model_at("header")
    inside = Forecaster({"header": replace(model, extrapolator=None)})

    def predict(rows: Sequence[Query]) -> list[Prediction]:
        return inside.predict(rows, lower_quantile=1 - quantile, upper_quantile=quantile)

    predictions = predict(queries)
    beyond = [n for n, prediction in enumerate(predictions) if prediction.out_of_range]
    if not beyond:
        return predictions
    paths = [path_of(queries[n], columns, model.model.range.numbers) for n in beyond]
    trends: list[dict[str, float]] = [{} for _ in beyond]
    if model.extrapolator is not None:
        trends = trends_of(model.extrapolator.model, paths, model.extrapolator.trend_shares)
    at_edges = predict([path.edge for path in paths])
    together = model.model.range.joint_distances([queries[n].features for n in beyond])
    for n, path, trend, at_edge, far in zip(
        beyond, paths, trends, at_edges, together, strict=True
    ):
        distance = path.distance + max(far.values(), default=0.0)  # combinations share columns
        predictions[n] = _beyond(
            predictions[n], at_edge, sum(trend.values()), distance, model.calibrators
        )
    return predictions


def path_of(query: Query, columns: Columns, ranges: Ranges) -> Path:
    """Return the path of a row; within the range it has no steps, and the distance is 0.

    Parameters
    ----------
    ranges : mapping of str to (low, high)
        Ranges of the training rows by feature.
    """
    edges: dict[str, float] = {}
    depths: dict[str, tuple[float, float, float, bool]] = {}
    total = 0.0
    for name in columns.numbers:
        low, high = ranges.get(f"{PREFIX}{name}", (-math.inf, math.inf))
        value = query.features.get(f"{PREFIX}{name}")
        if isinstance(value, str | None) or not (value < low or value > high):  # NaN: missing
            continue
        edges[name] = edge = high if value > high else low
        unit = columns.unit(name)
        if unit == 0 and (edge <= 0 or value <= 0):  # a power law has no trend there
            total += math.log1p(abs(value - edge) / (high - low or abs(edge) or 1.0))
            continue
        at_edge, at_value = logarithm(edge, unit), logarithm(value, unit)
        at_other = logarithm(low if value > high else high, unit)  # -inf where it is not above 0
        depth = min(SPAN, abs(at_edge - at_other) / 2)
        distance = abs(at_value - at_edge)
        total += distance
        if depth > 0 and distance > 0:
            within = exponential(at_edge + math.copysign(depth, at_edge - at_value), unit)
            depths[name] = within, depth, distance, value > high
    edge_query = _moved(query, edges, columns, ranges)
    steps = tuple(
        Step(name, _moved(edge_query, {name: within}, columns, ranges), depth, distance, is_above)
        for name, (within, depth, distance, is_above) in depths.items()
    )
    return Path(edge_query, steps, total)


def trends_of(
    model: PointModel, paths: Sequence[Path], shares: Mapping[str, float] | None = None
) -> list[dict[str, float]]:
    """Return by how much a model's logarithm changes from each edge to its row, by column.

    Parameters
    ----------
    shares : mapping of str to float, optional
        Of the trend past the largest value of a column, how much is continued; by default all.
    """
    probes = [probe for path in paths for probe in (path.edge, *(s.within for s in path.steps))]
    logs = iter(model.predict(probes)[:, 0].tolist())
    trends = []
    for path in paths:
        at_edge = next(logs)
        trend = {}
        for step in path.steps:
            power = (at_edge - next(logs)) / step.depth
            share = (shares or {}).get(step.column, 1.0) if step.is_above else 1.0
            trend[step.column] = share * min(max(power, -STEEPEST), STEEPEST) * step.distance
        trends.append(trend)
    return trends


def _moved(query: Query, values: Mapping[str, float], columns: Columns, ranges: Ranges) -> Query:
    """Return a query with other numbers, and with their logarithms."""
    features = dict(query.features)
    for name, value in values.items():
        features[f"{PREFIX}{name}"] = value
        feature, unit = f"{LOG}{name}", columns.unit(name)
        if name in columns.logs and (unit or value > 0):
            limits = ranges.get(feature, (-math.inf, math.inf))
            features[feature] = float(np.clip(logarithm(value, unit), *limits))
    return replace(query, features=features)


def _beyond(
    prediction: Prediction,
    at_edge: Prediction,
    trend: float,
    distance: float,
    calibrators: Mapping[str, Calibrator],
) -> Prediction:
    """Return the prediction with the quantiles of its edge, moved by the trend.

    No answer is farther outside the labels than they span.
    """
    quantiles = {}
    for target, (lower, median, upper) in at_edge.quantiles.items():
        low, high = calibrators[target].measured
        span = high - low
        log = min(max(math.log(median) + trend, low - span), high + span)
        width = max(WIDER * math.log(upper / median), math.log(WIDER))
        width += UNCERTAIN_POWER * min(distance, span)
        quantiles[target] = (
            math.exp(log + math.log(lower / median)), math.exp(log), math.exp(log + width),
        )  # fmt: skip
    return replace(prediction, quantiles=quantiles, calibrated=False)
