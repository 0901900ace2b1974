"""Answers beyond the range of the training rows: the edge of the range, and a trend.

A model that was fitted to logarithms grows exponentially in a feature beyond its range, and a
tree not at all. Here a row is moved to the edge of the range, where the model is asked. The trend
of another model is continued from there; which one is decided in `voxcast.models.trend`. How far
it holds is not known, so bounds widen with distance, and are never called calibrated.

Of an image, the trend is the difference of that model's predictions at the image and at the edge:
its laws are sums of sizes, and such laws hold beyond the sizes that were measured. Of any table
the trend between the edge and a point within the range is continued as a power of the feature,
since sizes and CPUs multiply the work.

A row that only combines numbers as no training row does stays where it is, and its bound widens
with the distance to the combinations that occurred. Of a feature that never varied nothing was
learned: work is taken to change with at most `STEEPEST` powers of it, and with the number of CPUs
in proportion at most. Of a category that never occurred nothing is known at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import LOG, PREFIX, exponential, logarithm
from voxcast.features.rows import members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from voxcast.features.any_table import Columns
    from voxcast.models.families.training_range import TrainingRange
    from voxcast.models.point_model import PointModel
    from voxcast.models.query import Query

    Ranges = Mapping[str, tuple[float, float]]

SPAN = math.log(10)  # from the edge into the range, over which the trend is measured
STEEPEST = 3.0  # power that is continued; a steeper one is more likely noise
UNCERTAIN_POWER = 0.5  # by which the bound is steeper than the prediction
WIDER = 1.5  # times the width of a bound within the range, and at least this ratio
MOST = math.log(10.0)  # the most by which features of unknown effect widen a bound
ALLOCATION, LOG2 = "allocation.", "allocation.log2_"


@dataclass(frozen=True)
class Trend:
    """What is continued beyond the range.

    Attributes
    ----------
    model : PointModel
        Its trend is continued.
    shares : dict of str to float
        By column of a table, how much of the trend past its largest value is left, see
        `voxcast.models.trend`; 1 where a column lacks.
    """

    model: PointModel
    shares: dict[str, float] = field(default_factory=dict)


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
    how far it lies beyond in all numbers together. ``unknown`` is the logarithm of the factor
    that features without a measured effect may account for.
    """

    edge: Query
    steps: tuple[Step, ...]
    distance: float
    unknown: float = 0.0


@dataclass(frozen=True)
class Beyond:
    """Rows beyond the range: their paths, the logarithms (n, targets) of their trends."""

    edges: list[Query]
    trends: np.ndarray
    distances: np.ndarray
    unknown: np.ndarray


def beyond(
    model: PointModel, trend: Trend | None, queries: Sequence[Query], columns: Columns | None
) -> Beyond:
    """Return how rows out of range are answered; without a trend, as at the edge.

    Parameters
    ----------
    columns : Columns or None
        Of a table; None for images.
    """
    rows = [query.features for query in queries]
    covered = model.range
    if columns is None:
        paths = [
            image_path(query, names, covered)
            for query, names in zip(queries, covered.outside(rows), strict=True)
        ]
    else:
        paths = [path_of(query, columns, covered.numbers) for query in queries]
    far = covered.joint_distances(rows)  # combinations share columns: the farthest counts
    distances = [
        p.distance + max(d.values(), default=0.0) for p, d in zip(paths, far, strict=True)
    ]
    trends = np.zeros((len(queries), len(model.targets)))
    if trend is not None and columns is None:
        trends = differences(trend.model, queries, paths)
        if model.needs_volume:  # its volume cannot be moved to the edge: the trend answers alone
            at_edges = model.predict([path.edge for path in paths])
            trends = trend.model.predict(queries) - at_edges
    elif trend is not None:
        by_column = trends_of(trend.model, paths, trend.shares)
        trends[:] = np.array([sum(row.values()) for row in by_column])[:, None]
    return Beyond(
        [path.edge for path in paths], trends, np.array(distances),
        np.array([path.unknown for path in paths]),
    )  # fmt: skip


def image_path(query: Query, outside: Iterable[str], covered: TrainingRange) -> Path:
    """Return the path of an image from the range to where it lies, without steps.

    Parameters
    ----------
    outside : iterable of str
        Its features out of range, see `TrainingRange.outside`.
    """
    distance = unknown = 0.0
    for name in outside:
        if len(members(name)) > 1:  # a combination, whose distance is added for all
            continue
        value = query.features.get(name)
        if (
            name not in covered.numbers
            or isinstance(value, str | None)
            or not math.isfinite(value)
        ):
            unknown += MOST  # a text, or a value that is missing
            continue
        low, high = covered.numbers[name]
        far = log_distance(name, float(value or 0.0), low, high)
        if name.startswith(ALLOCATION):
            unknown += far
        elif low == high:
            unknown += STEEPEST * far
        else:
            distance += far
    edge = dict(query.features)
    for name, (low, high) in covered.spans.items():
        value = edge.get(name)
        if not isinstance(value, str | None):
            edge[name] = min(max(value, low), high)
    return Path(replace(query, features=edge), (), distance, min(unknown, MOST))


def log_distance(name: str, value: float, low: float, high: float) -> float:
    """Return the logarithm of the ratio of a value to the nearest end of a range; 0 within it.

    Without a ratio, the width of the range takes the place of the end.

    Examples
    --------
    >>> [round(math.exp(log_distance("size", x, 2.0, 10.0)), 3) for x in (1.0, 5.0, 40.0)]
    [2.0, 1.0, 4.0]
    >>> round(math.exp(log_distance("allocation.log2_cpus", 3.0, 0.0, 1.0)), 3)
    4.0
    """
    if low <= value <= high:
        return 0.0
    end = high if value > high else low
    if name.startswith(LOG2):
        return abs(value - end) * math.log(2.0)
    if end > 0 and value > 0:
        return abs(math.log(value / end))
    return math.log1p(abs(value - end) / (high - low or abs(end) or 1.0))


def differences(model: PointModel, queries: Sequence[Query], paths: Sequence[Path]) -> np.ndarray:
    """Return by how much a model's logarithms change from each edge to its row, (n, targets).

    A change steeper than `STEEPEST` powers of the distance is more likely noise.
    """
    change = model.predict(queries) - model.predict([path.edge for path in paths])
    most = STEEPEST * np.array([path.distance + path.unknown for path in paths])[:, None]
    return np.asarray(np.clip(change, -most, most))


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
    """Return by how much a model's logarithm changes from the edge to each row of a table.

    By column, as a power of it.

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
