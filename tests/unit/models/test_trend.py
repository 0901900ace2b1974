"""Which trend is continued is decided on the runs that lie farthest up."""

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.features.any_table import choose_columns
from voxcast.models.metrics import binomial_interval
from voxcast.models.point_model import queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fitting import choose_trend, fit_forecaster, fit_trend, outermost
from voxcast.models.selection.learning import learn
from voxcast.models.table_model import validation_of

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
        assert (None if trend is None else trend.family) == (recipe and recipe[0])


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
    assert recipe[0] in ("voxels", "ridge")
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
