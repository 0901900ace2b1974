"""Columns that give the target nearly exactly, as a column does that is known only after the run.

A deterministic tool has such columns too, and its inputs must be used. No value can tell the two
apart, so nothing is left out here: the columns are returned, for the user to be told.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOSE_RANKS = 0.99  # rank correlation with the target from which a column is close
CLOSE = 0.05  # relative error below which columns are close; runs repeat about as closely
CLOSE_PARTS = 0.15  # the same for differences and sums, which are rarely so by chance
MOST = 0.8  # share of the rows that must be as close
SHARE_IN_STEPS = 0.95  # of the rows of a column that is the target in steps
MIN_IN_STEPS = 5  # rows that have another value than the most common
GAIN = 3.0  # times closer that a column must be than none, and two than the closer of them
ALIKE = 1.25  # ratio between the coefficients of a sum below which they are taken for equal
PART = 0.01  # of the target, below which a column is no part of a sum
MIN_ROWS = 10  # for any of this to mean something, and distinct values for a rank correlation
FEW_VALUES = 20  # of a column that is taken for an input beside one with more
MAX_PAIRED = 80  # columns whose pairs and sums are tried
PAIRED_ROWS = 500  # by which they are
MAX_ROWS = 2000  # by which single columns are
NEIGHBOURS = 2  # rows on each side, by which a column predicts a row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CloseColumns:
    """Columns that give the target nearly exactly.

    Attributes
    ----------
    columns : tuple of str
        Of which it is no longer given without one, or without all of a sum.
    text : str
        What of them it follows: ``x``, ``b minus a``, ``core_h over cpus``.
    manner : str
        How: as a verb with the target's name.
    """

    columns: tuple[str, ...]
    text: str
    manner: str


def close_columns(
    numbers: Mapping[str, np.ndarray],
    texts: Mapping[str, np.ndarray],
    target: np.ndarray,
    target_name: str,
) -> list[CloseColumns]:
    """Return the columns that give the target nearly exactly: alone, by two, or as a sum.

    Parameters
    ----------
    numbers : mapping of str to ndarray, shape (n_rows,)
        NaN where missing.
    texts : mapping of str to ndarray, shape (n_rows,)
        Codes of the texts, -1 where missing.
    target : ndarray, shape (n_rows,)
        Positive and finite.
    """
    # The order of the rows must tell nothing: a table may be sorted by its target.
    rows = np.random.default_rng(0).permutation(len(target))[:MAX_ROWS]
    y = target[rows]
    if len(rows) < MIN_ROWS:
        return []
    columns = {name: values[rows] for name, values in numbers.items()}
    codes = {name: values[rows] for name, values in texts.items()}
    close = _alone(columns, codes, y, target_name)
    alone = {name for group in close for name in group.columns}
    others = {
        name: values
        for name, values in columns.items()
        if name not in alone and np.isfinite(values).mean() > 0.5 and np.nanstd(values) > 0
    }
    if len(others) > MAX_PAIRED:
        logger.info("%d columns: pairs are tried of the first %d", len(others), MAX_PAIRED)
    by_name = {n: values[:PAIRED_ROWS] for n, values in list(others.items())[:MAX_PAIRED]}
    y = y[:PAIRED_ROWS]
    return [*close, *_pairs(by_name, y, target_name), *_sums(by_name, y, target_name)]


def _alone(
    columns: Mapping[str, np.ndarray],
    codes: Mapping[str, np.ndarray],
    y: np.ndarray,
    target_name: str,
) -> list[CloseColumns]:
    close = []
    for name, values in columns.items():
        has_value = np.isfinite(values)
        x, of = values[has_value], y[has_value]
        if len(x) < MIN_ROWS or len(np.unique(x)) < 2:
            continue
        if len(np.unique(x)) >= MIN_ROWS and abs(rank := _rank_correlation(x, of)) >= CLOSE_RANKS:
            manner = f"ranks the rows as {target_name} does (correlation {rank:.4f})"
        elif (error := _error_alone(x, of)) <= CLOSE and GAIN * error < _spread(
            np.ones(len(of)), of
        ):
            manner = _within(error, target_name)
        elif _in_steps(x, of) or _in_steps(-x, of):
            manner = f"is {target_name} in steps"
        else:
            continue
        close.append(CloseColumns((name,), name, manner))
    for name, values in codes.items():
        medians = {code: np.median(y[values == code]) for code in np.unique(values)}
        positions = {code: n for n, code in enumerate(sorted(medians, key=lambda c: medians[c]))}
        if len(medians) > 1 and _in_steps(np.array([positions[code] for code in values]), y):
            close.append(CloseColumns((name,), name, f"is {target_name} in steps"))
    return close


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    from scipy import stats

    return float(stats.spearmanr(x, y).statistic)


def _error_alone(x: np.ndarray, y: np.ndarray) -> float:
    """Return the relative error, of most rows, predicted by the rows nearest in a column."""
    order = np.argsort(x, kind="stable")
    logs = np.log(y[order])
    shifts = [s for s in range(-NEIGHBOURS, NEIGHBOURS + 1) if s]
    near = np.stack([np.roll(logs, shift) for shift in shifts])
    inner = slice(NEIGHBOURS, -NEIGHBOURS)
    return float(np.quantile(np.abs(logs - near.mean(axis=0))[inner], MOST))


def _in_steps(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether values are a rising step function of the target: buckets, or whole minutes."""
    values, counts = np.unique(x, return_counts=True)
    if len(values) > len(x) / 2 or len(x) - counts.max() < MIN_IN_STEPS:
        return False
    by_target, rising = x[np.argsort(y, kind="stable")], np.sort(x)
    most_common = values[counts.argmax()]  # of a rare flag nearly all rows agree
    others = (by_target != most_common) | (rising != most_common)
    return bool((by_target == rising)[others].mean() >= SHARE_IN_STEPS)


