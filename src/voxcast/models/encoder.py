"""Rows to a matrix of numbers, learned from the training rows and kept as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import CATEGORIES, CONTENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.features.rows import Row

# What decides the work: a run that lies outside in one of these is not like those measured.
WATCHED = ("allocation.", "parameter.", "header.megavoxels", "content.foreground_megavoxels")
REACH = 1.25


@dataclass(frozen=True)
class Encoder:
    """Column names with what stands in for a missing number, and the categories seen.

    A category not seen in training becomes zeros; a number that is missing becomes the training
    median. Columns that were constant in training carry nothing and are left out; what they were
    is kept in `ranges`, so that `beyond` can tell a run that is unlike all that were measured.
    """

    numbers: tuple[str, ...]
    medians: tuple[float, ...]
    categories: tuple[tuple[str, str], ...]
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
        names = {name for row in rows for name in row if name not in CATEGORIES}
        if not content:
            names = {name for name in names if not name.startswith(CONTENT)}
        if chosen:
            names = {name for name in names if name.startswith(chosen)}
        numbers, medians = [], []
        for name in sorted(names):
            values = np.array([float(row.get(name, np.nan)) for row in rows])
            known = values[np.isfinite(values)]
            if known.size and np.ptp(known) > 0:
                numbers.append(name)
                medians.append(float(np.median(known)))
        categories = sorted({(c, str(row[c])) for row in rows for c in CATEGORIES if c in row})
        ranges = []
        for name in sorted({name for row in rows for name in row if name.startswith(WATCHED)}):
            # A table of several applications has the columns of all.
            seen = [x for row in rows if np.isfinite(x := float(row.get(name, np.nan)))]
            if seen:
                ranges.append((name, min(seen), max(seen)))
        return cls(tuple(numbers), tuple(medians), tuple(categories), tuple(ranges))

    def beyond(self, row: Row) -> list[str]:
        """Return in what a run is unlike all that were measured.

        Sizes may go `REACH` times beyond the range seen; parameters and allocation may not leave
        it, and categories must have been seen.
        """
        names = [
            name
            for name, low, high in self.ranges
            if name in row and not (low / _reach(name) <= float(row[name]) <= high * _reach(name))
        ]
        known = set(self.categories)
        return names + [c for c in CATEGORIES if c in row and (c, str(row[c])) not in known]

    def transform(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the matrix of ``rows``, shape (n_rows, n_numbers + n_categories), float64."""
        matrix = np.empty((len(rows), len(self.numbers) + len(self.categories)))
        for n, row in enumerate(rows):
            for k, (name, median) in enumerate(zip(self.numbers, self.medians, strict=True)):
                value = float(row.get(name, np.nan))
                matrix[n, k] = value if np.isfinite(value) else median
            for k, (category, value_seen) in enumerate(self.categories, start=len(self.numbers)):
                matrix[n, k] = float(row.get(category) == value_seen)
        return matrix

    @property
    def columns(self) -> list[str]:
        """Names of the matrix's columns."""
        return [*self.numbers, *(f"{category}={value}" for category, value in self.categories)]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Encoder:
        """Read what `to_json` gave."""
        return cls(
            tuple(content["numbers"]),
            tuple(content["medians"]),
            tuple((c, v) for c, v in content["categories"]),
            tuple((name, low, high) for name, low, high in content["ranges"]),
        )


def _reach(name: str) -> float:
    return REACH if name.endswith("megavoxels") else 1.0
