"""Ranges of numbers over the training rows, and which columns are checked against theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.rows import CONTENT, content_names
from voxcast.images.characteristics import CHARACTERISTICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
REACH = 1.25


def ranges_of(values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, float, float]]:
    """Yield name, smallest and largest value of the columns that are checked."""
    for name in sorted(filter(is_watched, values)):
        # In a table of several applications not all rows have all columns.
        finite = values[name][np.isfinite(values[name])]
        if finite.size:
            yield name, float(finite.min()), float(finite.max())


def is_watched(name: str) -> bool:
    """Tell whether a column is checked."""
    return name.startswith(WATCHED) or (name.startswith(CONTENT) and name not in NOT_WATCHED)


def within(name: str, values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return which values are in a range, which sizes may exceed by `REACH`; false for NaN."""
    if name.endswith("megavoxels"):
        low, high = low / REACH, high * REACH
    return (low <= values) & (values <= high)
