"""How far queries lie outside the training runs.

A feature that varied in training has a trend that a model continues past an end of its range: a
side, such as ``header.megavoxels above``. How wrong that may be `voxcast.models.side` says.

Of a feature that never varied nothing was learned. Work is then taken to change with at most
`STEEPEST` powers of it, and with the number of CPUs in proportion at most: n CPUs are at most n
times as fast. Of a category that never occurred nothing is known at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from voxcast.models.point_model import PointModel
    from voxcast.models.query import Query

STEEPEST = 3.0  # the number of voxels is the third power of their spacing
MOST = math.log(10.0)  # the most by which a feature of unknown effect widens a bound
ALLOCATION = "allocation."
LOG2 = "allocation.log2_"


@dataclass(frozen=True)
class Distance:
    """How far one query is out of range.

    Attributes
    ----------
    by_side : dict of str to float
        Logarithmic distance to the end of the range, for features that varied, and for the
        farthest combination of two features.
    unknown : float
        Logarithm of the factor that features without a measured effect may account for.
    """

    by_side: dict[str, float]
    unknown: float


def side_name(feature: str, *, is_high: bool) -> str:
    """Return the name of one end of a feature's range."""
    return f"{feature} {'above' if is_high else 'below'}"


def distances(model: PointModel, queries: Sequence[Query]) -> list[Distance]:
    """Return the distance of each query from the training runs of a model."""
    rows = [query.features for query in queries]
    outside = model.range.outside(rows)
    far: list[Mapping[str, float]] = [{}] * len(queries)
    if any(outside):
        far = [*model.range.joint_distances(rows)]
    return [
        _distance(query, names, model.range.numbers, together)
        for query, names, together in zip(queries, outside, far, strict=True)
    ]


def _distance(
    query: Query,
    names: Iterable[str],
    ranges: Mapping[str, tuple[float, float]],
    together: Mapping[str, float],
) -> Distance:
    by_side, unknown = {}, 0.0
    combinations = [name for name in names if name in together]
    if combinations:  # they share columns: the farthest counts
        farthest = max(combinations, key=lambda name: together[name])
        by_side[farthest] = together[farthest]
    for name in names:
        if name in together:
            continue
        value = query.features.get(name)
        if name not in ranges or isinstance(value, str | None) or not math.isfinite(value):
            unknown += MOST  # a text, or a value that is missing
            continue
        low, high = ranges[name]
        value = float(value)
        far = log_distance(name, value, low, high)
        if name.startswith(ALLOCATION):
            unknown += far
        elif low == high:
            unknown += STEEPEST * far
        else:
            by_side[side_name(name, is_high=value > high)] = far
    return Distance(by_side, min(unknown, MOST))


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
