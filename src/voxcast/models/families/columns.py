"""Columns of rows: numbers, which of them are not redundant, and the levels of categories.

The most frequent levels of a category have a column of zeros and ones. All levels are known by
short hashes, which tell them from levels never seen.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.features.rows import Row

DUPLICATE = 1 - 1e-6  # correlation of columns that carry the same information
MINIMUM_ROWS = 10  # fewer may correlate by chance
MAXIMUM_ENCODED = 30  # levels of one text with a column; each costs time and memory in every row
DIGEST_BYTES = 6  # two of 20,000 levels agree with a probability of 1e-6


def split_columns(rows: Sequence[Row]) -> tuple[dict[str, np.ndarray], dict[str, list[object]]]:
    """Return the columns of numbers and those of categories, each in the order of their names."""
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    numbers = sorted({name for row in rows for name in row} - texts)
    return (
        {name: numbers_of(rows, name) for name in numbers},
        {name: [row.get(name) for row in rows] for name in sorted(texts)},
    )


def informative(values: dict[str, np.ndarray]) -> tuple[str, ...]:
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


def numbers_of(rows: Sequence[Row], name: str) -> np.ndarray:
    """Return a column of numbers; missing and non-finite values are NaN."""
    values = [row.get(name) for row in rows]
    try:
        column = np.array(values, dtype=float)  # None becomes NaN
    except (TypeError, ValueError):
        column = np.array([_number(value) for value in values])
    return np.where(np.isfinite(column), column, np.nan)


def _number(value: object) -> float:
    return np.nan if value is None or isinstance(value, str) else float(value)  # type: ignore[arg-type]


def encoded_and_all(values: Iterable[object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the levels that get a column, and all levels, both sorted; no text is missing.

    Examples
    --------
    >>> names = [f"n{k:02d}" for k in range(40)]
    >>> encoded, levels = encoded_and_all([*names, *names[10:]])
    >>> encoded == tuple(names[10:]), len(levels)
    (True, 40)
    """
    counts = Counter(value for value in values if isinstance(value, str))
    common = sorted(counts, key=lambda text: (-counts[text], text))[:MAXIMUM_ENCODED]
    return tuple(sorted(common)), tuple(sorted(counts))


def digest(text: str) -> str:
    """Return a short hash of a level, in hexadecimal."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=DIGEST_BYTES).hexdigest()


def codes(values: Iterable[object], digests: Sequence[str]) -> np.ndarray:
    """Return the position of each value's digest, (n,); -1 for unknown values and no texts."""
    position = {key: n for n, key in enumerate(digests)}
    return np.array(
        [position.get(digest(v), -1) if isinstance(v, str) else -1 for v in values], dtype=int
    )
