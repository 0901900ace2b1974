"""The range that training rows cover, and which rows lie outside it.

Which combinations of two numbers the training rows cover.

Each of two numbers may be in its range while rows like that never occurred: large inputs that
were always run on many CPUs, and then on one. Two columns that hang together are standardised;
their principal axes are then their sum and their difference, at any correlation
(Jolliffe, Principal Component Analysis, 2002, section 3.7). Training rows cover an interval of
each axis, and a query is outside if it lies beyond an end by more than a margin.

The margin is such that few new rows of the same origin are outside in any pair. Each subject is
left out in turn; how far its rows then lie beyond the interval of the rest, in units of the
interval's width and at most over all pairs, is its score. A subject that is exchangeable with
the k-th largest of n scores exceeds it with a probability of at most k / (n + 1), however many
pairs there are (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005).

Pairs of independent columns are not checked: all their combinations occur sooner or later.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.any_table import LOG, PREFIX, WIDE
from voxcast.features.rows import CONTENT, combination, content_names
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.families.encoder import digest, encoded_and_all, numbers_of, split_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from voxcast.features.rows import Row


MINIMUM_SUBJECTS = 10
MOST_PAIRS = 100  # of the strongest correlation
MOST_NAMED = 3  # combinations of one row: columns that hang together are outside together
# A pair is checked if its correlation exceeds both; the second is in standard errors of one by
# chance.
WEAKEST, SUPPORT = 0.1, 2.5
SHARE = 0.01  # of new subjects that may be outside
# Least margin, in widths of the interval: of many subjects, and times what few subjects add.
MARGIN, CAUTION = 0.125, 3.0
MATERIAL = 0.05  # least margin, as a share of the span of an axis over the ranges of both columns
DIAGONAL = math.sqrt(0.5)
ROUNDING = 1e-9  # of standardised values
BLOCK = 4096  # rows at a time, for memory
SIZE = "megavoxels"
LOG2 = "allocation.log2_"


@dataclass(frozen=True)
class Coordinate:
    """A column as it is compared with others: sizes and wide ranges as logarithms.

    Attributes
    ----------
    name : str
        The column.
    source : str
        The feature that is read: the column or its logarithm.
    is_log : bool
        Whether the logarithm of the source is taken.
    low, high : float
        Range over the training rows; queries are moved into it.
    scale : float
        Standard deviation.
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

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """Return standardised values, (n,), NaN where they are missing or have no logarithm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers = np.log(values) if self.is_log else values
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        scaled: np.ndarray = (np.clip(numbers, self.low, self.high) - self.low) / self.scale
        return scaled

    def distance(self, deviation: float) -> float:
        """Return a deviation in standard deviations as a logarithm of a ratio."""
        length = abs(deviation) * self.scale
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


@dataclass(frozen=True)
class JointRange:
    """The combinations of two columns that training rows cover; empty if none is checked.

    Attributes
    ----------
    margin : float
        Widths of its interval by which a row must exceed an axis to be outside.
    """

    coordinates: tuple[Coordinate, ...] = ()
    axes: tuple[Axis, ...] = ()
    margin: float = MARGIN

    @classmethod
    def fit(cls, coordinates: Mapping[Coordinate, np.ndarray], subjects: np.ndarray) -> JointRange:
        """Learn from training rows.

        Parameters
        ----------
        coordinates : mapping of Coordinate to ndarray, shape (n,)
            Values of the sources.
        subjects : ndarray of int, shape (n,)
            Rows of one subject are left out together.
        """
        count = len(np.unique(subjects))
        if count < MINIMUM_SUBJECTS:
            return cls()
        z = np.column_stack([c.standardised(values) for c, values in coordinates.items()])
        within = np.column_stack([_within_others(column, subjects) for column in z.T])
        axes: list[Axis] = []
        scores: dict[int, float] = {}
        for first, second in _correlated(z, count):
            rows = np.isfinite(z[:, [first, second]]).all(axis=1)
            if len(np.unique(subjects[rows])) < MINIMUM_SUBJECTS:
                continue
            for sign in (1.0, -1.0):
                along, moved = (
                    DIAGONAL * (matrix[rows, first] + sign * matrix[rows, second])
                    for matrix in (z, within)
                )
                spans = np.nanmax(z[:, [first, second]], axis=0)
                least = MATERIAL / MARGIN * DIAGONAL * float(spans.sum())
                low, high = float(along.min()), float(along.max())
                axes.append(Axis(first, second, sign, low, high, max(high - low, least)))
                for side in (1.0, -1.0):
                    subject, score = _beyond_others(
                        side * along, side * moved, subjects[rows], least
                    )
                    scores[subject] = max(scores.get(subject, 0.0), score)
        rank = max(1, int(SHARE * (count + 1)))
        ordered = sorted(scores.values(), reverse=True)
        score = ordered[rank - 1] if len(ordered) >= rank else 0.0
        return cls._of(tuple(coordinates), axes, max(MARGIN + CAUTION / count, score))

    @classmethod
    def _of(
        cls, coordinates: Sequence[Coordinate], axes: Sequence[Axis], margin: float
    ) -> JointRange:
        """Return one without the coordinates that no axis has."""
        order = sorted({k for axis in axes for k in (axis.first, axis.second)})
        position = {k: n for n, k in enumerate(order)}
        moved = (
            replace(axis, first=position[axis.first], second=position[axis.second])
            for axis in axes
        )
        return cls(tuple(coordinates[k] for k in order), tuple(moved), margin)

    def outside(self, values: Mapping[str, np.ndarray], count: int) -> list[dict[str, float]]:
        """Return the combinations in which each row is farthest outside, the farthest first.

        Parameters
        ----------
        values : mapping of str to ndarray, shape (count,)
            Values of `sources`.

        Returns
        -------
        list of dict of str to float
            By name of the combination, the logarithm of the ratio by which its numbers would
            have to change to be covered.
        """
        names: list[dict[str, float]] = [{} for _ in range(count)]
        if not self.axes:
            return names
        z = np.column_stack([c.standardised(values[c.source]) for c in self.coordinates])
        first, second = (np.array([getattr(a, k) for a in self.axes]) for k in ("first", "second"))
        sign, low, high, width = (
            np.array([getattr(a, k) for a in self.axes]) for k in ("sign", "low", "high", "width")
        )
        for start in range(0, count, BLOCK):
            block = z[start : start + BLOCK]
            along = DIAGONAL * (block[:, first] + sign * block[:, second])
            beyond = np.fmax(np.maximum(along - high, low - along) - ROUNDING, 0.0)
            scores = beyond / width
            for n in np.flatnonzero((scores > self.margin).any(axis=1)):
                order = np.argsort(-scores[n], kind="stable")
                for k in order[: min(int((scores[n] > self.margin).sum()), MOST_NAMED)]:
                    self._add(names[start + n], self.axes[k], float(beyond[n, k]))
        return names

    @property
    def sources(self) -> tuple[str, ...]:
        """Features that are read."""
        return tuple(c.source for c in self.coordinates)

    def _add(self, distances: dict[str, float], axis: Axis, beyond: float) -> None:
        pair = self.coordinates[axis.first], self.coordinates[axis.second]
        name = combination(*(c.name for c in pair))
        distance = sum(c.distance(DIAGONAL * beyond) for c in pair)
        distances[name] = max(distances.get(name, 0.0), distance)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> JointRange:
        """Read what `dataclasses.asdict` made of one."""
        return cls(
            tuple(Coordinate(**part) for part in content["coordinates"]),
            tuple(Axis(**part) for part in content["axes"]),
            content["margin"],
        )


def joint_range_of(
    values: Mapping[str, np.ndarray], names: Sequence[str], subjects: Sequence[str]
) -> JointRange:
    """Return the range of the combinations of some features; empty without subjects.

    Parameters
    ----------
    values : mapping of str to ndarray, shape (n,)
        Training values of these and other features.
    names : sequence of str
        Features that are combined.
    subjects : sequence of str
        Subject of each row.
    """
    coordinates = coordinates_of(values, names) if len(subjects) else {}
    if len(coordinates) < 2:
        return JointRange()
    return JointRange.fit(coordinates, _subject_codes(subjects, [*coordinates.values()]))


def coordinates_of(
    values: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[Coordinate, np.ndarray]:
    """Return the coordinates of features that vary, with the values of their sources.

    Parameters
    ----------
    values : mapping of str to ndarray, shape (n,)
        Training values by feature, NaN where they are missing. A column that has its logarithm
        beside it is read there.
    names : iterable of str
        Features to combine.
    """
    coordinates = {}
    for name in names:
        if name.startswith(LOG) and f"{PREFIX}{name.removeprefix(LOG)}" in values:
            continue
        log = f"{LOG}{name.removeprefix(PREFIX)}"
        source = log if name.startswith(PREFIX) and log in values else name
        if coordinate := _coordinate(name, source, values[source]):
            coordinates[coordinate] = values[source]
    return coordinates


def _coordinate(name: str, source: str, values: np.ndarray) -> Coordinate | None:
    """Return a column as a coordinate, or None if it is constant."""
    present = values[np.isfinite(values)]
    if not present.size or present.min() == present.max():
        return None
    is_wide = name.endswith(SIZE) or present.max() > WIDE * present.min()
    is_log = source == name and bool(present.min() > 0) and bool(is_wide)
    numbers = np.log(present) if is_log else present
    with np.errstate(over="ignore"):
        low, high, scale = float(numbers.min()), float(numbers.max()), float(np.std(numbers))
    if not (low < high and 0 < scale < math.inf):
        return None
    log_unit = math.log(2) if name.startswith(LOG2) else float(is_log or source != name)
    return Coordinate(name, source, is_log, low, high, scale, log_unit)


def _subject_codes(subjects: Sequence[str], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return a number for each row; subjects whose first rows are equal have the same.

    Repeats of one row tell nothing of a row that has not occurred, even if each is a subject.

    Parameters
    ----------
    values : sequence of ndarray, shape (n,)
        Columns in which rows are compared.
    """
    rows = np.nan_to_num(np.column_stack(values), nan=-np.pi)
    _, configurations = np.unique(rows, axis=0, return_inverse=True)
    firsts: dict[str, int] = {}
    for subject, configuration in zip(subjects, configurations.ravel().tolist(), strict=True):
        firsts.setdefault(subject, configuration)
    return np.array([firsts[subject] for subject in subjects])


