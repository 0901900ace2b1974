"""Answers out of range: near the labels, wider, never called calibrated; which trend goes on."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import planted
from public_tables import KINDS
from voxcast.features.any_table import choose_columns, feature_table, learnable
from voxcast.features.rows import combination, rows_of
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, Forecaster
from voxcast.models.metrics import binomial_interval
from voxcast.models.out_of_range import MOST, STEEPEST, Path, TrainingRange, paths_of
from voxcast.models.point_model import Query, queries_of
from voxcast.models.regressor import RuntimeRegressor
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fitting import choose_trend, fit_forecaster, fit_trend, outermost
from voxcast.models.selection.learning import learn
from voxcast.models.table_model import groups_of, novelty_of, validation_of

FEW = ("median", "ridge", "boosted")
SIZE = "content.foreground_megavoxels"


def memory_runs() -> pd.DataFrame:
    """Return tasks of which 24 have an input; its sizes are over three decades."""
    rng = np.random.default_rng(3)
    base, task = rng.lognormal(6, 1, 8), rng.integers(0, 8, 700)
    size = np.zeros(700)
    size[rng.choice(700, 24, replace=False)] = rng.lognormal(18, 1.5, 24)
    runs = pd.DataFrame({"task": task, "input_bytes": size, "samples": rng.integers(1, 20, 700)})
    memory = base[task] * (1 + size / 1e8) ** 0.25
    return runs.assign(mb=memory * rng.lognormal(0, 0.08, 700))


def test_a_size_that_is_zero_in_most_rows_makes_no_absurd_answer() -> None:
    runs = memory_runs()
    columns = choose_columns(runs, "mb")
    assert "input_bytes" in columns.logs
    assert columns.unit("input_bytes") == runs["input_bytes"][runs["input_bytes"] > 0].min()
    fit = RuntimeRegressor(FEW, trials=2)._fit_rows(runs, columns, None)
    largest = runs["input_bytes"].max()
    beyond = runs[runs["input_bytes"] > 0].assign(input_bytes=np.tile([1.08, 37.0], 12) * largest)
    predictions = fit.model_.predict(beyond)
    assert predictions["out_of_range"].eq("input_bytes").all()
    assert not predictions["calibrated"].any()
    labels = runs["mb"].loc[beyond.index].to_numpy()
    ratios = predictions["prediction"].to_numpy() / labels
    assert ratios[::2].max() < 4  # the truth is up to 2.9 times the label of a smaller input
    assert ratios[1::2].max() < 10
    assert predictions["prediction"].max() < 5 * runs["mb"].max()


def test_an_answer_is_no_farther_outside_the_labels_than_they_span() -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, 4, 200))
    runs = pd.DataFrame({"size": size, "seconds": size**2 * rng.lognormal(0, 0.02, 200)})
    fit = RuntimeRegressor(FEW, trials=1)._fit_rows(runs, choose_columns(runs, "seconds"), None)
    low, high = runs["seconds"].min(), runs["seconds"].max()
    answers = fit.model_.predict(pd.DataFrame({"size": [200.0, 1e9, 1e-9]}))["prediction"]
    assert answers[0] == pytest.approx(200**2, rel=0.3)
    assert answers[1] == pytest.approx(high**2 / low, rel=1e-6)
    assert answers[2] >= low**2 / high * (1 - 1e-6)


def test_the_path_of_a_row_has_signs_units_and_edges() -> None:
    runs = pd.DataFrame({"change": [-4e6, -1.0, 0.0, 2.0, 50.0] * 4, "cpus": [1, 2, 4, 8, 16] * 4})
    runs["seconds"] = 1.0
    columns = choose_columns(runs, "seconds")
    assert columns.logs == ("change", "cpus")
    covered = TrainingRange({"column.change": (-4e6, 50.0), "column.cpus": (1.0, 16.0)})
    rows = pd.DataFrame({
        "change": [-4e7, 5.0, 0.0, np.nan, -4e7], "cpus": [4, 32, -3, 32, 32], "seconds": 1.0,
    })  # fmt: skip
    queries = queries_of(feature_table(rows, columns))
    below, above, negative, missing, both = paths_of(covered, queries, columns)
    assert below.edge.features["column.change"] == -4e6
    assert below.distance == pytest.approx(np.log(10), rel=1e-6)
    assert below.probe.features["column.change"] == pytest.approx(-4e5, rel=1e-3)
    assert above.distance == pytest.approx(np.log(2))
    assert above.probe.features["column.cpus"] == pytest.approx(4)
    assert above.factor == pytest.approx(-np.log(2) / np.log(4))
    assert (negative.factor, negative.edge.features["column.cpus"]) == (0.0, 1.0)
    assert negative.distance > 0
    assert np.isnan(missing.edge.features["column.change"])
    assert missing.distance == pytest.approx(np.log(2))
    assert both.distance == pytest.approx(np.log(20))
    assert STEEPEST * below.distance < np.log(1001)


@pytest.fixture(scope="module")
def of_images() -> CalibratedModel:
    return planted.calibrated(planted.table(30))


def changed(**features: float | str) -> Query:
    query = queries_of(planted.table(30))[0]
    names = {name.replace("__", "."): value for name, value in features.items()}
    return Query(query.features | names, query.cpus)


def path(model: CalibratedModel, query: Query) -> Path:
    (one,) = paths_of(model.model.range, [query], None)
    return one


def test_the_path_of_an_image_ends_at_the_range(of_images: CalibratedModel) -> None:
    within = path(of_images, changed())
    assert (within.distance, within.unknown) == (0.0, 0.0)
    low, high = of_images.model.range.numbers[SIZE]
    for value in (4 * high, low / 4):
        far = path(of_images, changed(content__foreground_megavoxels=value))
        assert far.distance == pytest.approx(math.log(4))
        assert far.unknown == 0
        assert far.edge.features[SIZE] in (low, high)


@pytest.mark.parametrize(
    ("features", "factor"),
    [
        ({"allocation__log2_cpus": 3.0}, 4.0),  # eight CPUs, two were measured
        ({"parameter__iterations": 33.0}, 1.1**3),
        ({"parameter__iterations": 300.0}, 10.0),
        ({"device": "gpu"}, 10.0),
        ({"device": "gpu", "allocation__log2_cpus": 5.0}, 10.0),
        ({"content__foreground_megavoxels": math.nan}, 10.0),
    ],
)
def test_a_feature_without_a_measured_effect_may_account_for_a_factor(
    of_images: CalibratedModel, features: dict, factor: float
) -> None:
    far = path(of_images, changed(**features))
    assert far.distance == 0
    assert math.exp(far.unknown) == pytest.approx(factor)
    assert far.unknown <= MOST


def test_both_bounds_move_outwards_with_the_distance(of_images: CalibratedModel) -> None:
    _, high = of_images.model.range.numbers[SIZE]
    queries = [changed(content__foreground_megavoxels=high * k) for k in (0.9, 1.3, 2.0, 3.0)]
    quantiles, calibrated = of_images.quantiles(queries, 0.05, 0.95)
    ratios = np.log(quantiles[:, :, [0, 2]] / quantiles[:, :, [1]])
    assert (np.diff(ratios[:, :, 1], axis=0) > 0).all()
    assert (np.diff(ratios[:, :, 0], axis=0) < 0).all()
    assert calibrated.tolist() == [True, False, False, False]


ROWS = 400


def sizes(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.exp(rng.uniform(0, np.log(1e4), rows))


def product_runs(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return runs on tables of which rows times columns are below 1e5, as is each."""
    rng = np.random.default_rng(seed)
    a, b = sizes(rng, 4 * rows), sizes(rng, 4 * rows)
    a, b = (values[a * b < 1e5][:rows] for values in (a, b))
    seconds = (1 + 1e-4 * a * b) * rng.lognormal(0, 0.08, rows)
    threads = rng.choice([1, 2, 4, 8], rows)
    return pd.DataFrame({"rows": a, "cols": b, "threads": threads, "seconds": seconds})


