"""Which trend is continued beyond the range of the training runs.

The runs that lie farthest up are held out; models learn from the rest. The trend of a family is
continued as far as held-out runs beyond the rest show.

Of a table it is continued only if these are then predicted better than by the model at the edge of
the range, and parts of a group are held out too, since groups may have rows of all sizes. Where
the last of them show that the trend bends down, only its remaining part is continued, see
`voxcast.models.trend`. Of images sizes drive the work, so one of the trends is continued in
any case: where the images are too few to hold out the outermost, the one of the family that is
best within the range.

Whether a trend bends down among the last rows before the edge of the range.

A tool whose work is capped grows up to a limit and then no more. Few rows lie beyond that limit,
so that over the rows that are held out together the trend is still better than the edge. Here the
held-out rows tell where it ends: their logarithms are regressed on the trend and on the part of it
that lies past a knot, for knots ever closer to the edge (piecewise linear regression; Seber and
Wild 1989, Nonlinear Regression, section 9.3). Only a bend beyond chance counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import PREFIX
from voxcast.features.rows import CONTENT
from voxcast.features.table import rows_of
from voxcast.models import point_model
from voxcast.models.continuation import Trend, differences, image_path, path_of, trends_of
from voxcast.models.families.family import FAMILIES, family
from voxcast.models.families.training_range import TrainingRange
from voxcast.models.out_of_fold import run_errors
from voxcast.models.point_model import regressed
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes
from voxcast.models.selection.family_choice import SIZE_BASELINE, choose_family
from voxcast.models.table_validation import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.continuation import Path
    from voxcast.models.families.family import Params
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.query import Query
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard


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


OUTER_SHARE = 0.2  # of the runs
LARGEST_SHARE = 0.5  # more runs of the same values are not held out
MAX_ROWS = 3000  # of the test: more cost time and change little
MIN_OUTER_ROWS = 5  # out of range, needed to judge beyond the range
SHORTEST = 0.1  # logarithm of the distance from which a row counts as beyond the rest
# An allocation is not at the end of a range of sizes.
NO_SIZE = "allocation."


@dataclass(frozen=True)
class TrendRecipe:
    """The recipe of a trend, and by column which share of it is left where it bends down."""

    family: str
    params: Params
    shares: dict[str, float]


def fit_trend(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None = None,
    input_level: InputLevel = "header",
) -> Trend | None:
    """Return the model whose trend is continued, fitted on all runs.

    Parameters
    ----------
    columns : Columns or None
        Of a table; None for images.

    Returns
    -------
    Trend or None
        None if no family continues a trend, or of a table if the model at the edge of the range
        predicts the outermost rows best.
    """
    recipe = choose_trend(sampled(validation, MAX_ROWS), leaderboard, columns, input_level)
    if recipe is None:
        return None
    model = point_model.fit(
        validation.table, None, recipe.family, recipe.params, input_level, validation.seed,
        validation.targets, validation.speeds, validation.stopped,
    )  # fmt: skip
    return Trend(model, recipe.shares)


def choose_trend(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None = None,
    input_level: InputLevel = "header",
) -> TrendRecipe | None:
    """Return the best trend, or None, see `fit_trend`."""
    tried = _tried(validation, leaderboard, columns, input_level)
    if not tried:
        return _best_within(validation, leaderboard, input_level) if columns is None else None
    smallest = min((entry[0] for entry in tried), key=np.mean)
    # Of the families that differ by chance, the family that is best within the range.
    errors = {name: metrics["objective"] for name, metrics in
              leaderboard.metrics[input_level].items()}  # fmt: skip
    _, recipe = min(
        (entry for entry in tried if _is_chance(entry[0] - smallest)),
        key=lambda entry: (errors[entry[1].family], entry[0].mean()),
    )
    return recipe


def _tried(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None,
    input_level: InputLevel,
) -> list[tuple[np.ndarray, TrendRecipe]]:
    """Return the trends that predict outermost runs well enough, with their errors beyond."""
    is_outer = outermost(validation.table, columns, input_level)
    inner, outer = (validation.part(np.flatnonzero(mask)) for mask in (~is_outer, is_outer))
    if outer.table.empty or inner.table.empty:
        return []
    name = leaderboard.chosen[input_level]
    inside = recipes.fit(inner, name, leaderboard.params[name], input_level)
    queries = queries_of(outer.table, outer.volumes)
    paths = _paths(queries, inside, columns)
    beyond = [n for n, path in enumerate(paths) if path.distance > SHORTEST]
    if len(beyond) < MIN_OUTER_ROWS:
        return []
    missed = outer.actual() - inside.predict([path.edge for path in paths])
    measured = [validation.targets.index(target) for target in regressed(validation.targets)]

    def errors_of(change: np.ndarray | float) -> np.ndarray:
        errors: np.ndarray = np.abs(missed - change)[:, measured].mean(axis=1)[beyond]
        return errors

    tried = []
    for family_name, params in _candidates(leaderboard):
        model = point_model.fit(
            inner.table, None, family_name, params, input_level, inner.seed, inner.targets,
            inner.speeds, inner.stopped,
        )  # fmt: skip
        if columns is None:
            recipe = TrendRecipe(family_name, params, {})
            tried.append((errors_of(differences(model, queries, paths)), recipe))
            continue
        trends = trends_of(model, paths)
        errors = errors_of(np.array([[sum(trend.values())] for trend in trends]))
        if not _is_chance(errors_of(0.0) - errors):
            distances = [{step.column: step.distance for step in path.steps} for path in paths]
            groups = outer.table["subject"].tolist()
            shares = shares_past_bends(missed[:, 0], trends, distances, groups)
            tried.append((errors, TrendRecipe(family_name, params, shares)))
    return tried


def _paths(queries: Sequence[Query], inside: PointModel, columns: Columns | None) -> list[Path]:
    if columns is not None:
        return [path_of(query, columns, inside.range.numbers) for query in queries]
    outside = inside.range.outside([query.features for query in queries])
    return [
        image_path(query, names, inside.range)
        for query, names in zip(queries, outside, strict=True)
    ]


def _best_within(
    validation: Validation, leaderboard: Leaderboard, input_level: InputLevel
) -> TrendRecipe | None:
    """Return the trend of the family that is best by cross-validation; None without any."""
    actual, out_of_fold = validation.actual(), leaderboard.out_of_fold[input_level]
    errors = {
        name: run_errors(actual, out_of_fold[name], validation.targets)
        for name in leaderboard.tuned
        if FAMILIES[name].extrapolates or name == SIZE_BASELINE
    }
    if not errors:
        return None
    name = choose_family(errors, validation.table["subject"].tolist()).name
    return TrendRecipe(name, leaderboard.params[name], {})


def _is_chance(gains: np.ndarray) -> bool:
    """Whether the mean gain of the outermost runs is within its standard error."""
    return bool(gains.mean() <= gains.std(ddof=1) / len(gains) ** 0.5)


def _candidates(leaderboard: Leaderboard) -> list[tuple[str, Params]]:
    """Return the families that extrapolate, as tuned and with their defaults."""
    tried: list[tuple[str, Params]] = []
    for name, params in leaderboard.tuned.items():
        if FAMILIES[name].extrapolates:
            for recipe in ((name, params), (name, family(name).defaults)):
                if recipe not in tried:
                    tried.append(recipe)
    return tried


def outermost(
    table: pd.DataFrame, columns: Columns | None, input_level: InputLevel = "header"
) -> np.ndarray:
    """Return a mask of the runs that are among the largest in any column.

    The columns of a table are the ones with a logarithm, or all numbers where there are none; of
    images the sizes that decide the work. Runs of equal values stay together.

    Returns
    -------
    ndarray of bool, shape (n_rows,)
    """
    if columns is not None:
        names = [f"{PREFIX}{name}" for name in columns.logs or columns.numbers]
    else:
        covered = TrainingRange.fit(rows_of(table), content=input_level == "volume")
        names = [
            name
            for name, (low, high) in covered.numbers.items()
            if low < high and not name.startswith(NO_SIZE)
            and (input_level == "volume" or not name.startswith(CONTENT))
        ]  # fmt: skip
    if not names:
        return np.zeros(len(table), dtype=bool)
    # A share of the rows that are not larger: the many rows of a largest value are not outermost.
    ranks = table[names].rank(method="min", pct=True).max(axis=1).fillna(0).to_numpy()
    mask: np.ndarray = ranks >= np.quantile(ranks, 1 - OUTER_SHARE)
    return mask if mask.mean() <= LARGEST_SHARE else np.zeros(len(table), dtype=bool)
