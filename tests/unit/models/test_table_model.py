"""The zoo on tables of any columns, and the regressor that keeps scikit-learn's contract."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import voxcast
from voxcast.errors import ModelError, TableError
from voxcast.features.any_table import (
    choose_columns,
    feature_table,
    is_censored,
    learnable,
    statuses,
)
from voxcast.models.regressor import RuntimeRegressor, affordable, fit_on_all, refitted
from voxcast.models.table_model import MAX_ROWS, TableModel, groups_of, novelty_of, validation_of

FEW = ("median", "ridge", "extra_trees")


def table(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = np.exp(rng.uniform(0, 5, rows))
    tool = rng.choice(["fast", "slow"], rows)
    return pd.DataFrame(
        {
            "job": np.arange(rows), "site": [f"s{n % 12}" for n in range(rows)],
            "size": np.where(rng.uniform(size=rows) < 0.05, np.nan, size), "tool": tool,
            "seconds": (5 + size * np.where(tool == "slow", 3, 1)) * rng.lognormal(0, 0.05, rows),
        }
    )  # fmt: skip


def fit_table(runs, columns, censored=None, **settings) -> RuntimeRegressor:
    settings = {"families": ("median", "ridge", "boosted"), "trials": 1} | settings
    return RuntimeRegressor(**settings)._fit_rows(runs, columns, censored)


@pytest.fixture(scope="module")
def fitted():
    runs = table()
    columns = choose_columns(runs, "seconds", "site", ["job"])
    return fit_table(runs, columns, trials=2, families=FEW, evaluate=True)


def test_it_is_evaluated_on_held_out_groups_and_learns_the_law(fitted) -> None:
    assert fitted.deterministic_
    assert (fitted.rows_, fitted.groups_) == (120, 12)
    assert set(fitted.cv_results_.index) == {*FEW, "grid", "voting", "stacked"}
    assert fitted.metrics_["mape"] < 0.5 * fitted.cv_results_["mape"]["median"]
    assert fitted.metrics_["coverage"] > 0.8
    assert {"mae", "mape", "median_ape", "upp", "ov_mape", "coverage"} <= set(fitted.metrics_)


def test_a_reloaded_model_predicts_unseen_rows_in_order(fitted, tmp_path) -> None:
    fitted.model_.save(tmp_path / "model")
    again = TableModel.load(tmp_path / "model")
    for path in [path for path in (tmp_path / "model").rglob("*") if path.is_file()]:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(ModelError, match=path.name):
            TableModel.load(tmp_path / "model")
        path.write_bytes(content)
    unseen = table(40, seed=1).drop(columns=["seconds", "site", "job"])
    predictions = fitted.model_.predict(unseen)
    pd.testing.assert_frame_equal(again.predict(unseen), predictions)
    assert (predictions["upper"] >= predictions["prediction"]).all()
    turned = fitted.model_.predict(unseen.iloc[::-1])
    pd.testing.assert_frame_equal(turned.iloc[::-1], predictions)
    strange = unseen.assign(size=1e5)
    assert fitted.model_.predict(strange)["out_of_range"].ne("").all()
    new = unseen.assign(tool="unheard of")
    assert fitted.model_.predict(new)["out_of_range"].ne("").all()
    assert fitted.model_.predict(strange)["prediction"].min() > predictions["prediction"].max()
    with pytest.raises(TableError, match="size: no such column"):
        fitted.model_.predict(unseen.drop(columns="size"))


def test_forty_tools_are_told_apart_and_a_new_one_is_flagged(tmp_path) -> None:
    rng = np.random.default_rng(4)
    rows, effect = 400, rng.lognormal(0, 1, 60)
    tool, size = rng.integers(0, 40, rows), np.exp(rng.uniform(0, 4, rows))
    runs = pd.DataFrame(
        {
            "tool": [f"tool {n}" for n in tool], "size": size,
            "note": np.where(rng.uniform(size=rows) < 0.1, None, "x"),
            "seconds": effect[tool] * size**0.8 * rng.lognormal(0, 0.1, rows),
        }
    )  # fmt: skip
    columns = choose_columns(runs, "seconds")
    fitted = fit_table(runs, columns, evaluate=True)
    assert fitted.metrics_["mape"] < 20  # with thirty of the tools it was above 40
    assert 0.8 < fitted.metrics_["coverage"] <= 1
    fitted.model_.save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model")
    known = model.predict(runs)
    assert known["out_of_range"].eq("").all()
    assert known["calibrated"].all()
    for changed, name in (
        ({"tool": "bought later"}, "tool"), ({"tool": None}, "tool"), ({"size": np.nan}, "size"),
    ):  # fmt: skip
        answers = model.predict(runs.assign(**changed))
        assert answers["out_of_range"].eq(name).all()
        assert not answers["calibrated"].any()
        assert np.isfinite(answers[["prediction", "upper"]]).all(axis=None)
    # The note was missing in training, too.
    assert model.predict(runs.assign(note=None))["calibrated"].all()


def test_the_target_is_never_a_feature() -> None:
    runs = table(30).rename(columns={"seconds": "time.s", "site": "group.x"})
    columns = choose_columns(runs, "time.s", "group.x", ["job"])
    assert set(feature_table(runs, columns)) == {"column.size", "column.log size", "column.tool"}


def test_rows_without_a_label_are_counted_and_dropped() -> None:
    runs = table(30)
    runs.loc[[0, 1], "seconds"] = [0, -3]
    runs.loc[2, "seconds"] = np.inf
    runs.loc[3, "seconds"] = np.nan
    runs["outcome"] = ["timeout" if n == 4 else "completed" for n in range(30)]
    usable, left_out = learnable(runs, choose_columns(runs, "seconds", "site", ["job"]))
    assert usable.sum() == 25
    assert left_out == {
        "without a value": [4], "not finite": [3], "zero or below": [1, 2],
        "not completed (timeout)": [5],
    }  # fmt: skip


def test_censored_runs_widen_the_bound() -> None:
    runs = table(60)
    columns = choose_columns(runs, "seconds", "site", ["job"])
    with_timeouts = runs.assign(
        outcome=["timeout" if n % 12 == 3 else "completed" for n in range(60)]
    )
    censored = with_timeouts[is_censored(statuses(with_timeouts))]
    assert set(censored["site"]) == {"s3"}
    plain, wider = (
        fit_table(runs, columns, rows, families=("median", "ridge"), quantile=0.8)
        for rows in (None, censored)
    )
    queries = runs.head(5)
    assert (wider.model_.predict(queries)["upper"] >= plain.model_.predict(queries)["upper"]).all()
    assert wider.model_.forecaster.model_at("header").calibrators["target"].censored == 1


def test_repeats_of_a_configuration_are_one_group() -> None:
    once = table(20)[["size", "tool", "seconds"]]
    runs = pd.concat([once, once.assign(seconds=2 * once["seconds"]), once], ignore_index=True)
    columns = choose_columns(runs, "seconds")
    groups = groups_of(runs, columns, novelty_of(runs, columns))
    assert len(set(groups)) == 20
    assert (groups[:20] == groups[20:40]).all()
    for train, held_out in validation_of(runs, columns, 0).folds():
        assert not set(groups[train]) & set(groups[held_out])
    assert (
        len(set(groups_of(runs.assign(site="a"), replace(columns, group="site"), "groups"))) == 1
    )


def test_few_configurations_are_held_out_run_by_run() -> None:
    rng = np.random.default_rng(0)
    tool = np.repeat(["a", "b"], 40)
    seconds = np.where(tool == "a", 10, 100) * rng.lognormal(0, 0.1, 80)
    runs = pd.DataFrame({"tool": tool, "cpus": np.tile([1, 2], 40), "seconds": seconds})
    fit = fit_table(runs, choose_columns(runs, "seconds"), evaluate=True)
    assert fit.novelty_ == "runs"
    assert fit.metrics_["mape"] < 12  # of whole tools held out it is several hundred
    queries = pd.DataFrame({"tool": ["a", "a"], "cpus": [2, 1.5]})
    # A configuration that is not in the table is none that the bound was measured for.
    assert fit.model_.predict(queries)["calibrated"].tolist() == [True, False]


def test_the_bound_holds_for_new_rows_and_for_configurations_not_seen() -> None:
    def runs(rng: np.random.Generator, count: int, repeats: int) -> pd.DataFrame:
        n = np.repeat(np.arange(count), repeats)
        size, effect = rng.uniform(1, 100, count)[n], rng.normal(0, 0.15, count)[n]
        noise = rng.normal(0, 0.05, len(n))
        return pd.DataFrame({"size": size, "seconds": (5 + size) * np.exp(effect + noise)})

    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        table_of_repeats, unseen = runs(rng, 40, 6), runs(rng, 300, 1)
        columns = choose_columns(table_of_repeats, "seconds")
        fit = fit_table(table_of_repeats, columns, families=("median", "ridge"))
        assert fit.novelty_ == "configurations"
        predictions = fit.model_.predict(unseen)
        upper = predictions["upper"][predictions["calibrated"]]
        covered.append((unseen["seconds"].loc[upper.index] <= upper).mean())
    assert 0.85 < np.mean(covered) < 0.95


def test_the_bound_holds_for_new_rows_of_a_mixture() -> None:
    def runs(rng: np.random.Generator, count: int) -> pd.DataFrame:
        # A fifth of the sizes are missing: rows of equal features whose times are far apart.
        size = rng.uniform(1, 50, count)
        known = np.where(rng.uniform(size=count) < 0.2, -1, size)
        seconds = (3 + 2 * size) * rng.lognormal(0, 0.05, count)
        return pd.DataFrame({"size": known, "cpus": rng.integers(1, 5, count), "seconds": seconds})

    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        table_of_runs, new = runs(rng, 300), runs(rng, 600)
        columns = choose_columns(table_of_runs, "seconds")
        fit = fit_table(table_of_runs, columns, families=("median", "boosted"))
        predictions = fit.model_.predict(new)
        upper = predictions["upper"][predictions["calibrated"]]
        covered.append((new["seconds"].loc[upper.index] <= upper).mean())
    assert 0.85 < np.mean(covered) < 0.95


def test_censored_rows_are_grouped_and_sampled_as_the_others_are() -> None:
    runs = pd.DataFrame({"size": np.arange(60) // 2 + 1.0, "seconds": np.arange(60) + 1.0})
    stopped = pd.DataFrame({"size": [1.0] * 10, "seconds": [9.0] * 10})
    columns = choose_columns(runs, "seconds")
    validation = validation_of(runs, columns, 0, stopped)
    (group,) = set(validation.stopped["subject"])
    assert group in set(validation.table["subject"])
    without = validation.part(np.flatnonzero(validation.table["subject"] != group))
    assert len(validation.stopped_units) == 10  # each is a row, as the others
    assert not without.stopped_units
    apart = validation_of(runs, columns, 0, stopped.assign(size=1000.0 + np.arange(10)))
    assert len(apart.sampled(30).stopped_units) == 5


def test_beyond_the_range_the_trend_is_continued_and_the_bound_is_wider() -> None:
    rng = np.random.default_rng(0)
    runs = pd.DataFrame({"v": rng.uniform(1, 12, 300), "cpus": rng.choice([1, 2, 4], 300)})
    runs["site"] = rng.choice(["a", "b"], 300)

    def law(v: float, cpus: float) -> float:
        return (30 + 40 * v) / cpus**0.6

    runs["seconds"] = law(runs["v"], runs["cpus"]) * rng.lognormal(0, 0.05, 300)
    runs.loc[runs["site"] == "b", "seconds"] *= 1.4
    columns = choose_columns(runs, "seconds")
    fit = fit_table(runs, columns)
    queries = pd.DataFrame({"v": [6, 40, 6, 1e300], "cpus": [2, 1, 16, 1], "site": ["a"] * 4})
    predictions = fit.model_.predict(queries)
    for n, expected_s in ((1, law(40, 1)), (2, law(6, 16))):
        assert predictions["prediction"][n] == pytest.approx(expected_s, rel=0.5)
        assert predictions["upper"][n] > expected_s
    widths = predictions["upper"] / predictions["prediction"]
    assert (widths[1:] > 1.5 * widths[0]).all()
    assert predictions["prediction"][3] <= 1001 * runs["seconds"].max()
    assert predictions["calibrated"].tolist() == [True, False, False, False]


def test_a_large_table_is_sampled_by_group() -> None:
    size = np.random.default_rng(0).uniform(1, 100, 2 * MAX_ROWS)
    large = pd.DataFrame({"size": size, "who": np.arange(len(size)) // 10, "seconds": 3 * size})
    validation = validation_of(large, choose_columns(large, "seconds", "who"), 0)
    assert 0.9 * MAX_ROWS < len(validation.table) <= MAX_ROWS
    assert set(validation.table["subject"].value_counts()) == {10}


def test_within_a_time_budget_a_sample_is_searched_and_the_last_fit_is_of_more_rows() -> None:
    def runs(rows: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        table = pd.DataFrame({f"x{n}": rng.normal(size=rows) for n in range(6)})
        effect = table["x0"] * table["x1"] + np.sin(3 * table["x2"]) + 0.5 * (table["x3"] > 0)
        return table.assign(seconds=np.exp(effect + rng.normal(0, 0.1, rows)))

    table, unseen = runs(4000, 0), runs(1000, 1)
    columns, families = choose_columns(table, "seconds"), ("median", "boosted")
    all_rows = validation_of(table, columns, 0)
    searched = affordable(all_rows, 1.0)
    assert len(searched.table) == 500 < len(affordable(all_rows, 5.0).table) < 4000
    small, board = fit_on_all(searched, columns, families, trials=1)
    params = board.params[board.best]
    assert refitted(small, all_rows, params, 500, end=0.0) is small
    larger = refitted(small, all_rows, params, 500, end=math.inf)
    errors = [
        np.abs(np.log(model.predict(unseen)["prediction"] / unseen["seconds"])).mean()
        for model in (small, larger)
    ]
    assert errors[1] < 0.8 * errors[0]
    answers = larger.predict(unseen)
    inside = answers["calibrated"].to_numpy()
    assert (unseen["seconds"] <= answers["upper"])[inside].mean() > 0.88


def test_a_constant_target_is_predicted_exactly() -> None:
    runs = table(30).assign(seconds=7.0)
    fit = fit_table(runs, choose_columns(runs, "seconds", "site", ["job"]), families=FEW)
    assert fit.model_.predict(runs)["prediction"].to_numpy() == pytest.approx(7.0, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.head(1), "1 rows have a label"),
        (lambda t: t.assign(seconds=-1.0), "30 zero or below"),
        (lambda t: t.assign(outcome="timeout"), "30 not completed"),
        (lambda t: t.assign(site="one"), "site: has one group"),
        (lambda t: t.assign(seconds="long"), "seconds: is text"),
        (lambda t: t.drop(columns="seconds"), "seconds: no such column"),
        (lambda t: t[["seconds", "site", "job"]], "there are no features"),
    ],
)
def test_tables_without_usable_rows_are_refused(change, message: str) -> None:
    runs = change(table(30))
    with pytest.raises(TableError, match=message):
        learnable(runs, choose_columns(runs, "seconds", "site", ["job"]))


FEWER = ("median", "ridge", "boosted")


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """Runs of two tools, one twice as slow; their peak memory is known afterwards only."""
    rng = np.random.default_rng(7)
    size, tool = rng.uniform(1, 100, 120), rng.choice(["fast", "slow"], 120)
    seconds = (2 + size) * np.where(tool == "fast", 1, 2) * np.exp(rng.normal(0, 0.03, 120))
    return pd.DataFrame({
        "size": size, "tool": tool, "subject": rng.integers(0, 30, 120).astype(str),
        "peak_rss_bytes": 1e6 * seconds, "seconds": seconds,
    })  # fmt: skip


@parametrize_with_checks([RuntimeRegressor(families=("median", "ridge"), trials=1)])
def test_it_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_is_evaluated_by_the_tools_of_scikit_learn(runs):
    scores = cross_val_score(
        RuntimeRegressor(families=FEWER, trials=1), runs[["size", "tool"]], runs["seconds"],
        groups=runs["subject"], cv=GroupKFold(3), scoring="neg_mean_absolute_percentage_error",
    )  # fmt: skip
    assert scores.min() > -0.15


def test_intervals_hold_and_rows_out_of_range_are_named(runs):
    train, test = runs.iloc[:90], runs.iloc[90:]
    regressor = RuntimeRegressor(families=FEWER, trials=1).fit(
        train[["size", "tool"]], train["seconds"], groups=train["subject"]
    )
    bounds = regressor.predict_interval(test[["size", "tool"]])
    assert (bounds["upper"].to_numpy() >= test["seconds"].to_numpy()).mean() > 0.8
    wider = regressor.predict_interval(test[["size", "tool"]], quantile=0.96)
    assert (wider["upper"] >= bounds["upper"]).all()
    (far,) = regressor.predict_interval(pd.DataFrame({"size": [900.0], "tool": ["slow"]})).T
    row = regressor.predict_interval(pd.DataFrame({"size": [900.0], "tool": ["slow"]})).loc[far]
    assert row["out_of_range"] == "size"
    assert not row["calibrated"]
    assert 900 < row["prediction"] < 10 * runs["seconds"].max()


def test_machines_and_sittings_have_speeds_that_local_runs_tell():
    rng = np.random.default_rng(3)
    size = rng.uniform(10, 100, 300)
    machine = rng.choice(["old", "new"], 300)
    day = rng.choice(["2026-01-05", "2026-01-06", "2026-01-07", "2026-01-08"], 300)
    slowness = {"old": 2.0, "new": 1.0}
    of_day = {(m, d): rng.lognormal(0, 0.1) for m in slowness for d in sorted(set(day))}
    places = list(zip(machine, day, strict=True))
    seconds = [s * slowness[m] * of_day[m, d] * rng.lognormal(0, 0.02)
               for s, (m, d) in zip(size, places, strict=True)]  # fmt: skip
    features = pd.DataFrame({"size": size})
    regressor = RuntimeRegressor(families=("ridge",), trials=1).fit(
        features, seconds, groups=rng.integers(0, 40, 300), machine=machine, sitting=day
    )
    known = regressor.predict(features, machine=machine, sitting=day)
    assert np.median(np.abs(np.log(known / seconds))) < 0.03
    asked = pd.DataFrame({"size": [50.0]})

    def answer(model=regressor, **place):
        return model.predict_interval(asked, **place).iloc[0]

    ratio = answer(machine="old")["prediction"] / answer(machine="new")["prediction"]
    assert 1.7 < ratio < 2.3
    today = {"machine": "new", "sitting": "2026-03-01"}
    unknown = answer(machine="other")
    assert not unknown["calibrated"]
    assert "unknown speed of the machine" in unknown["reason"]
    widths = [row["upper"] / row["prediction"] for row in (
        unknown, answer(**today), answer(machine="new", sitting="2026-01-05"),
    )]  # fmt: skip
    assert widths == sorted(widths, reverse=True)
    # A sitting 30 % slower than usual: two runs tell it, and the rest of it is predicted.
    local = pd.DataFrame({"size": [30.0, 70.0]})
    informed = regressor.updated(local, 1.3 * local["size"], **today)
    before, after = answer(**today), answer(informed, **today)
    assert abs(np.log(after["prediction"] / 65)) < 0.06 < abs(np.log(before["prediction"] / 65))
    assert after["upper"] / after["prediction"] < before["upper"] / before["prediction"]
    for place, y, message in (
        ({**today, "machine": 1}, [1.0, np.nan], "finite numbers"),
        ({"machine": "new", "sitting": "2026-01-05"}, [1.0, 2.0], "on record"),
    ):
        with pytest.raises(ValueError, match=message):
            regressor.updated(local, y, **place)
    with pytest.raises(ValueError, match="name the column of machines"):
        RuntimeRegressor().fit(features, seconds, sitting=day)
    # Without a second day of any machine, nobody knows what days differ by.
    one_day = RuntimeRegressor(families=("ridge",), trials=1).fit(
        features, seconds, groups=np.arange(300) % 40, machine=machine, sitting=machine
    )
    untried = one_day.predict_interval(asked, machine="new", sitting="2026-03-01").iloc[0]
    assert "unknown speed of the machine" in untried["reason"]
    assert one_day.predict_interval(asked, machine="new", sitting="new").iloc[0]["calibrated"]
    with pytest.raises(ValueError, match="not told the machine"):
        RuntimeRegressor(families=("ridge",), trials=1).fit(features, seconds).updated(
            local, [1.0, 2.0], **today
        )
    with pytest.raises(ValueError, match="fitted without machines"):
        RuntimeRegressor(families=("ridge",), trials=1).fit(features, seconds).predict(
            features, machine="new"
        )


@pytest.mark.parametrize("family", ["ridge", "gaussian_process"])
def test_runs_that_a_limit_stopped_raise_the_medians(family):
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, 3, 160))
    seconds = 10 * size * rng.lognormal(0, 0.35, 160)
    features, ran = pd.DataFrame({"size": size}), np.minimum(seconds, 100.0)
    stopped = seconds > 100.0
    model = RuntimeRegressor(families=(family,), trials=1)
    errors = {}
    for name, rows, censored in (
        ("left out", ~stopped, None), ("bounds", slice(None), stopped),
    ):  # fmt: skip
        model.fit(features[rows], ran[rows], censored=censored)
        truth = 10 * size
        errors[name] = np.abs(np.log(model.predict(features) / truth)).mean()
    assert errors["bounds"] < 0.9 * errors["left out"]


def test_fit_leaves_out_what_is_known_afterwards_and_states_its_errors(runs, tmp_path):
    regressor = voxcast.fit(runs, "seconds", groups="subject", trials=1)
    assert list(regressor.feature_names_in_) == ["size", "tool"]
    assert "peak_rss_bytes" in regressor.screening_.left_out
    assert regressor.metrics_["mape"] < 10
    assert set(regressor.cv_results_.index) >= {"median", "ridge", regressor.family_}
    regressor.save(tmp_path / "model")
    read = TableModel.load(tmp_path / "model").predict(runs)
    np.testing.assert_allclose(read["prediction"], regressor.predict(runs[["size", "tool"]]))


def test_bad_input_is_refused_in_one_line(runs):
    with pytest.raises(TableError, match="no such column"):
        voxcast.fit(runs, "minutes")
    with pytest.raises(TableError, match="ranks the rows"):
        voxcast.fit(runs.assign(load=2 * runs["seconds"]), "seconds", strict=True)
    with pytest.raises(ValueError, match="above 0"):
        RuntimeRegressor().fit(runs[["size"]], -runs["seconds"])
    with pytest.raises(ValueError, match="at least 4"):
        RuntimeRegressor().fit(runs[["size"]].head(3), runs["seconds"].head(3))
