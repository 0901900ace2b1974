"""Rows to a matrix of numbers, learned from the training rows and kept as plain JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import CONTENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.features.rows import Row

# What decides the work: a run that lies outside in one of these is not like those measured.
WATCHED = (
    "allocation.",
    "host.",
    "parameter.",
    "column.",
    "header.megavoxels",
    "content.foreground_megavoxels",
)
REACH = 1.25
MOST_CATEGORIES = 30  # columns of one text; the others are zeros in all of them
SAME = 1 - 1e-6  # correlation of columns that say the same
ENOUGH = 10  # rows, fewer of which may agree by chance


@dataclass(frozen=True)
class Encoder:
    """Which columns there are, what stands in for a missing number, and the texts seen.

    A text not seen in training becomes zeros; a number that is missing becomes the median of
    training, and where some were missing there a column says so. Columns that were constant in
    training, or the image of another one, carry nothing and are left out; what they were is kept
    in `ranges`, so that `out_of_range` can tell a run that is unlike all that were measured.

    Attributes
    ----------
    numbers, medians : tuple
        Columns of numbers, with the median of each.
    gaps : tuple of str
        Numbers that were missing in some training rows.
    categories : tuple of (column, text)
        A column of zeros and ones for each.
    crowded : tuple of str
        Texts with more values than get a column: a new one is nothing unusual.
    ranges : tuple of (column, low, high)
        Of the training rows, for what is watched.
    """

    numbers: tuple[str, ...]
    medians: tuple[float, ...]
    gaps: tuple[str, ...]
    categories: tuple[tuple[str, str], ...]
    crowded: tuple[str, ...]
    ranges: tuple[tuple[str, float, float], ...]

    @classmethod
    def fit(cls, rows: Sequence[Row], *, content: bool, only: Iterable[str] = ()) -> Encoder:
        """Learn the columns of ``rows``.

        Parameters
        ----------
        rows : sequence of Row
            Training rows.
        content : bool
            Whether the voxels' characteristics are used.
        only : iterable of str, optional
            Restrict the numbers to these names or prefixes.
        """
        chosen = tuple(only)
        every = sorted({name for row in rows for name in row})
        texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
        values = {name: _column(rows, name) for name in every if name not in texts}
        names = [name for name in values if content or not name.startswith(CONTENT)]
        if chosen:
            names = [name for name in names if name.startswith(chosen)]
        numbers, medians, gaps = _numbers({name: values[name] for name in names})
        categories, crowded = _categories(rows, sorted(texts))
        ranges = []
        for name in sorted(name for name in values if name.startswith(WATCHED)):
            # A table of several applications has the columns of all.
            seen = values[name][np.isfinite(values[name])]
            if seen.size:
                ranges.append((name, float(seen.min()), float(seen.max())))
        return cls(numbers, medians, gaps, categories, crowded, tuple(ranges))

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each run in what it is unlike all that were measured.

        Sizes and a machine's speeds may go `REACH` times beyond the range seen; other numbers may
        not leave it, and texts must have been seen.
        """
        found: list[list[str]] = [[] for _ in rows]
        for name, low, high in self.ranges:
            values = _column(rows, name)
            inside = _within(name, values, low, high)
            for n in np.flatnonzero(np.isfinite(values) & ~inside):
                found[n].append(name)
        known, texts = set(self.categories), {name for name, _ in self.categories}
        for name in sorted(texts - set(self.crowded)):
            for n, row in enumerate(rows):
                if isinstance(row.get(name), str) and (name, row[name]) not in known:
                    found[n].append(name)
        return [tuple(own) for own in found]

    def transform(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the matrix of ``rows``, shape (n_rows, columns), float64."""
        raw = np.empty((len(rows), len(self.numbers)))
        for k, name in enumerate(self.numbers):
            raw[:, k] = _column(rows, name)
        known = np.isfinite(raw)
        missing = ~known[:, [self.numbers.index(name) for name in self.gaps]]
        texts = np.zeros((len(rows), len(self.categories)))
        for k, (name, text) in enumerate(self.categories):
            texts[:, k] = [row.get(name) == text for row in rows]
        filled = np.where(known, raw, np.array(self.medians, dtype=float))
        return np.column_stack([filled, missing.astype(float), texts])

    @property
    def medians_by_column(self) -> dict[str, float]:
        """Medians of the numbers in training."""
        return dict(zip(self.numbers, self.medians, strict=True))

    @property
    def columns(self) -> list[str]:
        """Names of the matrix's columns."""
        texts = [f"{name}={text}" for name, text in self.categories]
        return [*self.numbers, *(f"{name} missing" for name in self.gaps), *texts]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Encoder:
        """Read what `to_json` gave."""
        return cls(
            tuple(content["numbers"]),
            tuple(content["medians"]),
            tuple(content["gaps"]),
            tuple((name, text) for name, text in content["categories"]),
            tuple(content["crowded"]),
            tuple((name, low, high) for name, low, high in content["ranges"]),
        )


def _numbers(
    values: dict[str, np.ndarray],
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[str, ...]]:
    """Return the columns that carry something, their medians, and those with gaps."""
    kept: list[str] = []
    medians: list[float] = []
    gaps: list[str] = []
    unit: list[np.ndarray] = []
    for name, column in values.items():
        known = np.isfinite(column)
        if not known.any() or np.ptp(column[known]) <= 0:
            continue
        median = float(np.median(column[known]))
        centred = np.where(known, column, median) - np.where(known, column, median).mean()
        size = float(np.linalg.norm(centred))
        direction = centred / size if size else centred
        many = len(column) >= ENOUGH and known.all() and bool(unit)
        if many and np.abs(np.stack(unit) @ direction).max() > SAME:
            continue
        kept.append(name)
        medians.append(median)
        unit.append(direction)
        if not known.all():
            gaps.append(name)
    return tuple(kept), tuple(medians), tuple(gaps)


def _categories(
    rows: Sequence[Row], names: Sequence[str]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    found: list[tuple[str, str]] = []
    crowded = []
    for name in names:
        counts = Counter(value for row in rows if isinstance(value := row.get(name), str))
        common = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_CATEGORIES]
        found += [(name, text) for text in sorted(common)]
        if len(counts) > len(common):
            crowded.append(name)
    return tuple(found), tuple(crowded)


def _column(rows: Sequence[Row], name: str) -> np.ndarray:
    values = [row.get(name) for row in rows]
    try:
        return np.array(values, dtype=float)  # None becomes NaN
    except (TypeError, ValueError):
        return np.array([_number(value) for value in values])


def _number(value: object) -> float:
    return np.nan if value is None or isinstance(value, str) else float(value)  # type: ignore[arg-type]


def _within(name: str, values: np.ndarray, low: float, high: float) -> np.ndarray:
    if name.endswith("megavoxels"):
        low, high = low / REACH, high * REACH
    elif name.startswith("host.log_"):
        low, high = low - np.log(REACH), high + np.log(REACH)
    found: np.ndarray = (low <= values) & (values <= high)
    return found
