"""Which rows lie out of the range of the training rows, and how they are answered.

A row is out of range if one of its numbers is, if a category never occurred, or if it combines two
numbers as no training row does: large inputs that were always run on many CPUs, and then on one.
Two columns that hang together are standardised; their principal axes are then their sum and their
difference, at any correlation (Jolliffe, Principal Component Analysis, 2002, section 3.7).
Training rows cover an interval of each axis, and a row is outside if it lies beyond an end by more
than a share of the interval. Pairs of independent columns are not checked: all their combinations
occur sooner or later.

A model that was fitted to logarithms grows exponentially in a feature beyond its range, and a
tree not at all. So a row out of range is moved to the edge of the range, where the model is asked,
and the trend of another model is continued from there, see `voxcast.models.selection.fitting`. How
far it holds is not known, so bounds widen with distance, and are never called calibrated.

Of an image, the trend is the difference of that model's predictions at the image and at the edge:
its laws are sums of sizes, and such laws hold beyond the sizes that were measured. Of any table
the trend from a point within the range to the edge is continued as a power of the features, since
sizes and CPUs multiply the work.

A row that only combines numbers as no training row does stays where it is, and its bound widens
with the distance to the combinations that occurred. Of a feature that never varied nothing was
learned: work is taken to change with at most `STEEPEST` powers of it, and with the number of CPUs
in proportion at most. Of a category that never occurred nothing is known at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.any_table import LOG, PREFIX, WIDE, exponential, logarithm
from voxcast.features.rows import CONTENT, combination, content_names, members
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.families.encoder import digest, encoded_and_all, numbers_of, split_columns

if TYPE_CHECKING:
    from voxcast.features.any_table import Columns
    from voxcast.features.rows import Row
    from voxcast.models.point_model import PointModel, Query

Ranges = Mapping[str, tuple[float, float]]

# Columns that determine the work and are checked against the training range. Textures are not:
# nearly every scanner has one beyond all others. Characteristics that a laboratory declares for an
# application are checked.
WATCHED = (
    "allocation.", "parameter.", "column.", "header.megavoxels", "content.foreground_megavoxels",
)  # fmt: skip
NOT_WATCHED = frozenset(name for entry in CHARACTERISTICS for name in content_names(entry))
SIZE, REACH = "megavoxels", 1.25  # by which a size may exceed its range

MINIMUM_SUBJECTS = 10  # fewer do not tell which combinations occur
MOST_PAIRS = 100  # of the strongest correlation
MOST_NAMED = 3  # combinations of one row: columns that hang together are outside together
# A pair is checked if its correlation exceeds both; the second is in standard errors of one by
# chance.
WEAKEST, SUPPORT = 0.1, 2.5
# In widths of the interval: of many subjects, and times what few subjects add. Less than 1 % of
# new rows of the same origin are then outside.
MARGIN, CAUTION = 0.15, 6.0
MATERIAL = 0.4  # least width, as a share of the span of an axis over the ranges of both columns
DIAGONAL = math.sqrt(0.5)
ROUNDING = 1e-9  # of standardised values

SPAN = math.log(10)  # from the edge into the range, over which the trend is measured
STEEPEST = 3.0  # power that is continued; a steeper one is more likely noise
UNCERTAIN_POWER = 0.5  # by which the bound is steeper than the prediction
WIDER = 1.5  # times the width of a bound within the range, and at least this ratio
MOST = math.log(10.0)  # the most by which features of unknown effect widen a bound
ALLOCATION, LOG2 = "allocation.", "allocation.log2_"


@dataclass(frozen=True)
class Coordinate:
    """A column as it is compared with others: sizes and wide ranges as logarithms.

    Attributes
    ----------
    name, source : str
        The column, and the feature that is read: the column or its logarithm.
    is_log : bool
        Whether the logarithm of the source is taken.
    low, high, scale : float
        Range over the training rows, into which rows are moved, and standard deviation.
    log_unit : float
        Natural logarithms in one unit; 0 unless the unit is a logarithm.
    """

    name: str
    source: str
    is_log: bool
    low: float
    high: float
    scale: float
    log_unit: float

    @classmethod
    def fit(cls, name: str, values: Mapping[str, np.ndarray]) -> Coordinate | None:
        """Return a column as a coordinate, read from its logarithm if there is one.

        None for the logarithm of another column, and for a column that is constant.
        """
        if name.startswith(LOG) and f"{PREFIX}{name.removeprefix(LOG)}" in values:
            return None
        log = f"{LOG}{name.removeprefix(PREFIX)}"
        source = log if name.startswith(PREFIX) and log in values else name
        numbers = values[source][np.isfinite(values[source])]
        if not numbers.size or numbers.min() == numbers.max():
            return None
        is_wide = name.endswith(SIZE) or numbers.max() > WIDE * numbers.min()
        if is_log := source == name and bool(numbers.min() > 0 and is_wide):
            numbers = np.log(numbers)
        with np.errstate(over="ignore"):
            low, high, scale = float(numbers.min()), float(numbers.max()), float(np.std(numbers))
        if not (low < high and 0 < scale < math.inf):
            return None
        log_unit = math.log(2) if name.startswith(LOG2) else float(is_log or source != name)
        return cls(name, source, is_log, low, high, scale, log_unit)

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """Return standardised values, (n,), NaN where they are missing or have no logarithm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers = np.log(values) if self.is_log else values
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        return np.asarray((np.clip(numbers, self.low, self.high) - self.low) / self.scale)

    def distance(self, deviation: float) -> float:
        """Return a deviation in standard deviations as a logarithm of a ratio."""
        length = deviation * self.scale
        if self.log_unit:
            return length * self.log_unit
        return math.log1p(length / (self.high - self.low))


