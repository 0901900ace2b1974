"""A number among a table's features, on the scale on which it is combined with others.

Sizes, and what spans orders of magnitude, are compared as logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import LOG, PREFIX, WIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SIZE = "megavoxels"
LOG2 = "allocation.log2_"


@dataclass(frozen=True)
class Coordinate:
    """A column as it is compared with others.

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
