"""Numbers that differ from run to run and tell nothing of the target: they hide repeats.

An accounting export has a priority or a waiting time in each row. Twenty runs of one input then
look like twenty configurations, and repeats on both sides of a fold make errors and bounds too
good. Which columns these are is decided by their effect within the rows that are equal otherwise:
without them many rows must be repeats, and within these none may tell anything of the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import finite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from voxcast.features.any_table import Columns

DISTINCT = 0.1  # share of distinct values from which a number may be idle; fewer are settings
MIN_DISTINCT = 20
UNIQUE = 0.9  # the same share of a text, whose values then occur about once each
REPEATED = 0.2  # share of the rows that repeat another one without the idle columns
MIN_FREEDOM = 10  # rows beyond the first of each configuration; fewer do not show which are idle
CHANCE = 0.01  # that an idle column is taken for an informative one
TESTS = 3  # of each column


def idle_columns(table: pd.DataFrame, columns: Columns) -> tuple[str, ...]:
    """Return the columns without which many rows are repeats, if they tell nothing of the target.

    Parameters
    ----------
    table : DataFrame
        Rows with a label.

    Returns
    -------
    tuple of str
        In the order of ``columns``; empty with a column of groups, and where rows do not repeat.
    """
    names = (*columns.numbers, *columns.texts)
    if columns.group is not None:
        return ()
    values = {name: _values(table[name], is_number=name in columns.numbers) for name in names}
    distinct = {name: len(np.unique(x[~np.isnan(x)])) for name, x in values.items()}
    least = max(MIN_DISTINCT, DISTINCT * len(table))
    candidates = [name for name in columns.numbers if distinct[name] >= least]
    candidates += [name for name in columns.texts if distinct[name] >= UNIQUE * len(table)]
    if not candidates:
        return ()
    hashes = _hashes(values)
    configurations = int(_groups(hashes, ()).max()) + 1
    logs = np.log(finite(table[columns.target]))
    if not _is_repeated(_groups(hashes, candidates), configurations):
        return ()
    removed: list[str] = []
    # Most values first: an input that is repeated has fewer.
    for name in sorted(candidates, key=lambda name: -distinct[name]):
        removed.append(name)
        removed = _idle(removed, values, logs, _groups(hashes, removed), configurations)
    removed = _idle(removed, values, logs, _groups(hashes, removed), configurations)
    if len(removed) == len(names) or not _is_repeated(_groups(hashes, removed), configurations):
        return ()
    return tuple(name for name in names if name in removed)


def _idle(
    removed: list[str],
    values: Mapping[str, np.ndarray],
    logs: np.ndarray,
    groups: np.ndarray,
    configurations: int,
) -> list[str]:
    """Return the removed columns that hide repeats and tell nothing.

    While no more rows repeat without them, all are returned.
    """
    if not _is_repeated(groups, configurations):
        return removed
    return [
        name
        for name in removed
        if _varies(values[name], groups) and not _tells(values[name], logs, groups)
    ]


def _values(column: pd.Series, *, is_number: bool) -> np.ndarray:
    """Return numbers, or codes of texts; NaN where missing."""
    import pandas as pd

    values = finite(column) if is_number else pd.factorize(column.astype(object))[0].astype(float)
    is_missing = ~np.isfinite(values) if is_number else values < 0
    return np.where(is_missing, np.nan, values)


def _hashes(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return hashes whose sum over columns identifies rows, each of shape (n_rows,)."""
    from pandas.util import hash_array

    return {
        name: hash_array(hash_array(x + 0.0) + np.uint64(number))  # -0.0 is 0.0
        for number, (name, x) in enumerate(values.items())
    }


def _groups(hashes: Mapping[str, np.ndarray], removed: Sequence[str]) -> np.ndarray:
    """Return the number of the configuration of each row, by the columns that are not removed."""
    total = np.zeros_like(next(iter(hashes.values())))  # without any column all rows are equal
    for name, of_column in hashes.items():
        if name not in removed:
            total += of_column
    groups: np.ndarray = np.unique(total, return_inverse=True)[1]
    return groups


def _is_repeated(groups: np.ndarray, configurations: int) -> bool:
    """Whether many more rows repeat another one than with all columns."""
    repeats = configurations - (int(groups.max()) + 1)
    return repeats >= max(REPEATED * len(groups), MIN_FREEDOM)


def _varies(x: np.ndarray, groups: np.ndarray) -> bool:
    """Whether a column differs between rows of a group."""
    order = np.lexsort((x, groups))
    x, groups = x[order], groups[order]
    is_same = (x[1:] == x[:-1]) | (np.isnan(x[1:]) & np.isnan(x[:-1]))
    return bool(((groups[1:] == groups[:-1]) & ~is_same).any())


def _tells(x: np.ndarray, logs: np.ndarray, groups: np.ndarray) -> bool:
    """Whether a column carries information on the target within rows that are equal otherwise.

    By the correlation of ranks, by that with their squares, and by the successive differences in
    the order of the column (von Neumann 1941), which see any smooth dependence.
    """
    from scipy import stats

    has_value = ~np.isnan(x)
    sizes = np.bincount(groups[has_value], minlength=int(groups.max()) + 1)
    used = has_value & (sizes[groups] > 1)
    x, y = stats.rankdata(x[used]), logs[used]
    groups = np.unique(groups[used], return_inverse=True)[1]
    freedom = len(y) - (int(groups.max(initial=-1)) + 1) - 1
    if freedom < MIN_FREEDOM:
        return True
    # The ranks of deviations, so that an outlier does not hide the rest.
    y = _centred(stats.rankdata(_centred(y, groups)), groups)
    if not np.any(y):
        return False
    x = _centred(x, groups)
    chances = [_chance(part, y, freedom) for part in (x, _centred(x**2, groups))]
    order = np.lexsort((x, groups))
    chances.append(_chance_of_differences(y[order], groups[order]))
    return min(chances) < CHANCE / TESTS


def _centred(x: np.ndarray, groups: np.ndarray) -> np.ndarray:
    means = np.bincount(groups, weights=x) / np.bincount(groups)
    centred: np.ndarray = x - means[groups]
    return centred


def _chance(x: np.ndarray, y: np.ndarray, freedom: int) -> float:
    """Return the probability of a correlation as large, for values centred within groups."""
    from scipy import stats

    norm = np.sqrt((x @ x) * (y @ y))
    if norm == 0:
        return 1.0
    correlation = min(abs(float(x @ y / norm)), 1 - 1e-12)
    t = correlation * np.sqrt(freedom / (1 - correlation**2))
    return float(2 * stats.t.sf(t, freedom))


def _chance_of_differences(y: np.ndarray, groups: np.ndarray) -> float:
    """Return the probability that neighbours in a group are as alike, for rows in their order."""
    from scipy import stats

    is_same = groups[1:] == groups[:-1]
    differences = float((np.diff(y)[is_same] ** 2).sum())
    squares = np.bincount(groups, weights=y**2)
    sizes = np.bincount(groups).astype(float)
    variance = float((4 * squares**2 * (sizes - 2) / (sizes**2 - 1)).sum())
    if variance == 0:
        return 1.0
    return float(stats.norm.sf((2 * squares.sum() - differences) / np.sqrt(variance)))
