"""Columns of a table that cannot be known before a run, or say nothing about other runs.

A column of accounting shares the run with the target: its values track the target row by row, as
no property of an input does. But a size that drives the time can track it as closely, so that
closeness alone decides nothing. What decides, in this order:

1. A name that accounting systems use for what they measure: MaxRSS, elapsed, cpu_time.
2. A name that may be one, such as `duration`, of values that are about the target and rank alike.
3. A difference, sum, product or ratio of two columns that is the target, as end minus start.
4. The target in another unit, values in proportion to it, or values that determine it more exactly
   than a run can be repeated; unless the name is that of an input, or nothing else in the table
   tells of the target, as where one size alone drives the time.

A close column that none of these finds is used, and said to be close.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.column_names import Name, name_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SAME_RANKS = 0.9  # rank correlation of a column that may be a measurement of the run
CLOSE = 0.99  # from which a column is said to track the target
# Ratio to the target of the same quantity in another unit, and the share of rows that have it.
UNITS = (1.0, 60.0, 3600.0, 86400.0, 1e3, 1e6, 1e9, 2.0**10, 2.0**20, 2.0**30)
SAME_UNIT, SAME_SHARE, SAME_SPREAD = 0.01, 0.9, 0.1
SLOPE = 0.03  # from 1, of logarithms in proportion
EXACT = 2e-3  # relative; repeats of a run on a quiet machine differ by more
MIN_VALUES = 10  # distinct ones, for any of this to mean something
TELLING = 0.5  # rank correlation from which another column tells of the target
MAX_PAIRED = 40  # columns whose pairs are tried
MAX_ROWS = 3000  # of which this is computed


@dataclass(frozen=True)
class Suspicion:
    """A column that tracks the target.

    Attributes
    ----------
    reason : str
        What was found, as a clause about the column.
    leave_out : bool
        Whether it is left out; otherwise it is used, and the user told.
    """

    column: str
    reason: str
    leave_out: bool


def suspicions(
    numbers: Mapping[str, np.ndarray],
    texts: Sequence[str],
    target: np.ndarray,
    target_name: str,
    telling_texts: bool = False,
) -> list[Suspicion]:
    """Return the columns that track the target, and why each is left out or not.

    Parameters
    ----------
    numbers : mapping of str to ndarray, shape (n_rows,)
        Columns of numbers, NaN where missing.
    texts : sequence of str
        Names of columns of text.
    target : ndarray, shape (n_rows,)
        Positive and finite.
    telling_texts : bool
        Whether a column of text tells of the target.
    """
    rows = np.unique(np.linspace(0, len(target) - 1, min(len(target), MAX_ROWS)).astype(int))
    target, numbers = target[rows], {name: values[rows] for name, values in numbers.items()}
    by_column: dict[str, Suspicion] = {}
    for name in (*numbers, *texts):
        if name_kind(name) is Name.MEASURED:
            reason = "is what accounting measures of a run"
            by_column[name] = Suspicion(name, reason, leave_out=True)
    others = {name: values for name, values in numbers.items() if name not in by_column}
    ranks = {name: _rank_correlation(values, target) for name, values in others.items()}
    for name, values in others.items():
        if (
            name_kind(name) is Name.UNCLEAR
            and ranks[name] >= SAME_RANKS
            and _is_about(values, target)
        ):
            reason = f"ranks as {target_name} does, and may be measured with it"
            by_column[name] = Suspicion(name, reason, leave_out=True)
    single = {n: v for n, v in others.items() if not _same(v, target, target_name)}
    for pair, reason in _identities(single, target, target_name):
        for name in pair:
            by_column.setdefault(name, Suspicion(name, reason, leave_out=True))
    close = {n: r for n, r in ranks.items() if n not in by_column and abs(r) >= CLOSE}
    telling = telling_texts or any(
        abs(rank) >= TELLING and (name not in close or name_kind(name) is Name.INPUT)
        for name, rank in ranks.items()
        if name not in by_column
    )
    for name, rank in close.items():
        values = others[name]
        same = _same(values, target, target_name)
        cause = same or _proportional(values, target) or _exact(values, target)
        if cause and telling and name_kind(name) is not Name.INPUT:
            by_column[name] = Suspicion(name, cause, leave_out=True)
        else:
            reason = f"follows {target_name} closely, with a rank correlation of {rank:.4f}"
            by_column[name] = Suspicion(name, reason, leave_out=False)
    return [by_column[name] for name in (*numbers, *texts) if name in by_column]


def _rank_correlation(values: np.ndarray, target: np.ndarray) -> float:
    from scipy import stats

    has_value = np.isfinite(values)
    if has_value.sum() < MIN_VALUES or len(np.unique(values[has_value])) < MIN_VALUES:
        return 0.0
    if len(np.unique(target[has_value])) < MIN_VALUES:
        return 0.0
    return float(stats.spearmanr(values[has_value], target[has_value]).statistic)


def _is_about(values: np.ndarray, target: np.ndarray) -> bool:
    """Whether values are in the median 0.5 to 2 times the target, in some unit."""
    ratio = float(np.median(_ratios(values, target)))
    return any(0.5 <= ratio / unit <= 2 for unit in _all_units())


def _same(values: np.ndarray, target: np.ndarray, target_name: str) -> str | None:
    """Return that the values are the target in some unit, if they are."""
    ratios = _ratios(values, target)
    return f"is {target_name} in another unit" if _is_unit(ratios) else None


def _proportional(values: np.ndarray, target: np.ndarray) -> str | None:
    """Return that the values are the target, or its inverse, times a constant, if they are."""
    has_value = values > 0
    if has_value.mean() < SAME_SHARE or len(np.unique(values[has_value])) < MIN_VALUES:
        return None
    x, y = np.log(values[has_value]), np.log(target[has_value])
    slope, offset = np.polyfit(x, y, 1)
    near = np.abs(y - slope * x - offset) <= SAME_SPREAD
    is_line = abs(abs(slope) - 1) <= SLOPE and near.mean() >= SAME_SHARE
    return "is in proportion to it row by row" if is_line else None


def _exact(values: np.ndarray, target: np.ndarray) -> str | None:
    """Return that the values determine the target more exactly than a run can be repeated."""
    has_value = np.isfinite(values)
    x, y = values[has_value], np.log(target[has_value])
    if (x > 0).all():
        x = np.log(x)
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    gap = x[2:] - x[:-2]
    weight = np.divide(x[1:-1] - x[:-2], gap, out=np.full(len(gap), 0.5), where=gap > 0)
    between = y[:-2] + weight * (y[2:] - y[:-2])
    # Of an error of 1 in each, an error of 1.22 is seen between neighbours.
    scatter = float(np.median(np.abs(y[1:-1] - between))) / 1.22
    return "determines it more exactly than a run can be repeated" if scatter < EXACT else None


def _identities(
    numbers: Mapping[str, np.ndarray], target: np.ndarray, target_name: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the columns of which two make the target exactly, and how.

    Of a product or a ratio only the column with more values is yielded: the other may be an input,
    such as a number of CPUs.
    """
    names = [n for n, v in numbers.items() if len(np.unique(v[np.isfinite(v)])) > 1][:MAX_PAIRED]
    for a, b in combinations(names, 2):
        x, y = numbers[a], numbers[b]
        with np.errstate(all="ignore"):
            if _is_unit(_ratios(np.abs(y - x), target), SAME_UNIT / 10):
                later, earlier = (b, a) if np.nanmedian(y - x) > 0 else (a, b)
                yield (a, b), f"is a part of {later} minus {earlier}, which is {target_name}"
            elif _is_unit(_ratios(x + y, target), SAME_UNIT / 10):
                yield (a, b), f"is a part of {a} plus {b}, which is {target_name}"
            else:
                varied = max((a, b), key=lambda n: len(np.unique(numbers[n])))
                if name_kind(varied) is Name.INPUT:
                    continue
                for combined, text in ((x * y, f"{a} times {b}"), (x / y, f"{a} over {b}"),
                                   (y / x, f"{b} over {a}")):  # fmt: skip
                    if _is_unit(_ratios(combined, target), SAME_UNIT / 10):
                        yield (varied,), f"is a part of {text}, which is {target_name}"


def _ratios(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        ratios = values / target
    return np.asarray(ratios[np.isfinite(ratios)], dtype=float)


def _is_unit(ratios: np.ndarray, tolerance: float = SAME_UNIT) -> bool:
    """Whether nearly all ratios are about one, which is that of two units."""
    if len(ratios) < MIN_VALUES:
        return False
    middle = float(np.median(ratios))
    spread = SAME_SPREAD * tolerance / SAME_UNIT
    near = np.abs(ratios / middle - 1) <= spread if middle else np.zeros(len(ratios), dtype=bool)
    return bool(near.mean() >= SAME_SHARE) and any(
        abs(middle / unit - 1) <= tolerance for unit in _all_units()
    )


def _all_units() -> set[float]:
    return {*UNITS, *(1 / unit for unit in UNITS)}
