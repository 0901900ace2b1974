"""Whether a table's model continues a trend beyond the range of its rows, and by which family.

The rows that lie farthest up are held out, also parts of a group, since groups may have rows of
all sizes; the model learns from the rest. The trend of a family is continued only if held-out
rows beyond the rest are then predicted better than by the model at the edge of the range. Where
the last of them show that it bends down, only its remaining part is continued, see
`voxcast.models.trend_bend`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import PREFIX
from voxcast.models import point_model
from voxcast.models.calibrated_model import CalibratedModel
from voxcast.models.continuation import path_of, trends_of
from voxcast.models.families.family import FAMILIES, family
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes
from voxcast.models.table_validation import sampled
from voxcast.models.trend_bend import shares_past_bends

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard

OUTER_SHARE = 0.2  # of the rows
LARGEST_SHARE = 0.5  # more rows of the same values are not held out
MAX_ROWS = 3000  # of the test: more cost time and change little
MIN_OUTER_ROWS = 5  # out of range, needed to judge beyond the range
SHORTEST = 0.1  # logarithm of the distance from which a row counts as beyond the rest


@dataclass(frozen=True)
class Trend:
    """The recipe of a trend, and by column which share of it is left where it bends down."""

    family: str
    params: Params
    shares: dict[str, float]


def fit_trend(
    validation: Validation, leaderboard: Leaderboard, columns: Columns
) -> CalibratedModel | None:
    """Return the model whose trend is continued, fitted on all rows; it has no bounds.

    Returns
    -------
    CalibratedModel or None
        None if the model at the edge of the range predicts the outermost rows best.
    """
    trend = choose_trend(sampled(validation, MAX_ROWS), leaderboard, columns)
    if trend is None:
        return None
    model = point_model.fit(
        validation.table, None, trend.family, trend.params, "header", validation.seed,
        validation.targets, stopped=validation.stopped,
    )  # fmt: skip
    return CalibratedModel(model, {}, trend_shares=trend.shares)


def choose_trend(
    validation: Validation, leaderboard: Leaderboard, columns: Columns
) -> Trend | None:
    """Return the best trend, or None, see `fit_trend`."""
    is_outer = outermost(validation.table, columns)
    inner, outer = (validation.part(np.flatnonzero(mask)) for mask in (~is_outer, is_outer))
    if outer.table.empty or inner.table.empty:
        return None
    name = leaderboard.best
    inside = recipes.fit(inner, name, leaderboard.params[name], "header")
    queries = queries_of(outer.table)
    paths = [path_of(query, columns, inside.range.numbers) for query in queries]
    beyond = [n for n, path in enumerate(paths) if path.distance > SHORTEST]
    if len(beyond) < MIN_OUTER_ROWS:
        return None
    missed = outer.actual()[:, 0] - inside.predict([path.edge for path in paths])[:, 0]
    at_edge = np.abs(missed[beyond])
    tried: list[tuple[np.ndarray, str, Params, list[dict[str, float]]]] = []
    for family_name, params in _trends(leaderboard):
        model = point_model.fit(
            inner.table,
            None,
            family_name,
            params,
            "header",
            inner.seed,
            inner.targets,
            stopped=inner.stopped,
        )
        trends = trends_of(model, paths)
        total = np.array([sum(trend.values()) for trend in trends])
        errors = np.abs(missed - total)[beyond]
        if not _is_chance(at_edge - errors):
            tried.append((errors, family_name, params, trends))
    if not tried:
        return None
    smallest = min((entry[0] for entry in tried), key=np.mean)
    # Of the families that differ by chance, the family that is best within the range.
    _, family_name, params, trends = min(
        (entry for entry in tried if _is_chance(entry[0] - smallest)),
        key=lambda entry: (leaderboard.objectives[entry[1]], entry[0].mean()),
    )
    distances = [{step.column: step.distance for step in path.steps} for path in paths]
    groups = outer.table["subject"].tolist()
    return Trend(family_name, params, shares_past_bends(missed, trends, distances, groups))


def _is_chance(gains: np.ndarray) -> bool:
    """Whether the mean gain of the outermost rows is within its standard error."""
    return bool(gains.mean() <= gains.std(ddof=1) / len(gains) ** 0.5)


def _trends(leaderboard: Leaderboard) -> list[tuple[str, Params]]:
    """Return the families that extrapolate, as tuned and with their defaults."""
    tried: list[tuple[str, Params]] = []
    for name, params in leaderboard.tuned.items():
        if FAMILIES[name].extrapolates:
            for recipe in ((name, params), (name, family(name).defaults)):
                if recipe not in tried:
                    tried.append(recipe)
    return tried


def outermost(table: pd.DataFrame, columns: Columns) -> np.ndarray:
    """Return a mask of the rows that are among the largest in any column.

    The columns are the ones with a logarithm, or all numbers where there are none. Rows of equal
    values stay together.

    Returns
    -------
    ndarray of bool, shape (n_rows,)
    """
    names = [f"{PREFIX}{name}" for name in columns.logs or columns.numbers]
    if not names:
        return np.zeros(len(table), dtype=bool)
    # A share of the rows that are not larger: the many rows of a largest value are not outermost.
    ranks = table[names].rank(method="min", pct=True).max(axis=1).fillna(0).to_numpy()
    mask: np.ndarray = ranks >= np.quantile(ranks, 1 - OUTER_SHARE)
    return mask if mask.mean() <= LARGEST_SHARE else np.zeros(len(table), dtype=bool)
