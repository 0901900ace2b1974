"""Answers out of range: near the labels, wider, and never called calibrated."""

import math

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.features.any_table import choose_columns, feature_table
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, calibrate
from voxcast.models.out_of_range import MOST, STEEPEST, Path, TrainingRange, changes, paths_of
from voxcast.models.point_model import Query, queries_of
from voxcast.models.regressor import RuntimeRegressor
from voxcast.models.selection.cross_validation import Validation

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
    fit = RuntimeRegressor(FEW, trials=1)._fit_rows(runs, columns, None)
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


def test_a_power_of_two_columns_is_continued_in_both() -> None:
    rng = np.random.default_rng(0)
    size, cpus = np.exp(rng.uniform(0, 7, 300)), rng.choice([1, 2, 4, 8], 300)
    runs = pd.DataFrame({"size": size, "cpus": cpus, "seconds": 3 * size**0.8 / cpus**0.5})
    columns = choose_columns(runs, "seconds")
    table = feature_table(runs, columns).assign(target=runs["seconds"])
    params = {**FAMILIES["ridge"].defaults, "columns": "all", "scale": "log", "alpha": 1e-6}
    model = point_model.fit(table, None, "ridge", params, "header", 0, ("target",))
    far = pd.DataFrame({"size": [1e4], "cpus": [32], "seconds": [1.0]})
    paths = paths_of(model.range, queries_of(feature_table(far, columns)), columns)
    expected = 0.8 * np.log(1e4 / size.max()) - 0.5 * np.log(32 / 8)
    assert changes(model, paths)[0, 0] == pytest.approx(expected, abs=0.1)


@pytest.fixture(scope="module")
def of_images() -> CalibratedModel:
    table, ridge = planted.table(30), FAMILIES["ridge"].defaults
    model = point_model.fit(table, None, "ridge", ridge, "volume", 0)
    out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", ridge, "volume")
    return calibrate(model, table, out_of_fold, 1.5)


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
