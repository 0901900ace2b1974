"""Columns of numbers of rows, and which of them are not redundant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.features.rows import Row

DUPLICATE = 1 - 1e-6  # correlation of columns that carry the same information
MINIMUM_ROWS = 10  # fewer may correlate by chance


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