def _within_others(z: np.ndarray, subjects: np.ndarray) -> np.ndarray:
    """Return a column in which the outermost subjects are moved into the range of the rest.

    Each would be out of the range of that column alone.
    """
    moved = z.copy()
    for side in (1.0, -1.0):
        values = np.where(np.isfinite(z), side * z, -np.inf)
        mask = subjects == subjects[int(np.argmax(values))]
        if np.isfinite(limit := values[~mask].max(initial=-np.inf)):
            moved[mask] = side * np.minimum(side * moved[mask], limit)
    return moved


def _correlated(z: np.ndarray, subjects: int) -> list[tuple[int, int]]:
    """Return the pairs of columns that hang together, the strongest first."""
    present = np.isfinite(z)
    centred = np.where(present, z - np.nanmean(z, axis=0), 0.0)
    squares = (centred**2).T @ present
    norms = np.sqrt(squares * squares.T)
    products = np.abs(centred.T @ centred)
    strength = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)
    weakest = max(WEAKEST, SUPPORT / math.sqrt(subjects))
    pairs = [(i, j) for i, j in zip(*np.triu_indices(len(strength), 1), strict=True)
             if strength[i, j] > weakest]  # fmt: skip
    pairs.sort(key=lambda pair: -strength[pair])
    return [(int(i), int(j)) for i, j in pairs[:MOST_PAIRS]]


