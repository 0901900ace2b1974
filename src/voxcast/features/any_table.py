"""Any table of runs: which columns are features, and which rows are usable for training.

Columns become features ``column.NAME``. Numbers that span orders of magnitude also give
``column.log NAME``, which is a logarithm, or where a column of sizes has zeros or values below
zero, the inverse hyperbolic sine: it is that logarithm for large values, and passes zero. Text is
a category.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError
from voxcast.features.csv_table import text_target
from voxcast.features.rows import members
from voxcast.features.run_status import COMPLETED, statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

PREFIX, LOG = "column.", "column.log "
WIDE = 7.0  # from this ratio of largest to smallest value, the logarithm is a feature too
# From this ratio of the largest to the median magnitude, a column is heavy-tailed.
HEAVY = 20.0
MIN_ROWS = 10
LARGEST = 1e30  # estimators take single precision, which ends at 3e38
OUTCOME = "outcome"


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns; those in `logs` are also used as logarithms.

    ``units`` are the smallest magnitudes of columns with zeros or values below zero.
    """

    target: str
    group: str | None
    ids: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    logs: tuple[str, ...]
    units: tuple[tuple[str, float], ...] = ()

    def unit(self, name: str) -> float:
        """Return the unit of a column's logarithm; 0 if all its values were above zero."""
        return dict(self.units).get(name, 0.0)

    def names(self, features: Sequence[str]) -> list[str]:
        """Return the columns that features are made from, and combinations of them, each once.

        Examples
        --------
        >>> columns = Columns("seconds", None, (), ("a b", "log c"), (), ("a b",))
        >>> columns.names(["column.a b", "column.log a b", "column.log c"])
        ['a b', 'log c']
        >>> columns.names(["column.a b×column.log c"])
        ['a b with log c']
        """
        by_feature = {f"{PREFIX}{name}": name for name in (*self.numbers, *self.texts)}
        by_feature |= {f"{LOG}{name}": name for name in self.logs}
        named = (
            by_feature.get(name) or " with ".join(by_feature.get(m, m) for m in members(name))
            for name in features
        )
        return list(dict.fromkeys(named))


def choose_columns(
    table: pd.DataFrame, target: str, group: str | None = None, ids: Sequence[str] = ()
) -> Columns:
    """Assign roles to columns; all but target, group, ids and outcome are features.

    Raises
    ------
    TableError
        If a column is missing, the target is not numeric, or no feature is left.
    """
    for name in (target, *([group] if group else []), *ids):
        if name not in table:
            raise TableError(
                "no such column", name, f"choose from {', '.join(map(str, table))[:300]}"
            )
    if not _is_number(table[target]):
        raise text_target(table, target, [str(n) for n in table if _is_number(table[n])])
    names = [str(n) for n in table if n not in {target, group, OUTCOME, *ids}]
    numbers = [n for n in names if _is_number(table[n])]
    texts = [n for n in names if n not in numbers and table[n].notna().any()]
    if not numbers and not texts:
        raise TableError("is the only usable column; there are no features", target)
    logs, units = [], []
    for name in numbers:
        values = finite(table[name])
        values = values[np.isfinite(values)]
        magnitudes = np.abs(values[values != 0])
        if not len(magnitudes):
            continue
        if values.min() > 0:
            if values.max() > WIDE * values.min():
                logs.append(name)
        elif is_heavy(values):
            logs.append(name)
            units.append((name, float(magnitudes.min())))
    return Columns(
        target, group, tuple(ids), tuple(numbers), tuple(texts), tuple(logs), tuple(units)
    )


def is_heavy(values: np.ndarray) -> bool:
    """Whether a few values are so large that they decide the slope of a line.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Values that are not finite are left out.
    """
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)])
    return bool(len(magnitudes) and magnitudes.max() > HEAVY * np.median(magnitudes))


