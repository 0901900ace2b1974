"""Which trend is continued beyond the range of the training runs.

The runs that lie farthest up are held out; models learn from the rest. The trend of a family is
continued as far as held-out runs beyond the rest show.

Of a table it is continued only if these are then predicted better than by the model at the edge of
the range, and parts of a group are held out too, since groups may have rows of all sizes. Where
the last of them show that the trend bends down, only its remaining part is continued, see
`voxcast.models.trend_bend`. Of images sizes drive the work, so one of the trends is continued in
any case: where the images are too few to hold out the outermost, the one of the family that is
best within the range.
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
from voxcast.models.trend_bend import shares_past_bends

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.continuation import Path
    from voxcast.models.families.family import Params
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.query import Query
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard

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