@dataclass(frozen=True)
class Axis:
    """The sum (sign 1) or difference (-1) of two coordinates over the square root of two.

    ``low`` and ``high`` are the interval of the training rows, ``width`` its length or more.
    """

    first: int
    second: int
    sign: float
    low: float
    high: float
    width: float

    def along(self, z: np.ndarray) -> np.ndarray:
        """Return where rows of coordinates, (n, coordinates), lie on the axis."""
        return np.asarray(DIAGONAL * (z[:, self.first] + self.sign * z[:, self.second]))


@dataclass(frozen=True)
class JointRange:
    """The combinations of two columns that training rows cover; empty if none is checked.

    ``margin`` is by how many widths of an axis a row must lie beyond its interval to be outside.
    """

    coordinates: tuple[Coordinate, ...] = ()
    axes: tuple[Axis, ...] = ()
    margin: float = MARGIN

    @classmethod
    def fit(
        cls, values: Mapping[str, np.ndarray], names: Sequence[str], subjects: Sequence[str]
    ) -> JointRange:
        """Learn from the values of training rows, in the columns ``names`` of them."""
        coordinates = [c for name in names if (c := Coordinate.fit(name, values)) is not None]
        if len(coordinates) < 2:
            return cls()
        z = np.column_stack([c.standardised(values[c.source]) for c in coordinates])
        # Repeats of a row, even if each is a subject, tell nothing of rows that have not occurred.
        distinct = len(np.unique(np.nan_to_num(z, nan=-1.0), axis=0))
        count = min(len(set(subjects)), distinct)
        if count < MINIMUM_SUBJECTS:
            return cls()
        spans, axes = np.nanmax(z, axis=0), []
        for first, second in _correlated(z, count):
            for sign in (1.0, -1.0):
                along = Axis(first, second, sign, 0.0, 0.0, 0.0).along(z)
                low, high = float(np.nanmin(along)), float(np.nanmax(along))
                least = MATERIAL * DIAGONAL * float(spans[first] + spans[second])
                axes.append(Axis(first, second, sign, low, high, max(high - low, least)))
        return cls(tuple(coordinates), tuple(axes), MARGIN + CAUTION / count)

    def distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the combinations in which each row is farthest outside, the farthest first.

        Returns
        -------
        list of dict of str to float
            By name of the combination, the logarithm of the ratio by which its numbers would
            have to change to be covered.
        """
        outside: list[list[tuple[float, str, float]]] = [[] for _ in rows]
        columns = [c.standardised(numbers_of(rows, c.source)) for c in self.coordinates]
        z = np.column_stack(columns) if columns else np.empty((len(rows), 0))
        for axis in self.axes:
            along = axis.along(z)
            beyond = np.fmax(np.maximum(along - axis.high, axis.low - along) - ROUNDING, 0.0)
            pair = self.coordinates[axis.first], self.coordinates[axis.second]
            for n in np.flatnonzero(beyond / axis.width > self.margin):
                distance = sum(c.distance(DIAGONAL * float(beyond[n])) for c in pair)
                name = combination(*(c.name for c in pair))
                outside[n].append((beyond[n] / axis.width, name, distance))
        farthest: list[dict[str, float]] = []
        for entries in outside:
            distances: dict[str, float] = {}
            for _, name, distance in sorted(entries, key=lambda e: -e[0])[:MOST_NAMED]:
                distances[name] = max(distances.get(name, 0.0), distance)
            farthest.append(distances)
        return farthest


def _correlated(z: np.ndarray, subjects: int) -> list[tuple[int, int]]:
    """Return the pairs of columns that hang together, the strongest first."""
    present = np.isfinite(z)
    centred = np.where(present, z - np.nanmean(z, axis=0), 0.0)
    squares = (centred**2).T @ present
    norms = np.sqrt(squares * squares.T)
    products = np.abs(centred.T @ centred)
    strength = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)
    together = (present.T.astype(int) @ present) >= MINIMUM_SUBJECTS  # rows that have both
    weakest = max(WEAKEST, SUPPORT / math.sqrt(subjects))
    pairs = np.argwhere(np.triu((strength > weakest) & together, 1)).tolist()
    return sorted(((i, j) for i, j in pairs), key=lambda pair: -strength[pair])[:MOST_PAIRS]


@dataclass(frozen=True)
class TrainingRange:
    """The range of training rows.

    Attributes
    ----------
    numbers, spans : dict of str to tuple of float
        Smallest and largest value of the columns that are checked, and of all columns of numbers.
    texts : dict of str to tuple of str
        Hashes of the values of each categorical column.
    complete : tuple of str
        Columns that no training row lacks: out of range where missing.
    joint : JointRange
        Combinations of columns with a range that the training rows cover.
    """

    numbers: Ranges
    spans: Ranges = field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    complete: tuple[str, ...] = ()
    joint: JointRange = field(default_factory=JointRange)

    @classmethod
    def fit(
        cls, rows: Sequence[Row], *, content: bool, subjects: Sequence[str] = ()
    ) -> TrainingRange:
        """Learn the range of training rows.

        Parameters
        ----------
        content : bool
            Whether the voxels' characteristics are known when rows are checked.
        subjects : sequence of str, optional
            Subject of each row. Without them no combination of columns is out of range.
        """
        numbers, texts = split_columns(rows)
        # In a table of several tools not all rows have all columns.
        finite = {name: values[np.isfinite(values)] for name, values in numbers.items()}
        spans = {n: (float(v.min()), float(v.max())) for n, v in finite.items() if v.size}
        ranges = {name: span for name, span in spans.items() if is_watched(name)}
        # A question from the header alone is asked without content, and lacks none.
        checked = [name for name in ranges if content or not name.startswith(CONTENT)]
        complete = [name for name in checked if not np.isnan(numbers[name]).any()]
        complete += [n for n, values in texts.items() if all(isinstance(v, str) for v in values)]
        digests = {
            name: tuple(map(digest, encoded_and_all(values)[1])) for name, values in texts.items()
        }
        joint = JointRange.fit(numbers, list(filter(is_watched, numbers)), subjects)
        return cls(ranges, spans, digests, tuple(complete), joint)

    def outside(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features outside the range.

        Sizes may exceed it by `REACH`; other numbers may not, categories must occur in training. A
        missing value is outside if no training row lacks it. Of a row in range of all of them, the
        combinations of two numbers that training does not cover are named, see
        `voxcast.features.rows`.
        """
        features: list[list[str]] = [[] for _ in rows]
        complete = set(self.complete)
        for name, (low, high) in self.numbers.items():
            values, reach = numbers_of(rows, name), REACH if name.endswith(SIZE) else 1.0
            inside = (low / reach <= values) & (values <= high * reach)
            for n in np.flatnonzero(~inside & (np.isfinite(values) | (name in complete))):
                features[n].append(name)
        for name, digests in self.texts.items():
            seen = frozenset(digests)
            for n, row in enumerate(rows):
                text = row.get(name)
                if digest(text) not in seen if isinstance(text, str) else name in complete:
                    features[n].append(name)
        together = self.joint.distances(rows)
        return [tuple(names or far) for names, far in zip(features, together, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TrainingRange:
        """Read what `to_json` returned."""
        numbers, spans, texts = (
            {name: tuple(values) for name, values in content[part].items()}
            for part in ("numbers", "spans", "texts")
        )
        joint = content["joint"]
        coordinates = tuple(Coordinate(**part) for part in joint["coordinates"])
        axes = tuple(Axis(**part) for part in joint["axes"])
        return cls(
            numbers, spans, texts, tuple(content["complete"]),
            JointRange(coordinates, axes, joint["margin"]),
        )  # fmt: skip


def is_watched(name: str) -> bool:
    """Tell whether a column is checked."""
    return name.startswith(WATCHED) or (name.startswith(CONTENT) and name not in NOT_WATCHED)


@dataclass(frozen=True)
class Path:
    """The way of a row from the range to where it lies.

    Attributes
    ----------
    edge : Query
        The row with its numbers moved into the range.
    probe : Query
        Where the trend is asked beside the edge: an image itself, or of a table a row within the
        range.
    factor : float
        Of the change of the trend from the edge to the probe, which is continued to the row.
    distance : float
        Logarithm of how far the row lies beyond the edge, in all numbers together.
    unknown : float
        Logarithm of the factor that features without a measured effect may account for.
    combined : float
        Distance of its combinations from the training rows'; they share columns, so the
        farthest counts.
    """

    edge: Query
    probe: Query
    factor: float
    distance: float
    unknown: float = 0.0
    combined: float = 0.0


def paths_of(
    covered: TrainingRange, queries: Sequence[Query], columns: Columns | None
) -> list[Path]:
    """Return the path of each row; ``columns`` are a table's, None for images."""
    rows = [query.features for query in queries]
    if columns is not None:
        paths = [_table_path(query, columns, covered.numbers) for query in queries]
    else:
        outside = covered.outside(rows)
        paths = [_image_path(q, names, covered) for q, names in zip(queries, outside, strict=True)]
    far = covered.joint.distances(rows)
    return [
        replace(path, combined=max(distances.values(), default=0.0))
        for path, distances in zip(paths, far, strict=True)
    ]


def _image_path(query: Query, outside: Sequence[str], covered: TrainingRange) -> Path:
    distance = unknown = 0.0
    for name in outside:
        value = query.features.get(name)
        if len(members(name)) > 1:
            continue  # a combination
        if (
            name not in covered.numbers
            or isinstance(value, str | None)
            or not math.isfinite(value)
        ):
            unknown += MOST  # a text, or a value that is missing
            continue
        low, high = covered.numbers[name]
        far = log_distance(name, value, low, high)
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
    return Path(replace(query, features=edge), query, 1.0, distance, min(unknown, MOST))


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
    end = min(max(value, low), high)
    if name.startswith(LOG2):
        return abs(value - end) * math.log(2.0)
    if end > 0 and value > 0:
        return abs(math.log(value / end))
    return math.log1p(abs(value - end) / (high - low or abs(end) or 1.0))


def _table_path(query: Query, columns: Columns, ranges: Ranges) -> Path:
    edges: dict[str, float] = {}
    powers: list[tuple[str, float, float, float]] = []  # column, at the edge, distance, depth
    total = 0.0
    for name in columns.numbers:
        low, high = ranges.get(f"{PREFIX}{name}", (-math.inf, math.inf))
        value = query.features.get(f"{PREFIX}{name}")
        if isinstance(value, str | None) or not (value < low or value > high):  # NaN: missing
            continue
        edges[name] = edge = high if value > high else low
        unit = columns.unit(name)
        if unit == 0 and (edge <= 0 or value <= 0):  # a power law has no trend there
            total += log_distance("", value, low, high)
            continue
        at_edge = logarithm(edge, unit)
        distance = logarithm(value, unit) - at_edge
        # -inf where the other end is not above 0.
        at_other = logarithm(low if value > high else high, unit)
        depth = min(SPAN, abs(at_edge - at_other) / 2)
        total += abs(distance)
        if depth > 0 and distance:
            powers.append((name, at_edge, distance, depth))
    edge_query = _moved(query, edges, columns, ranges)
    if not powers:
        return Path(edge_query, edge_query, 0.0, total)
    # As far into the range as all columns allow, in the direction from which the row lies beyond.
    share = min(depth / abs(distance) for _, _, distance, depth in powers)
    within = {
        name: exponential(at_edge - share * distance, columns.unit(name))
        for name, at_edge, distance, _ in powers
    }
    return Path(edge_query, _moved(edge_query, within, columns, ranges), -1 / share, total)


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


def changes(trend: PointModel, paths: Sequence[Path]) -> np.ndarray:
    """Return by how much a trend's logarithms change from each edge to its row, (n, targets).

    A change steeper than `STEEPEST` powers of the distance is more likely noise.
    """
    at_edges = trend.predict([path.edge for path in paths])
    factors = np.array([path.factor for path in paths])[:, None]
    most = STEEPEST * np.array([path.distance + path.unknown for path in paths])[:, None]
    change = factors * (trend.predict([path.probe for path in paths]) - at_edges)
    return np.asarray(np.clip(change, -most, most))


def continued(
    model: PointModel, trend: PointModel | None, queries: Sequence[Query], columns: Columns | None
) -> tuple[list[Path], np.ndarray]:
    """Return the paths of rows out of range, and the change of the trend along them, (n, targets).

    Without a trend there is no change: rows are answered as at the edge.
    """
    paths = paths_of(model.range, queries, columns)
    if trend is None:
        return paths, np.zeros((len(paths), len(model.targets)))
    if model.needs_volume:  # its volume cannot be moved to the edge: the trend answers alone
        return paths, trend.predict(queries) - model.predict([path.edge for path in paths])
    return paths, changes(trend, paths)