def _pairs(
    columns: Mapping[str, np.ndarray], y: np.ndarray, target_name: str
) -> list[CloseColumns]:
    """Return products, ratios and differences of two columns; of each pair the closest.

    Of a product or a ratio with a column of few values the other one is returned: the few are an
    input, such as a number of CPUs. Otherwise no value tells which of the two is the input.
    """
    alone = {name: _alone_spread(values, y) for name, values in columns.items()}
    distinct = {name: len(np.unique(values)) for name, values in columns.items()}
    close = []
    for a, b in combinations(columns, 2):
        few, many = sorted((a, b), key=lambda name: distinct[name])
        varied = (many,) if distinct[few] <= FEW_VALUES else (a, b)
        u, v = columns[a], columns[b]
        forms = [
            (_spread(_positive(u) * _positive(v), y), CLOSE, f"{a} times {b}", varied),
            (_spread(_positive(u) / _positive(v), y), CLOSE, f"{a} over {b}", varied),
            (_spread(_positive(v) / _positive(u), y), CLOSE, f"{b} over {a}", varied),
            (_spread(u - v, y), CLOSE_PARTS, f"{a} minus {b}", (a, b)),
            (_spread(v - u, y), CLOSE_PARTS, f"{b} minus {a}", (b, a)),
        ]
        error, limit, text, names = min(forms, key=lambda form: form[0] / form[1])
        if error <= limit and GAIN * error <= min(alone[a], alone[b]):
            close.append(CloseColumns(names, text, _within(error, target_name)))
    return close


def _sums(
    columns: Mapping[str, np.ndarray], y: np.ndarray, target_name: str
) -> list[CloseColumns]:
    """Return the columns whose sum the target is, as the times of a run's parts."""
    from scipy.optimize import nnls

    names = [name for name, values in columns.items() if np.nanmin(values) >= 0]
    if len(names) < 2:
        return []
    shares = np.stack([np.nan_to_num(columns[name]) / y for name in names], axis=1)
    scales = np.median(shares, axis=0)
    scales[scales == 0] = 1.0
    weights = nnls(shares / scales, np.ones(len(y)))[0] / scales
    parts = np.flatnonzero(weights * np.median(shares, axis=0) >= PART)
    if len(parts) < 2 or weights[parts].max() > ALIKE * weights[parts].min():
        return []
    error = _spread(shares[:, parts].sum(axis=1) * y, y)
    chosen = tuple(names[n] for n in parts)
    if error > CLOSE_PARTS or GAIN * error > min(_spread(columns[name], y) for name in chosen):
        return []
    return [CloseColumns(chosen, " plus ".join(chosen), _within(error, target_name))]


def _within(error: float, target_name: str) -> str:
    return f"gives {target_name} within {100 * error:.1f} %"


def _alone_spread(values: np.ndarray, y: np.ndarray) -> float:
    return min(_spread(values, y), _spread(1 / _positive(values), y))


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)


def _spread(values: np.ndarray, y: np.ndarray) -> float:
    """Return how far the target is from proportion to some values, relatively, in most rows."""
    ratios = np.log(_positive(values) / y)
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < 0.9 * len(y):
        return float("inf")
    return float(np.quantile(np.abs(ratios - np.median(ratios)), MOST))
