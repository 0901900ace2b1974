"""Whether a trend is continued is decided on the rows that lie farthest up."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from voxcast.features.any_table import choose_columns
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.learning import learn
from voxcast.models.table_fitting import fit_on_all
from voxcast.models.table_model import TableModel
from voxcast.models.table_trend import choose_trend, fit_trend, outermost
from voxcast.models.table_validation import validation_of

FAMILIES = ("median", "ridge", "boosted")


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
        assert (None if trend is None else trend.model.family) == (recipe and recipe.family)
        assert trend is None or "size" not in trend.trend_shares


def test_without_families_that_extrapolate_there_is_no_trend() -> None:
    table = runs(0.8)
    columns = choose_columns(table, "seconds")
    validation = validation_of(table, columns, 0)
    leaderboard = learn(validation, ("median", "extra_trees"), trials=1, input_levels=("header",))
    assert choose_trend(validation, leaderboard, columns) is None


def test_a_trend_that_ends_among_the_last_rows_is_not_continued() -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, np.log(1000), 300))
    seconds = (20 + 0.5 * np.minimum(size, 700)) * rng.lognormal(0, 0.05, 300)
    table = pd.DataFrame({"size": size, "kind": rng.choice(["x", "y"], 300), "seconds": seconds})
    columns = choose_columns(table, "seconds")
    model, _ = fit_on_all(validation_of(table, columns, 0), columns, FAMILIES, trials=1)
    assert model.forecaster.model_at("header").extrapolator.trend_shares == {"size": 0.0}
    far = table.head(20).assign(size=1e5)
    answers = model.predict(far)
    assert answers["prediction"].to_numpy() == pytest.approx(370, rel=0.3)
    assert not answers["calibrated"].any()


def test_the_shares_of_a_trend_are_saved(tmp_path) -> None:
    table = runs(0.8)
    columns = choose_columns(table, "seconds")
    model, _ = fit_on_all(validation_of(table, columns, 0), columns, FAMILIES, trials=1)
    at_header = model.forecaster.model_at("header")
    assert at_header.extrapolator is not None
    bent = replace(at_header.extrapolator, trend_shares={"size": 0.0})
    model = replace(
        model, forecaster=Forecaster({"header": replace(at_header, extrapolator=bent)})
    )
    far = table.head(5).assign(size=1e5)
    model.save(tmp_path)
    again = TableModel.load(tmp_path).predict(far)
    pd.testing.assert_frame_equal(again, model.predict(far))
    assert again["prediction"].max() < 1.5 * table["seconds"].max()
