"""The rows of any table as the training runs of a validation, sampled where there are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxcast.features.any_table import Columns, feature_table
from voxcast.models.metrics import scores, under_requests
from voxcast.models.selection.cross_validation import Validation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    HeldOut = tuple[np.ndarray, np.ndarray, np.ndarray]  # positions, medians, upper bounds

    # In which sense a row of the stated errors is new are of.
    Novelty = Literal["groups", "configurations", "runs"]

TARGET = "target"
UNIT = "unit"  # column: what gives one score where bounds are calibrated
MAX_ROWS = 20_000  # a larger table is sampled
MIN_CONFIGURATIONS = 20  # fewer do not tell what others would be like: 19 calibrate 95 %
INNER = 3  # folds


def validation_of(
    table: pd.DataFrame,
    columns: Columns,
    seed: int,
    censored: pd.DataFrame | None = None,
    groups: np.ndarray | None = None,
) -> Validation:
    """Return the training rows; of a large table, as many complete groups as allowed.

    Without a group column every row gives a score of its own, so that a bound holds for new rows
    of the same mixture, under any folds.

    Parameters
    ----------
    censored : DataFrame, optional
        Rows that were stopped before they completed. They are grouped like the labelled ones.
    groups : ndarray of str, shape (n_rows,), optional
        By default from `groups_of`.
    """
    novelty = novelty_of(table, columns)
    runs = _runs(table, columns, _groups(table, columns, novelty) if groups is None else groups)
    stopped = None
    if censored is not None and columns.group is not None:
        censored = censored.dropna(subset=columns.group)
    if censored is not None and len(censored):
        names = _groups(censored, columns, novelty)
        if novelty == "runs":
            names = np.array([f"stopped {name}" for name in names])
        stopped = _runs(censored, columns, names, "stopped row")
    return sampled(Validation(runs, None, INNER, seed, (TARGET,), stopped=stopped), MAX_ROWS)


def _runs(
    table: pd.DataFrame, columns: Columns, groups: np.ndarray, unit: str = "row"
) -> pd.DataFrame:
    """Return the features of rows with their groups, targets and, without a group, units."""
    import pandas as pd

    runs = feature_table(table, columns)
    runs["subject"] = groups
    runs[TARGET] = pd.to_numeric(table[columns.target], errors="coerce")
    runs = runs.reset_index(drop=True)
    if columns.group is None:
        runs[UNIT] = [f"{unit} {n}" for n in range(len(runs))]
    return runs


def novelty_of(table: pd.DataFrame, columns: Columns) -> Novelty:
    """Return the unit that is held out: groups, configurations, or runs of few configurations.

    A configuration is the features of a row. With many of them a new row may
    have another one, and repeats of one must not fall on both sides of a fold. With few the
    question is about new runs of the same.
    """
    if columns.group is not None:
        return "groups"
    distinct = len(np.unique(configurations_of(table, columns)))
    return "runs" if distinct < MIN_CONFIGURATIONS else "configurations"


def groups_of(table: pd.DataFrame, columns: Columns) -> np.ndarray:
    """Return the group of each row, which is never split by a fold, see `novelty_of`."""
    return _groups(table, columns, novelty_of(table, columns))


def _groups(table: pd.DataFrame, columns: Columns, novelty: Novelty) -> np.ndarray:
    if novelty == "runs":
        return np.array([f"row {n}" for n in range(len(table))])
    if columns.group is None:
        return configurations_of(table, columns)
    names: np.ndarray = table[columns.group].astype(str).to_numpy()
    return names


def configurations_of(table: pd.DataFrame, columns: Columns) -> np.ndarray:
    """Return one text for each row, the same for rows of the same features."""
    from pandas.util import hash_pandas_object

    features = feature_table(table, columns)
    texts = {name: object for name in features if features[name].dtype.kind != "f"}
    hashes = hash_pandas_object(features.astype(texts), index=False)
    names: np.ndarray = hashes.astype(str).to_numpy()
    return names


def sampled(validation: Validation, rows: int) -> Validation:
    """Return complete groups of at most ``rows`` rows, or at least two groups.

    Groups whose runs were all censored are as likely to be left out as any.
    """
    runs = validation.table
    if len(runs) <= rows:
        return validation
    names = np.random.default_rng(validation.seed).permutation(runs["subject"].unique())
    sizes = runs["subject"].value_counts().loc[names].cumsum()
    count = max(2, int((sizes <= rows).sum()))
    part = validation.part(np.flatnonzero(runs["subject"].isin(set(names[:count]))))
    measured = set(names)
    stopped = validation.stopped
    others = sorted(set() if stopped is None else set(stopped["subject"]) - measured)
    order = np.random.default_rng(validation.seed).permutation(len(others))
    dropped = {others[n] for n in order[round(len(others) * count / len(names)) :]}
    return part.without_stopped(dropped)


def held_out_metrics(validation: Validation, folds: Sequence[HeldOut]) -> dict[str, Any]:
    """Return the metrics of the predictions of held-out rows, of all folds together."""
    indices, medians, uppers = (np.concatenate(arrays) for arrays in zip(*folds, strict=True))
    actual = validation.table[TARGET].to_numpy()[indices]
    subjects = validation.table["subject"].iloc[indices]
    exceeded, groups, interval = under_requests(actual, uppers, subjects)
    return {
        "mae": float(np.abs(medians - actual).mean()),
        **scores(actual, medians),
        "coverage": float((actual <= uppers).mean()),
        "groups_above": exceeded / groups,
        "groups_above_interval": list(interval),
        "asked_over_used": float(uppers.sum() / actual.sum()),
    }
