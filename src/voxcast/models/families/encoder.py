"""Rows to a matrix of numbers, and the range that the training rows cover.

It needs numpy only, and its file is JSON.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.any_table import LOG, PREFIX, is_heavy
from voxcast.features.rows import CONTENT, content_names
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.families.joint_range import JointRange, joint_range_of
from voxcast.models.model_files import read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from voxcast.features.rows import Row

# Columns that determine the work and are checked against the training range. Those of textures are
# not: nearly every scanner has one that is beyond all others. What a laboratory declares for an
# application is checked.
WATCHED = (
    "allocation.",
    "parameter.",
    "column.",
    "header.megavoxels",
    "content.foreground_megavoxels",
)
NOT_WATCHED = frozenset(name for entry in CHARACTERISTICS for name in content_names(entry))
REACH = 1.25
MAXIMUM_CATEGORIES = 30  # columns of one text; other values are zeros in all of them
DUPLICATE = 1 - 1e-6  # correlation of columns that carry the same information
MINIMUM_ROWS = 10  # fewer may correlate by chance
FILE = "encoder.json"


@dataclass(frozen=True)
class Encoder:
    """The columns, the fitted transformers and the training range.

    An unseen text becomes zeros. A missing number becomes the training median, with an indicator
    column if it was missing in training rows too. Columns that were constant in training, or
    duplicates of another, are not in the matrix; they are in `ranges`, so that `out_of_range`
    still checks them.

    Attributes
    ----------
    numbers, texts : tuple of str
        Columns of numbers and of categories.
    medians : tuple of float
        Training median of each number.
    incomplete : tuple of int
        Positions of the numbers that were missing in a training row.
    categories : tuple of tuple of str
        Values of each text that have a column.
    truncated : tuple of str
        Texts with more values than columns; a new value of these is not out of range.
    ranges : tuple of (column, low, high)
        Ranges over the training rows, for the columns in `WATCHED`.
    joint : JointRange
        Combinations of these columns that the training rows cover.
    """

    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    medians: tuple[float, ...]
    incomplete: tuple[int, ...]
    categories: tuple[tuple[str, ...], ...]
    truncated: tuple[str, ...]
    ranges: tuple[tuple[str, float, float], ...]
    joint: JointRange = field(default_factory=JointRange)

    @classmethod
    def fit(
        cls,
        rows: Sequence[Row],
        *,
        content: bool,
        only: Iterable[str] = (),
        on_logs: bool = False,
        subjects: Sequence[str] = (),
    ) -> Encoder:
        """Learn the columns of ``rows``.

        Parameters
        ----------
        rows : sequence of Row
            Training rows.
        content : bool
            Whether the voxels' characteristics are used.
        only : iterable of str, optional
            Restrict the numbers to these names or prefixes.
        on_logs : bool
            Whether the target is a logarithm. Of a heavy-tailed column of any table its logarithm
            alone is then used: an exponential of its largest values is absurd.
        subjects : sequence of str, optional
            Subject of each row. Without them no combination of columns is out of range.
        """
        prefixes = tuple(only)
        texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
        names = sorted({name for row in rows for name in row} - texts)
        values = {name: _numbers(rows, name) for name in names}
        replaced = {f"{PREFIX}{name.removeprefix(LOG)}" for name in names if name.startswith(LOG)}
        heavy = {name for name in replaced & set(names) if on_logs and is_heavy(values[name])}
        numbers = _informative(
            {
                name: column
                for name, column in values.items()
                if name not in heavy
                and (content or not name.startswith(CONTENT))
                and (not prefixes or name.startswith(prefixes))
            }
        )
        categories = {name: _categories(rows, name) for name in sorted(texts)}
        truncated = tuple(name for name, (_, is_truncated) in categories.items() if is_truncated)
        return cls(
            numbers,
            tuple(categories),
            tuple(float(np.nanmedian(values[name])) for name in numbers),
            tuple(n for n, name in enumerate(numbers) if np.isnan(values[name]).any()),
            tuple(tuple(common) for common, _ in categories.values()),
            truncated,
            tuple(_ranges(values)),
            joint_range_of(values, sorted(filter(_is_watched, values)), subjects),
        )

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features outside the training range.

        Sizes may exceed it by the factor `REACH`; other numbers may not, and categories must
        occur in training. Of a row in range of all of them, the combinations of two numbers that
        training does not cover are named, see `voxcast.features.combinations`.
        """
        features: list[list[str]] = [[] for _ in rows]
        for name, low, high in self.ranges:
            values = _numbers(rows, name)
            within = _within(name, values, low, high)
            for n in np.flatnonzero(np.isfinite(values) & ~within):
                features[n].append(name)
        for name, categories in zip(self.texts, self.categories, strict=True):
            if name in self.truncated:
                continue
            for n, row in enumerate(rows):
                if isinstance(row.get(name), str) and row[name] not in categories:
                    features[n].append(name)
        together = self.joint_distances(rows)
        return [tuple(names or far) for names, far in zip(features, together, strict=True)]

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the distance of each row in combinations, see `JointRange.outside`."""
        values = {name: _numbers(rows, name) for name in self.joint.sources}
        return self.joint.outside(values, len(rows))

    def transform(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the matrix of ``rows``, shape (n_rows, columns), float64."""
        columns = [_numbers(rows, name) for name in self.numbers]
        missing = [np.isnan(column) for column in columns]
        columns = [
            np.where(is_missing, median, column)
            for column, is_missing, median in zip(columns, missing, self.medians, strict=True)
        ]
        columns += [missing[n] for n in self.incomplete]
        for name, categories in zip(self.texts, self.categories, strict=True):
            values = np.array([row.get(name) for row in rows], dtype=object)
            columns += [values == category for category in categories]
        matrix = np.empty((len(rows), len(columns)))
        for n, column in enumerate(columns):
            matrix[:, n] = column
        return matrix

    @property
    def medians_by_column(self) -> dict[str, float]:
        """Medians of the numbers in training."""
        return dict(zip(self.numbers, self.medians, strict=True))

    @property
    def knows_content(self) -> bool:
        """Whether the training rows had characteristics of the voxels that are used or checked."""
        names = (*self.numbers, *(name for name, _, _ in self.ranges))
        return any(name.startswith(CONTENT) for name in names)

    @property
    def columns(self) -> list[str]:
        """Names of the matrix's columns."""
        texts = zip(self.texts, self.categories, strict=True)
        return [
            *self.numbers,
            *(f"{self.numbers[n]} missing" for n in self.incomplete),
            *(f"{name}={text}" for name, categories in texts for text in categories),
        ]

    def save(self, folder: Path) -> None:
        """Write ``encoder.json``."""
        write_sealed(folder / FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If the file is missing, damaged or of something else.
        """
        content = read_sealed(folder / FILE)
        try:
            joint = JointRange.from_json(content.pop("joint", asdict(JointRange())))
            return cls(**{name: _tuples(value) for name, value in content.items()}, joint=joint)
        except (KeyError, TypeError) as error:
            raise ModelError(f"not an encoder: {error}", folder / FILE) from None


def _informative(values: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Return the columns that are neither constant nor duplicates of an earlier one."""
    names: list[str] = []
    directions: list[np.ndarray] = []
    for name, column in values.items():
        finite = np.isfinite(column)
        if not finite.any() or np.ptp(column[finite]) <= 0:
            continue
        filled = np.where(finite, column, np.median(column[finite]))
        centred = filled - filled.mean()
        norm = float(np.linalg.norm(centred))
        direction = centred / norm if norm else centred
        comparable = len(column) >= MINIMUM_ROWS and finite.all() and bool(directions)
        if comparable and np.abs(np.stack(directions) @ direction).max() > DUPLICATE:
            continue
        names.append(name)
        directions.append(direction)
    return tuple(names)


def _categories(rows: Sequence[Row], name: str) -> tuple[list[str], bool]:
    """Return the values of a text that get a column, and whether any were dropped."""
    counts = Counter(value for row in rows if isinstance(value := row.get(name), str))
    common = sorted(counts, key=lambda text: (-counts[text], text))[:MAXIMUM_CATEGORIES]
    return sorted(common), len(counts) > len(common)


def _ranges(values: dict[str, np.ndarray]) -> Iterable[tuple[str, float, float]]:
    for name in sorted(filter(_is_watched, values)):
        # In a table of several applications not all rows have all columns.
        finite = values[name][np.isfinite(values[name])]
        if finite.size:
            yield name, float(finite.min()), float(finite.max())


def _is_watched(name: str) -> bool:
    return name.startswith(WATCHED) or (name.startswith(CONTENT) and name not in NOT_WATCHED)


def _numbers(rows: Sequence[Row], name: str) -> np.ndarray:
    """Return a column of numbers; missing and non-finite values are NaN."""
    values = [row.get(name) for row in rows]
    try:
        column = np.array(values, dtype=float)  # None becomes NaN
    except (TypeError, ValueError):
        column = np.array([_number(value) for value in values])
    return np.where(np.isfinite(column), column, np.nan)


def _number(value: object) -> float:
    return np.nan if value is None or isinstance(value, str) else float(value)  # type: ignore[arg-type]


def _within(name: str, values: np.ndarray, low: float, high: float) -> np.ndarray:
    if name.endswith("megavoxels"):
        low, high = low / REACH, high * REACH
    return (low <= values) & (values <= high)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
