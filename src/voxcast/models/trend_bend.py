"""Whether a trend bends down among the last rows before the edge of the range.

A tool whose work is capped grows up to a limit and then no more. Few rows lie beyond that limit,
so that over the rows that are held out together the trend is still better than the edge. Here the
held-out rows tell where it ends: their logarithms are regressed on the trend and on the part of it
that lies past a knot, for knots ever closer to the edge (piecewise linear regression; Seber and
Wild 1989, Nonlinear Regression, section 9.3). Only a bend beyond chance counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHANCE = 0.05  # that a table without any bend is taken for one with a bend
BENT = 0.8  # times the trend before the knot, which is rarely known better than that
MIN_GROUPS = 5  # past a knot
SMALLEST_TREND = 1e-3  # logarithm, of the part past a knot


def shares_past_bends(
    missed: np.ndarray,
    trends: Sequence[Mapping[str, float]],
    distances: Sequence[Mapping[str, float]],
    groups: Sequence[str],
) -> dict[str, float]:
    """Return which share of its trend each column keeps at the edge; columns without a bend lack.

    Parameters
    ----------
    missed : ndarray, shape (n_rows,)
        Logarithms of the targets over the answers at the edge.
    trends, distances : sequence of mapping of str to float, length n_rows
        By column, the logarithm by which the trend changes the answer, and that of how far the
        row lies beyond the edge; columns in which it lies within lack.
    groups : sequence of str, length n_rows
        Rows of a group are not independent.

    Returns
    -------
    dict of str to float
        From 0 to 1. A share that is not above 0 beyond chance is 0.
    """
    total = np.array([sum(row.values()) for row in trends])
    _, codes = np.unique(np.asarray(groups), return_inverse=True)
    tried: dict[str, list[np.ndarray]] = {}
    for name in dict.fromkeys(name for row in trends for name in row):
        trend = np.array([row.get(name, 0.0) for row in trends])
        distance = np.array([row.get(name, 0.0) for row in distances])
        tried[name] = list(_past_knots(trend, distance, codes))
    count = sum(map(len, tried.values()))
    shares = {}
    for name, parts in tried.items():
        # At the edge of another column the answers may be too high or too low by another amount.
        rows = np.flatnonzero([name in row for row in trends])
        trend = np.array([trends[n][name] for n in rows])
        for past in parts:  # the last that shows a bend is the closest to the edge
            x = np.column_stack([np.ones(len(rows)), trend, past[rows], total[rows] - trend])
            share, before, margin = _share(missed[rows], x, codes[rows], CHANCE / count)
            if share + margin < min(BENT * max(before, 1.0), 1.0):
                shares[name] = min(share, 1.0) if share > margin else 0.0
    return shares


def _past_knots(trend: np.ndarray, distance: np.ndarray, codes: np.ndarray) -> list[np.ndarray]:
    """Return the parts of a trend past knots, which halve the rows until few groups are left."""
    beyond = np.sort(distance[distance > 0])
    parts = []
    count = len(beyond) // 2
    while count:
        knot = beyond[-count - 1]
        is_past = distance > knot
        if len(np.unique(codes[is_past])) < MIN_GROUPS:
            break
        past = np.where(is_past, trend * (1 - knot / np.where(is_past, distance, 1.0)), 0.0)
        if np.abs(past).max() > SMALLEST_TREND:
            parts.append(past)
        count //= 2
    return parts


def _share(
    missed: np.ndarray, x: np.ndarray, codes: np.ndarray, chance: float
) -> tuple[float, float, float]:
    """Return the share of a trend past a knot, that before it, and the margin of a one-sided test.

    The standard error is the larger of the ordinary least-squares one and the one that allows
    for groups and unequal variances (Liang and Zeger 1986).

    Parameters
    ----------
    x : ndarray, shape (n_rows, 4)
        Ones, the trend of the column, its part past the knot, and the trend of the other columns.
    """
    from scipy import stats

    x = x[:, np.any(x, axis=0)]
    freedom = len(x) - x.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(x) < x.shape[1]:
        return 1.0, 1.0, 0.0
    inverse = np.linalg.inv(x.T @ x)
    coefficients = inverse @ x.T @ missed
    residuals = missed - x @ coefficients
    sums = np.zeros((codes.max() + 1, x.shape[1]))
    np.add.at(sums, codes, x * residuals[:, None])
    at_end = np.zeros(x.shape[1])
    at_end[1:3] = 1.0  # the trend, and what changes past the knot
    plain = at_end @ inverse @ at_end * (residuals @ residuals) / freedom
    clustered = at_end @ inverse @ sums.T @ sums @ inverse @ at_end
    margin = stats.t.ppf(1 - chance, freedom) * np.sqrt(max(plain, clustered))
    return float(coefficients @ at_end), float(coefficients[1]), float(margin)
