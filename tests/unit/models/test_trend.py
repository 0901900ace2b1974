"""Which trend is continued is decided on the runs that lie farthest up."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.features.any_table import choose_columns
from voxcast.models.forecaster import Forecaster
from voxcast.models.metrics import binomial_interval
from voxcast.models.query import queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import learn
from voxcast.models.selection.refitting import fit_forecaster
from voxcast.models.table_fitting import fit_on_all
from voxcast.models.table_model import TableModel
from voxcast.models.table_validation import validation_of
from voxcast.models.trend import choose_trend, fit_trend, outermost

FAMILIES = ("median", "ridge", "boosted")
SIZE = "content.foreground_megavoxels"


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
        assert trend is None or "size" not in trend.shares


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
    assert model.forecaster.model_at("header").trend.shares == {"size": 0.0}
    far = table.head(20).assign(size=1e5)
    answers = model.predict(far)
    assert answers["prediction"].to_numpy() == pytest.approx(370, rel=0.3)
    assert not answers["calibrated"].any()


def test_the_shares_of_a_trend_are_saved(tmp_path) -> None:
    table = runs(0.8)
    columns = choose_columns(table, "seconds")
    model, _ = fit_on_all(validation_of(table, columns, 0), columns, FAMILIES, trials=1)
    at_header = model.forecaster.model_at("header")
    assert at_header.trend is not None
    bent = replace(at_header.trend, shares={"size": 0.0})
    model = replace(model, forecaster=Forecaster({"header": replace(at_header, trend=bent)}))
    far = table.head(5).assign(size=1e5)
    model.save(tmp_path)
    again = TableModel.load(tmp_path).predict(far)
    pd.testing.assert_frame_equal(again, model.predict(far))
    assert again["prediction"].max() < 1.5 * table["seconds"].max()


def test_the_largest_images_are_held_out_by_the_sizes_that_are_known() -> None:
    table = planted.table(30)
    outer = outermost(table, None, "volume")
    subjects = set(table["subject"][outer])
    assert table["subject"][outer].nunique() == round(0.2 * 30)
    assert not subjects & set(table["subject"][~outer])
    by_subject = table.groupby("subject")[[SIZE, "header.megavoxels"]].max()
    assert {by_subject[name].idxmax() for name in by_subject} <= subjects
    at_header = outermost(table, None, "header")
    assert (
        table["header.megavoxels"][at_header].min() > table["header.megavoxels"][~at_header].max()
    )


@pytest.mark.parametrize("families", [("ridge", "law"), ("extra_trees", "law")])
def test_an_image_beyond_all_others_follows_the_law_of_its_size(families: tuple[str, ...]) -> None:
    table = planted.table(40)
    largest = table.groupby("subject")[SIZE].max().nlargest(8).index
    is_far = table["subject"].isin(largest)
    validation = Validation(table[~is_far].reset_index(drop=True), None, 4, 0)
    leaderboard = learn(validation, families, trials=1)
    forecaster = fit_forecaster(validation, leaderboard, families[0], 1.5)
    beyond = table[is_far]
    predictions = forecaster.predict(queries_of(beyond))
    medians = np.array([p.quantiles["cpu_s"][1] for p in predictions])
    out_of_range = np.array([bool(p.out_of_range) for p in predictions])
    errors = np.abs(np.log(medians / beyond["cpu_s"].to_numpy()))
    assert out_of_range.any()
    assert errors[out_of_range].mean() < 0.05
    assert not any(p.calibrated for p in predictions if p.out_of_range)


def test_with_too_few_images_the_best_family_within_is_continued() -> None:
    validation = Validation(planted.table(4), None, 3, 0)
    leaderboard = learn(validation, ("median", "voxels", "ridge"), trials=1)
    recipe = choose_trend(validation, leaderboard, None, "volume")
    assert recipe is not None
    assert recipe.family in ("voxels", "ridge")
    alone = learn(validation, ("median", "extra_trees"), trials=1)
    assert choose_trend(validation, alone, None, "volume") is None


def scattered(subjects: int, seed: int) -> pd.DataFrame:
    """Return runs whose CPU time scatters more the larger the foreground is."""
    table = planted.table(subjects, seed=seed, noise=0.03)
    rng = np.random.default_rng(seed)
    own = {name: rng.normal() for name in sorted(set(table["subject"]))}
    factor = np.exp(0.08 * table[SIZE] / 0.4 * table["subject"].map(own))
    return table.assign(cpu_s=table["cpu_s"] * factor, runtime_s=table["runtime_s"] * factor)


def test_bounds_hold_beyond_the_largest_images() -> None:
    above = subjects = 0
    for seed in range(4):
        table = scattered(80, seed)
        is_far = table["subject"].isin(table.groupby("subject")[SIZE].max().nlargest(16).index)
        validation = Validation(table[~is_far].reset_index(drop=True), None, 4, 0)
        leaderboard = learn(validation, ("ridge",), trials=1)
        forecaster = fit_forecaster(validation, leaderboard, "ridge", 1.5)
        held_out = table[is_far]
        predictions = forecaster.predict(queries_of(held_out))
        upper = np.array([p.quantiles["cpu_s"][2] for p in predictions])
        above += held_out["subject"][held_out["cpu_s"].to_numpy() > upper].nunique()
        subjects += 16
    assert binomial_interval(above, subjects)[0] <= 0.05
