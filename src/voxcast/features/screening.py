"""Which columns of any table are left out as features, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError
from voxcast.features.any_table import Columns, finite
from voxcast.features.column_names import Name, name_kind, names_moment, names_rows
from voxcast.features.hindsight import TELLING, Suspicion, suspicions
from voxcast.features.table import CENSORED_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd

ROWS_PER_NAME = 2  # a text with as many values as half of the rows or more names rows
UNIQUE = 0.9  # share of distinct values from which a number may be an identifier
WEAK = 0.5  # rank correlation with the target below which a row number is one
MOMENT = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?"
EPOCH_S = (9e8, 5e9)  # the years 1998 to 2128
OUTCOMES = {*CENSORED_OUTCOMES, "completed", "failed", "cancelled", "error", "killed", "oom",
            "aborted", "ok", "success", "succeeded", "done", "finished"}  # fmt: skip


def screened(
    table: pd.DataFrame, columns: Columns, keep: Sequence[str] = ()
) -> tuple[Columns, list[Suspicion]]:
    """Return the columns that are used as features, and what was noticed about others.

    Parameters
    ----------
    table : DataFrame
        Rows with a label.
    keep : sequence of str
        Columns to use whatever is noticed.

    Raises
    ------
    TableError
        If a column to keep is no feature of the table, or no column is left.
    """
    for name in keep:
        if name not in (*columns.numbers, *columns.texts):
            raise TableError("is no feature of the table", name, "--keep names one")
    target = finite(table[columns.target])
    numbers = {name: finite(table[name]) for name in columns.numbers}
    noticed = {s.column: s for s in _labels(table, columns, numbers, target)}
    others = {name: values for name, values in numbers.items() if name not in noticed}
    texts = [name for name in columns.texts if name not in noticed]
    telling = any(_explained(table[name], target) >= TELLING**2 for name in texts)
    for suspicion in suspicions(others, texts, target, columns.target, telling):
        noticed[suspicion.column] = suspicion
    for name in keep:
        if name in noticed:
            noticed[name] = replace(noticed[name], leave_out=False)
    left_out = {name for name, suspicion in noticed.items() if suspicion.leave_out}
    used = replace(
        columns,
        numbers=_without(columns.numbers, left_out),
        texts=_without(columns.texts, left_out),
        logs=_without(columns.logs, left_out),
    )
    if not used.numbers and not used.texts:
        raise TableError(
            f"no feature is left without {', '.join(sorted(left_out))[:200]}", columns.target,
            f"--keep COL uses one although it {noticed[min(left_out)].reason}",
        )  # fmt: skip
    return used, list(noticed.values())


def _labels(
    table: pd.DataFrame, columns: Columns, numbers: dict[str, np.ndarray], target: np.ndarray
) -> list[Suspicion]:
    """Return the columns that name rows, moments or outcomes."""
    labels = []
    for name in columns.texts:
        if name_kind(name) is Name.MEASURED:
            continue
        texts = table[name].dropna().astype(str).str.strip()
        if not len(texts):
            continue
        distinct = texts.nunique()
        if texts.str.fullmatch(MOMENT).mean() >= UNIQUE:
            reason = "is a moment, of which a new row has another"
        elif texts.str.lower().isin(OUTCOMES).mean() >= UNIQUE:
            reason = "is the outcome of the run"
        elif distinct * ROWS_PER_NAME >= len(texts):
            reason = f"names rows: {distinct} values in {len(texts)} rows"
        else:
            continue
        labels.append(Suspicion(name, reason, leave_out=True))
    for name, values in numbers.items():
        if name_kind(name) is Name.MEASURED:
            continue
        has_value = np.isfinite(values)
        if label := _number_label(name, values[has_value], target[has_value]):
            labels.append(Suspicion(name, label, leave_out=True))
    return labels


def _number_label(name: str, values: np.ndarray, target: np.ndarray) -> str | None:
    from scipy import stats

    if len(values) < 2 or len(np.unique(values)) < UNIQUE * len(values):
        return None
    if names_moment(name) and any(
        ((values >= EPOCH_S[0] * unit) & (values <= EPOCH_S[1] * unit)).all()
        for unit in (1.0, 1e3, 1e6, 1e9)
    ):
        return "is a moment, of which a new row has another"
    if (values != np.round(values)).any():
        return None
    if names_rows(name):
        return f"names rows: {len(np.unique(values))} values in {len(values)} rows"
    steps = np.diff(values)
    if (steps == steps[0]).all() and abs(stats.spearmanr(values, target).statistic) < WEAK:
        return "numbers the rows"
    return None


def _explained(column: pd.Series, target: np.ndarray) -> float:
    """Return the share of the variance of the target's ranks between the texts of a column."""
    import pandas as pd
    from scipy import stats

    ranks = pd.Series(stats.rankdata(target))
    texts = column.astype(object).map(lambda v: "" if pd.isna(v) else str(v)).to_numpy()
    means = ranks.groupby(texts).transform("mean")
    return float(means.var() / ranks.var()) if ranks.var() > 0 else 0.0


def _without(names: Sequence[str], left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in left_out)
