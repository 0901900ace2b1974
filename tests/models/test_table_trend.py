"""Whether a trend is continued is decided on the rows that lie farthest up."""

import numpy as np
import pandas as pd

from voxcast.features.any_table import choose_columns
from voxcast.models.selection.learning import learn
from voxcast.models.table_trend import choose_trend, fit_trend, outermost
from voxcast.models.table_validation import validation_of

FAMILIES = ("median", "ridge", "additive", "boosting")


def runs(power: float, rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size, cpus = np.exp(rng.uniform(0, 7, rows)), rng.choice([1, 2, 4], rows)
    seconds = 3 * size**power / cpus**0.5 * rng.lognormal(0, 0.05, rows)
    return pd.DataFrame({"size": size, "cpus": cpus, "seconds": seconds})


def test_the_largest_rows_of_each_column_are_held_out_and_equal_ones_stay_together() -> None:
    table = runs(1.0)
    columns = choose_columns(table, "seconds")
    validation = validation_of(table, columns, 0)
    outer = outermost(validation.table, columns)
    assert outer.sum() == 60
    assert table["size"][outer].min() > table["size"][~outer].max()
    few = pd.DataFrame({"cpus": [1, 2, 4] * 20, "seconds": 1.0})
    columns = choose_columns(few, "seconds")
    outer = outermost(validation_of(few, columns, 0).table, columns)
    assert sorted(set(few["cpus"][outer])) == [4]
    same = few.assign(cpus=1)
    assert not outermost(validation_of(same, columns, 0).table, columns).any()


def test_a_trend_is_continued_where_it_is_better_than_the_edge() -> None:
    for power, has_trend in ((0.8, True), (0.0, False)):
        table = runs(power)
        columns = choose_columns(table, "seconds")
        validation = validation_of(table, columns, 0)
        leaderboard = learn(validation, FAMILIES, trials=1, input_levels=("header",))
        recipe = choose_trend(validation, leaderboard, columns)
        assert (recipe is not None) == has_trend
        trend = fit_trend(validation, leaderboard, columns)
        assert (None if trend is None else trend.model.family) == (recipe and recipe[0])


def test_without_families_that_extrapolate_there_is_no_trend() -> None:
    table = runs(0.8)
    columns = choose_columns(table, "seconds")
    validation = validation_of(table, columns, 0)
    leaderboard = learn(validation, ("median", "tree"), trials=1, input_levels=("header",))
    assert choose_trend(validation, leaderboard, columns) is None
