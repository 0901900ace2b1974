"""Which columns of any table are left out as features, and which the user is asked about.

Names decide what is left out: names of measurements, rows, runs and outcomes. Of the columns that
are used, the user is asked about those whose values rank the rows as the target does, as a column
does that is known only after the run. An input of a deterministic tool does so too, and must be
used: no value tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError
from voxcast.features.any_table import Columns, finite
from voxcast.features.column_names import is_measurement, names_moment, names_rows
from voxcast.features.csv_table import spelled_as_numbers
from voxcast.features.idle_columns import idle_columns
from voxcast.features.table import CENSORED_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd

ROWS_PER_NAME = 2  # a text with as many values as half of the rows or more names rows
CLOSE_RANKS = 0.99  # rank correlation with the target from which a column is close
MIN_ROWS = 10  # with distinct values, for a rank correlation to mean something
UNIQUE = 0.9  # share of distinct values from which a number may be an identifier
EPOCH_S = (9e8, 5e9)  # the years 1998 to 2128
OUTCOMES = {*CENSORED_OUTCOMES, "completed", "failed", "cancelled", "error", "killed", "oom",
            "aborted", "ok", "success", "succeeded", "done", "finished"}  # fmt: skip


@dataclass(frozen=True)
class Screening:
    """What became of the columns of a table.

    Attributes
    ----------
    columns : Columns
        With the features that are used, and which of them are idle.
    left_out : dict of str to str
        Column to the reason, as a clause about it.
    requested : dict of str to str
        The same for columns that are used on request.
    close : dict of str to str
        Columns that are used, and not on request, that rank the rows as the target does; the
        reason as a clause about each.
    spelled : dict of str to str
        Columns that are used as texts although most of their cells are numbers, or numbers with
        units; the reason and the next step, as a clause about each.
    """

    columns: Columns
    left_out: dict[str, str]
    requested: dict[str, str]
    close: dict[str, str]
    spelled: dict[str, str]


def screened(table: pd.DataFrame, columns: Columns, keep: Sequence[str] = ()) -> Screening:
    """Return which columns are used as features, which are left out, and which are close.

    Parameters
    ----------
    table : DataFrame
        Rows with a label.
    keep : sequence of str
        Columns to use regardless of their names and values.

    Raises
    ------
    TableError
        If a column to keep is not a feature of the table, or no column is left.
    """
    for name in keep:
        if name not in (*columns.numbers, *columns.texts):
            raise TableError("is no feature of the table", name, "--keep names one")
    reasons = _reasons(table, columns)
    left_out = {name: reason for name, reason in reasons.items() if name not in keep}
    used = without(columns, left_out)
    if not used.numbers and not used.texts:
        name, reason = next(iter(left_out.items()))
        raise TableError(
            f"no feature is left without {', '.join(left_out)[:200]}", columns.target,
            f"--keep {name} uses one although it {reason}",
        )  # fmt: skip
    close = _ranking(table, used)
    requested = {name: reason for name, reason in (reasons | close).items() if name in keep}
    used = replace(used, idle=idle_columns(table, used))
    spelled = {name: spelled_as_numbers(table[name]) for name in used.texts}
    return Screening(
        used, left_out, requested,
        {name: reason for name, reason in close.items() if name not in keep},
        {name: reason for name, reason in spelled.items() if reason is not None},
    )  # fmt: skip


def without(columns: Columns, names: Collection[str]) -> Columns:
    """Return the columns without some of the features."""
    return replace(
        columns,
        numbers=tuple(name for name in columns.numbers if name not in names),
        texts=tuple(name for name in columns.texts if name not in names),
        logs=tuple(name for name in columns.logs if name not in names),
        units=tuple((name, unit) for name, unit in columns.units if name not in names),
        idle=tuple(name for name in columns.idle if name not in names),
    )


def _ranking(table: pd.DataFrame, columns: Columns) -> dict[str, str]:
    """Return the numbers that rank the rows as the target does, with the reason."""
    from scipy import stats

    close = {}
    target = finite(table[columns.target])
    for name in columns.numbers:
        values = finite(table[name])
        has_value = np.isfinite(values)
        if len(np.unique(values[has_value])) < MIN_ROWS:
            continue
        rank = float(stats.spearmanr(values[has_value], target[has_value]).statistic)
        if abs(rank) >= CLOSE_RANKS:
            close[name] = f"ranks the rows as {columns.target} does (correlation {rank:.4f})"
    return close


def _reasons(table: pd.DataFrame, columns: Columns) -> dict[str, str]:
    """Return the columns that are left out, with the reason, in the order of the table."""
    reasons = {}
    for name in table:
        if name in columns.texts:
            reason = _text_reason(name, table[name])
        elif name in columns.numbers:
            reason = _number_reason(name, finite(table[name]))
        else:
            continue
        if is_measurement(name):
            reason = "is what accounting measures of a run"
        if reason is not None:
            reasons[name] = reason
    return reasons


def _text_reason(name: str, column: pd.Series) -> str | None:
    texts = column.dropna().astype(str).str.strip()
    if texts.str.lower().isin(OUTCOMES).mean() >= UNIQUE:
        return "is the outcome of the run"
    if (distinct := texts.nunique()) * ROWS_PER_NAME >= len(texts):
        if (reason := spelled_as_numbers(column)) is not None:
            return reason
        return f"names rows: {distinct} values in {len(texts)} rows"
    return None


def _number_reason(name: str, values: np.ndarray) -> str | None:
    values = values[np.isfinite(values)]
    distinct = len(np.unique(values))
    if len(values) < 2 or distinct < UNIQUE * len(values):
        return None
    if names_moment(name) and any(
        ((values >= EPOCH_S[0] * unit) & (values <= EPOCH_S[1] * unit)).all()
        for unit in (1.0, 1e3, 1e6, 1e9)
    ):
        return "is a moment, of which a new row has another"
    if names_rows(name) and (values == np.round(values)).all():
        return f"names rows: {distinct} values in {len(values)} rows"
    return None