def _beyond_others(
    along: np.ndarray, moved: np.ndarray, subjects: np.ndarray, least: float
) -> tuple[int, float]:
    """Return the subject at the upper end of an axis, and by how many widths it is beyond."""
    subject = int(subjects[int(np.argmax(along))])
    mask = subjects == subject
    others = along[~mask]
    width = max(float(np.ptp(others)), least)
    return subject, max(float(moved[mask].max() - others.max()), 0.0) / width


# Columns that determine the work and are checked against the training range. Textures are not:
# nearly every scanner has one beyond all others. Characteristics that a laboratory declares for an
# application are checked.
WATCHED = (
    "allocation.",
    "parameter.",
    "column.",
    "header.megavoxels",
    "content.foreground_megavoxels",
)
NOT_WATCHED = frozenset(name for entry in CHARACTERISTICS for name in content_names(entry))
REACH = 1.25  # by which a size may exceed its range


@dataclass(frozen=True)
class TrainingRange:
    """The range of training rows.

    Attributes
    ----------
    numbers : dict of str to tuple of float
        Smallest and largest value of the columns that are checked.
    spans : dict of str to tuple of float
        The same of all columns of numbers.
    texts : dict of str to tuple of str
        Hashes of the values of each categorical column.
    complete : tuple of str
        Columns that no training row lacks: out of range where missing.
    joint : JointRange
        Combinations of columns with a range that the training rows cover.
    """

    numbers: Mapping[str, tuple[float, float]]
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    complete: tuple[str, ...] = ()
    joint: JointRange = field(default_factory=JointRange)

    @classmethod
    def fit(
        cls, rows: Sequence[Row], *, content: bool, subjects: Sequence[str] = ()
    ) -> TrainingRange:
        """Learn the range of ``rows``.

        Parameters
        ----------
        rows : sequence of Row
            Training rows.
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
        return cls(
            ranges,
            spans,
            {
                name: tuple(digest(text) for text in encoded_and_all(values)[1])
                for name, values in texts.items()
            },
            (
                *(name for name in checked if not np.isnan(numbers[name]).any()),
                *(name for name, values in texts.items() if all(map(_is_text, values))),
            ),
            joint_range_of(numbers, list(filter(is_watched, numbers)), subjects),
        )

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
            values = numbers_of(rows, name)
            inside = within(name, values, low, high)
            for n in np.flatnonzero(~inside & (np.isfinite(values) | (name in complete))):
                features[n].append(name)
        for name, digests in self.texts.items():
            seen = frozenset(digests)
            for n, row in enumerate(rows):
                text = row.get(name)
                is_new = isinstance(text, str) and digest(text) not in seen
                if is_new or (name in complete and not isinstance(text, str)):
                    features[n].append(name)
        together = self.joint_distances(rows)
        return [tuple(names or far) for names, far in zip(features, together, strict=True)]

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the distance of each row in combinations, see `JointRange.outside`."""
        values = {name: numbers_of(rows, name) for name in self.joint.sources}
        return self.joint.outside(values, len(rows))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TrainingRange:
        """Read what `to_json` returned."""
        return cls(
            _pairs(content["numbers"]),
            _pairs(content["spans"]),
            {name: tuple(digests) for name, digests in content["texts"].items()},
            tuple(content["complete"]),
            JointRange.from_json(content["joint"]),
        )


def _pairs(limits: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    return {name: (low, high) for name, (low, high) in limits.items()}


def is_watched(name: str) -> bool:
    """Tell whether a column is checked."""
    return name.startswith(WATCHED) or (name.startswith(CONTENT) and name not in NOT_WATCHED)


def within(name: str, values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return which values are in a range, which sizes may exceed by `REACH`; false for NaN."""
    if name.endswith("megavoxels"):
        low, high = low / REACH, high * REACH
    return (low <= values) & (values <= high)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
