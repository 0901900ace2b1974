"""Hartigan's dip: how far a sample is from the nearest distribution of one mode.

After J. A. and P. M. Hartigan, The Dip Test of Unimodality, Annals of Statistics 13, 1985.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def dip(x: NDArray[np.float64]) -> float:
    """Return the dip of the sorted sample ``x``, between 1 / (2 n) and 1/4.

    A distribution of one mode is convex up to it and concave after it. Within the interval that
    may hold the mode, the greatest convex minorant and the least concave majorant of the steps
    are compared; where they are furthest apart the interval is narrowed, until what lies outside
    of it is as far from convex or concave as anything inside.
    """
    n = len(x)
    if n < 2 or x[0] == x[-1]:
        return 1 / (2 * max(n, 1))
    low, high = 0, n - 1
    distance = 1.0  # times 2 n, as all distances here
    while True:
        minorant = _hull(x, low, high, convex=True)
        majorant = _hull(x, low, high, convex=False)
        gap, new_low, new_high = _widest(x, minorant, majorant)
        if gap <= distance:
            break
        distance = max(
            distance,
            _outside(x, [i for i in minorant if i <= new_low], convex=True),
            _outside(x, [i for i in majorant if i >= new_high], convex=False),
        )
        if (new_low, new_high) == (low, high):
            break
        low, high = new_low, new_high
    return distance / (2 * n)


def _hull(x: NDArray[np.float64], low: int, high: int, *, convex: bool) -> list[int]:
    """Return the corners of the minorant (convex) or majorant of steps ``low`` to ``high``."""
    sign = 1.0 if convex else -1.0
    corners: list[int] = []
    for i in range(low, high + 1):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            turn = (b - a) * (x[i] - x[b]) - (i - b) * (x[b] - x[a])
            if sign * turn < 0:
                break
            corners.pop()
        corners.append(i)
    return corners


def _widest(
    x: NDArray[np.float64], minorant: list[int], majorant: list[int]
) -> tuple[float, int, int]:
    """Return the largest distance of the hulls at a corner, and the interval around it."""
    best, low, high = 0.0, minorant[0], minorant[-1]
    at, start, end = np.array(majorant), x[minorant], np.array(minorant)
    below = np.interp(x[at], start, end)
    gaps = at - below + 1
    k = int(np.argmax(gaps))
    if gaps[k] > best:
        best, high = float(gaps[k]), majorant[k]
        low = max(i for i in minorant if i <= high)
    above = np.interp(x[minorant], x[majorant], majorant)
    gaps = above - np.array(minorant) + 1
    k = int(np.argmax(gaps))
    if gaps[k] > best:
        best, low = float(gaps[k]), minorant[k]
        high = min(i for i in majorant if i >= low)
    return best, low, high


def _outside(x: NDArray[np.float64], corners: list[int], *, convex: bool) -> float:
    """Return the largest distance of the steps from the hull through ``corners``."""
    if len(corners) < 2:
        return 0.0
    i = np.arange(corners[0], corners[-1] + 1)
    line = np.interp(x[i], x[corners], corners)
    return float(np.max(i - line if convex else line - i)) + 1
