"""Answers beyond the range of a table: near the labels, wider, and never called calibrated."""

import numpy as np
import pandas as pd
import pytest

from public_tables import KINDS, tables_of
from voxcast.features.any_table import choose_columns, feature_table
from voxcast.models.continuation import STEEPEST, path_of
from voxcast.models.query import queries_of
from voxcast.models.table_fitting import fit_table

FEW = ("median", "ridge", "boosted")


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
    fit = fit_table(runs, columns, trials=2, families=FEW)
    assert fit.metrics["mape"] < 10
    largest = runs["input_bytes"].max()
    beyond = runs[runs["input_bytes"] > 0].assign(input_bytes=np.tile([1.08, 37.0], 12) * largest)
    predictions = fit.model.predict(beyond)
    assert predictions["out_of_range"].eq("input_bytes").all()
    assert not predictions["calibrated"].any()
    labels = runs["mb"].loc[beyond.index].to_numpy()
    ratios = predictions["prediction"].to_numpy() / labels
    assert ratios[::2].max() < 4  # the truth is up to 2.9 times the label of a smaller input
    assert ratios[1::2].max() < 10
    assert predictions["prediction"].max() < 5 * runs["mb"].max()


def test_what_is_far_outside_does_not_ruin_a_table() -> None:
    tables = tables_of(KINDS["workflow_memory"])
    columns = choose_columns(tables.train, "mb")
    fit = fit_table(tables.train, columns, trials=1, families=FEW)
    predictions = fit.model.predict(tables.unseen)
    errors = np.abs(predictions["prediction"] / tables.unseen["mb"] - 1)
    flagged = predictions["out_of_range"].ne("")
    assert flagged[:5].all()
    assert errors.mean() < 1.1 * errors[~flagged].mean()
    assert errors[flagged].max() < 2


def test_no_trend_is_continued_where_there_is_none() -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, 6, 300))
    runs = pd.DataFrame({"size": size, "tool": rng.choice(["a", "b"], 300)})
    # It grows up to a limit, and with the size no more.
    runs["seconds"] = np.minimum(size, 12) * rng.lognormal(0, 0.03, 300)
    columns = choose_columns(runs, "seconds")
    fit = fit_table(runs, columns, trials=1, families=FEW)
    assert fit.model.forecaster.model_at("header").extrapolator is None
    far = fit.model.predict(runs.head(3).assign(size=4e5))
    assert far["prediction"].to_numpy() == pytest.approx(12, rel=0.15)
    near = fit.model.predict(runs.head(3).assign(size=300.0))
    assert (far["upper"] / far["prediction"] > near["upper"] / near["prediction"]).all()


def test_an_answer_is_no_farther_outside_the_labels_than_they_span() -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, 4, 200))
    runs = pd.DataFrame({"size": size, "seconds": size**2 * rng.lognormal(0, 0.02, 200)})
    fit = fit_table(runs, choose_columns(runs, "seconds"), trials=1, families=FEW)
    low, high = runs["seconds"].min(), runs["seconds"].max()
    answers = fit.model.predict(pd.DataFrame({"size": [200.0, 1e9, 1e-9]}))["prediction"]
    assert answers[0] == pytest.approx(200**2, rel=0.3)
    assert answers[1] == pytest.approx(high**2 / low, rel=1e-6)
    assert answers[2] >= low**2 / high * (1 - 1e-6)


def test_the_path_of_a_row_has_signs_units_and_edges() -> None:
    runs = pd.DataFrame({"change": [-4e6, -1.0, 0.0, 2.0, 50.0] * 4, "cpus": [1, 2, 4, 8, 16] * 4})
    runs["seconds"] = 1.0
    columns = choose_columns(runs, "seconds")
    assert columns.logs == ("change", "cpus")
    ranges = {"column.change": (-4e6, 50.0), "column.cpus": (1.0, 16.0)}
    rows = pd.DataFrame({"change": [-4e7, 5.0, 0.0], "cpus": [4, 32, -3], "seconds": 1.0})
    below, above, negative = (
        path_of(query, columns, ranges) for query in queries_of(feature_table(rows, columns))
    )
    assert below.edge.features["column.change"] == -4e6
    assert below.distance == pytest.approx(np.log(10), rel=1e-6)
    assert below.steps[0].within.features["column.change"] == pytest.approx(-4e5, rel=1e-3)
    assert [step.distance for step in above.steps] == pytest.approx([np.log(2)])
    assert above.steps[0].within.features["column.cpus"] == pytest.approx(4)
    assert (negative.steps, negative.edge.features["column.cpus"]) == ((), 1.0)
    assert negative.distance > 0
    missing = rows.tail(1).assign(change=np.nan, cpus=32)
    (path,) = (path_of(q, columns, ranges) for q in queries_of(feature_table(missing, columns)))
    assert np.isnan(path.edge.features["column.change"])
    assert path.distance == pytest.approx(np.log(2))
    assert STEEPEST * below.distance < np.log(1001)
