"""Which trend is continued beyond the range of the training runs.

The runs that lie farthest up are held out; models learn from the rest. The family is taken whose
trend predicts the held-out runs best. Of a table a trend is continued only if these are then
predicted better than by the model at the edge of the range. Of images sizes drive the work, so one
of the trends is continued in any case: where the images are too few to hold out the outermost, the
one of the family that is best within the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import PREFIX
from voxcast.features.rows import CONTENT
from voxcast.features.table import rows_of
from voxcast.models.families.family import FAMILIES, Params
from voxcast.models.out_of_range import ALLOCATION, TrainingRange, changes, paths_of
from voxcast.models.point_model import regressed
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes
from voxcast.models.selection.family_choice import SIZE_BASELINE
from voxcast.models.table_validation import sampled

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard

OUTER_SHARE = 0.2  # of the runs
LARGEST_SHARE = 0.5  # more runs of the same values are not held out
MAX_ROWS = 3000  # of the test: more cost time and change little
MIN_OUTER_ROWS = 5  # out of range, needed to judge beyond the range
SHORTEST = 0.1  # logarithm of the distance from which a row counts as beyond the rest

Recipe = tuple[str, Params]  # a family and its parameters


def fit_trend(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None = None,
    input_level: InputLevel = "header",
) -> PointModel | None:
    """Return the model whose trend is continued, fitted on all runs.

    Parameters
    ----------
    columns : Columns or None
        Of a table; None for images.

    Returns
    -------
    PointModel or None
        None if no family continues a trend, or of a table if the model at the edge of the range
        predicts the outermost rows best.
    """
    recipe = choose_trend(sampled(validation, MAX_ROWS), leaderboard, columns, input_level)
    return None if recipe is None else recipes.fit(validation, *recipe, input_level)


def choose_trend(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None = None,
    input_level: InputLevel = "header",
) -> Recipe | None:
    """Return the recipe of the best trend, or None, see `fit_trend`."""
    metrics = leaderboard.metrics[input_level]
    # Without a volume the network is not evaluated.
    errors_within = {n: metrics[n]["objective"] for n in leaderboard.tuned if n in metrics}
    tried = _tried(validation, leaderboard, columns, input_level)
    if tried:
        smallest = min((errors for errors, _ in tried), key=np.mean)
        # Of the families that differ by chance, the family that is best within the range.
        _, recipe = min(
            (entry for entry in tried if _is_chance(entry[0] - smallest)),
            key=lambda entry: (errors_within[entry[1][0]], entry[0].mean()),
        )
        return recipe
    with_trend = [n for n in errors_within if FAMILIES[n].extrapolates or n == SIZE_BASELINE]
    if columns is not None or not with_trend:
        return None
    name = min(with_trend, key=errors_within.__getitem__)
    return name, leaderboard.params[name]


def _tried(
    validation: Validation,
    leaderboard: Leaderboard,
    columns: Columns | None,
    input_level: InputLevel,
) -> list[tuple[np.ndarray, Recipe]]:
    """Return the trends that predict outermost runs well enough, with their errors beyond."""
    is_outer = outermost(validation.table, columns, input_level)
    inner, outer = (validation.part(np.flatnonzero(mask)) for mask in (~is_outer, is_outer))
    if outer.table.empty or inner.table.empty:
        return []
    name = leaderboard.chosen[input_level]
    inside = recipes.fit(inner, name, leaderboard.params[name], input_level)
    paths = paths_of(inside.range, queries_of(outer.table, outer.volumes), columns)
    beyond = [n for n, path in enumerate(paths) if path.distance > SHORTEST]
    if len(beyond) < MIN_OUTER_ROWS:
        return []
    missed = outer.actual() - inside.predict([path.edge for path in paths])
    measured = [validation.targets.index(target) for target in regressed(validation.targets)]

    def errors_of(change: np.ndarray | float) -> np.ndarray:
        return np.asarray(np.abs(missed - change)[:, measured].mean(axis=1)[beyond])

    tried = []
    for name, tuned in leaderboard.tuned.items():
        defaults = FAMILIES[name].defaults
        for params in (tuned,) if tuned == defaults else (tuned, defaults):
            if FAMILIES[name].extrapolates and name in leaderboard.metrics[input_level]:
                model = recipes.fit(inner, name, params, input_level)
                errors = errors_of(changes(model, paths))
                if columns is None or not _is_chance(errors_of(0.0) - errors):
                    tried.append((errors, (name, params)))
    return tried


def _is_chance(gains: np.ndarray) -> bool:
    """Whether the mean gain of the outermost runs is within its standard error."""
    return bool(gains.mean() <= gains.std(ddof=1) / len(gains) ** 0.5)


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
        # An allocation is not at the end of a range of sizes.
        others = (ALLOCATION,) if input_level == "volume" else (ALLOCATION, CONTENT)
        ranges = TrainingRange.fit(rows_of(table), content=input_level == "volume").numbers
        names = [n for n, (low, high) in ranges.items() if low < high and not n.startswith(others)]
    if not names:
        return np.zeros(len(table), dtype=bool)
    # A share of the rows that are not larger: the many rows of a largest value are not outermost.
    ranks = table[names].rank(method="min", pct=True).max(axis=1).fillna(0).to_numpy()
    mask: np.ndarray = ranks >= np.quantile(ranks, 1 - OUTER_SHARE)
    return mask if mask.mean() <= LARGEST_SHARE else np.zeros(len(table), dtype=bool)