def sized_runs(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return runs that were on the more CPUs the larger their input."""
    rng = np.random.default_rng(seed)
    size = sizes(rng, rows)
    cpus = np.clip(2 ** np.round(np.log2(size) / 2.2 + rng.normal(0, 0.5, rows)), 1, 64)
    seconds = (3 + 2 * size / cpus**0.9) * rng.lognormal(0, 0.1, rows)
    return pd.DataFrame({"size": size, "cpus": cpus, "seconds": seconds})


def twin_runs(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return runs on nodes of eight cores, all of which were used."""
    rng = np.random.default_rng(seed)
    cores = 2.0 ** rng.integers(3, 9, rows)
    size = rng.uniform(10, 1000, rows)
    return pd.DataFrame(
        {"cores": cores, "nodes": cores / 8, "size": size, "seconds": size / cores}
    )


def range_of(runs: pd.DataFrame) -> tuple[TrainingRange, pd.DataFrame]:
    """Return the range of a table, and the table's first row."""
    columns = choose_columns(runs, "seconds")
    rows = rows_of(feature_table(runs, columns))
    subjects = groups_of(runs, columns, novelty_of(runs, columns)).tolist()
    return TrainingRange.fit(rows, content=False, subjects=subjects), runs.head(1)


def out_of_range(
    covered: TrainingRange, train: pd.DataFrame, runs: pd.DataFrame
) -> list[tuple[str, ...]]:
    return covered.outside(rows_of(feature_table(runs, choose_columns(train, "seconds"))))


@pytest.mark.parametrize(
    ("draw", "changes", "pair"),
    [
        (product_runs, {"rows": 3000.0, "cols": 3000.0}, ("cols", "rows")),
        (sized_runs, {"size": 5000.0, "cpus": 1.0}, ("cpus", "size")),
        (sized_runs, {"size": 5.0, "cpus": 64.0}, ("cpus", "size")),
        (twin_runs, {"cores": 128.0, "nodes": 1.0}, ("cores", "nodes")),
    ],
)
def test_a_combination_that_never_occurred_is_named(draw, changes, pair) -> None:
    for seed in (0, 1):
        runs = draw(seed)
        covered, first = range_of(runs)
        (names,) = out_of_range(covered, runs, first.assign(**changes))
        assert names == (combination(*(f"column.{name}" for name in pair)),)
        others = draw(seed + 100)
        assert np.mean([bool(names) for names in out_of_range(covered, runs, others)]) < 0.03


def test_the_distance_is_how_far_both_numbers_would_have_to_move() -> None:
    runs = product_runs(0)
    covered, first = range_of(runs)
    columns = choose_columns(runs, "seconds")
    for size in (1e3, 5e3):
        row = feature_table(first.assign(rows=size, cols=size), columns)
        (far,) = covered.joint.distances(rows_of(row))
        # From there the products of training rows are reached at 1e5.
        assert far[combination("column.cols", "column.rows")] == pytest.approx(
            np.log(size**2 / 1e5), abs=0.5
        )


def test_repeats_of_few_rows_do_not_tell_which_combinations_occur() -> None:
    few = sized_runs(0, 8)
    runs = few.loc[np.repeat(np.arange(8), 10)].reset_index(drop=True)
    covered, first = range_of(runs)
    changed = first.assign(size=few["size"].max(), cpus=few["cpus"].min())
    assert out_of_range(covered, runs, changed) == [()]


def test_it_is_read_as_it_was_written() -> None:
    covered, _ = range_of(product_runs(0))
    written = json.dumps(covered.to_json(), allow_nan=False)
    assert TrainingRange.from_json(json.loads(written)) == covered


@pytest.mark.parametrize("rows", [30, 300])
def test_few_rows_of_the_same_origin_are_outside(rows: int) -> None:
    """Repeats, heavy tails, constants, missing values, and up to thirty columns."""
    flagged = []
    names = ("spark", "workflow_memory", "genome_tool", "constants", "missing", "codes", "wide")
    for name in names:
        kind = KINDS[name]
        train, unseen = (
            kind.draw(np.random.default_rng(5), np.random.default_rng(seed), count, 1.0)
            for seed, count in ((6, rows), (7, 300))
        )
        columns = choose_columns(train, kind.target)
        usable, _ = learnable(train, columns)
        train = train[usable]
        covered = TrainingRange.fit(
            rows_of(feature_table(train, columns)),
            content=False,
            subjects=groups_of(train, columns, novelty_of(train, columns)).tolist(),
        )
        answers = covered.outside(rows_of(feature_table(unseen, columns)))
        flagged += [any("×" in entry for entry in names_of_row) for names_of_row in answers]
    assert np.mean(flagged) < 0.02


def test_of_an_image_the_bound_widens_and_the_reason_is_in_words() -> None:
    table = planted.table(40)
    model = point_model.fit(table, None, "ridge", FAMILIES["ridge"].defaults, "volume", 0)
    query = queries_of(table)[0]
    ranges = model.range.numbers
    size, foreground = "header.megavoxels", "content.foreground_megavoxels"
    changes = {size: ranges[size][0], foreground: ranges[foreground][1]}
    query = Query(query.features | changes, query.cpus)
    name = combination(foreground, size)
    assert model.range.outside([query.features]) == [(name,)]
    (path,) = paths_of(model.range, [query], None)
    (far,) = model.range.joint.distances([query.features])
    assert path.edge.features == query.features
    assert (path.distance, path.combined, path.unknown) == (0.0, far[name], 0.0)
    (reason,) = Forecaster({"volume": CalibratedModel(model, {})}).outside(query, [name])
    assert reason.endswith("were not measured together")
    assert " in the foreground with " in reason


PLAIN = ("median", "ridge", "boosted")


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
        leaderboard = learn(validation, PLAIN, trials=1, input_levels=("header",))
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