def logarithm(values: Any, unit: float) -> Any:
    """Return logarithms of numbers; with a unit their inverse hyperbolic sine in it.

    Without a unit, values that are not above zero have none.

    Examples
    --------
    >>> [round(float(logarithm(value, 2.0)), 3) for value in (-2.0, 0.0, 2.0, 2000.0)]
    [-0.881, 0.0, 0.881, 7.601]
    >>> float(logarithm(1.0, 0.0)), float(logarithm(0.0, 0.0))
    (0.0, -inf)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.arcsinh(np.asarray(values) / unit) if unit else np.log(values)


def exponential(log: float, unit: float) -> float:
    """Return the inverse of `logarithm`."""
    return float(np.sinh(log) * unit if unit else np.exp(log))


def feature_table(table: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the features of all rows, in their order.

    An infinite number is missing, and one beyond `LARGEST` counts as that.

    Raises
    ------
    TableError
        If a column is missing, or one of numbers has a text.
    """
    import pandas as pd

    features: dict[str, Any] = {}
    for name in columns.numbers:
        values = _numbers(table, name)
        features[f"{PREFIX}{name}"] = np.clip(values, -LARGEST, LARGEST)
        if name in columns.logs:
            logs = logarithm(values, columns.unit(name))
            features[f"{LOG}{name}"] = np.where(np.isfinite(logs), logs, np.nan)
    for name in columns.texts:
        if name not in table:
            raise TableError("no such column", name, "the model needs it")
        texts = table[name].astype(object)
        features[f"{PREFIX}{name}"] = texts.map(lambda v: None if pd.isna(v) else str(v))
    return pd.DataFrame(features, index=table.index)


def learnable(
    table: pd.DataFrame, columns: Columns, *, keep_failed: bool = False
) -> tuple[np.ndarray, dict[str, list[int]]]:
    """Return a mask of rows with a label, and the numbers of the excluded rows (from 1) by reason.

    A run that did not complete has no label: its value is a lower bound at most. See
    `voxcast.features.run_status`.

    Parameters
    ----------
    keep_failed : bool
        Whether the runs that did not complete have a label too.

    Raises
    ------
    TableError
        If fewer than `MIN_ROWS` have one, all have the same, or all are of one group.
    """
    values = finite(table[columns.target])
    reasons: dict[str, np.ndarray] = {"without a value": np.isnan(values)}
    reasons["not finite"] = ~np.isnan(values) & ~np.isfinite(values)
    reasons["zero or below"] = np.isfinite(values) & (values <= 0)
    extreme = (values > LARGEST) | ((values > 0) & (values < 1 / LARGEST))
    reasons["too large or too small to be one"] = np.isfinite(values) & extreme
    if not keep_failed:
        status = statuses(table, (columns.target, columns.group))
        for name in sorted(set(status) - {COMPLETED}):
            reasons[f"not completed ({name.replace('_', ' ')})"] = status == name
    if columns.group is not None:
        reasons["without a group"] = table[columns.group].isna().to_numpy()
    usable = ~np.logical_or.reduce(list(reasons.values()))
    left_out = {
        reason: (np.flatnonzero(mask) + 1).tolist()
        for reason, mask in reasons.items()
        if mask.any()
    }
    count = int(usable.sum())
    if count < MIN_ROWS:
        others = (
            "; ".join(f"{len(rows)} {reason}" for reason, rows in left_out.items()) or "no others"
        )
        raise TableError(
            f"{count} rows have a label ({others})", columns.target, f"{MIN_ROWS} are needed"
        )
    if np.ptp(values[usable]) == 0:
        raise TableError("has one value in all rows", columns.target, "nothing is to be learned")
    if columns.group is not None and table.loc[usable, columns.group].nunique() < 2:
        raise TableError("has one group", columns.group, "evaluation on unseen groups needs two")
    return usable, left_out


def finite(column: pd.Series) -> np.ndarray:
    """Return a column as float64."""
    values: np.ndarray = column.astype(float).to_numpy()
    return values


def _numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    import pandas as pd

    if name not in table:
        raise TableError("no such column", name, "the model needs it")
    column = table[name]
    values: np.ndarray = pd.to_numeric(column, errors="coerce").astype(float).to_numpy()
    texts = np.flatnonzero(np.isnan(values) & column.notna().to_numpy())
    if len(texts):
        text = str(column.iloc[texts[0]])[:40]
        raise TableError(
            f"{text!r} in row {texts[0] + 1} is not a number", name, "leave the cell empty"
        )
    return np.where(np.isfinite(values), values, np.nan)


def _is_number(column: pd.Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column) or is_bool_dtype(column))
