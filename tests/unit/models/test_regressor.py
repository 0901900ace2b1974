"""The regressor of any table keeps scikit-learn's contract, and says what it does not know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import voxcast
from voxcast.errors import TableError
from voxcast.models.regressor import RuntimeRegressor
from voxcast.models.table_model import TableModel

FEW = ("median", "ridge", "boosted")


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
        RuntimeRegressor(families=FEW, trials=1), runs[["size", "tool"]], runs["seconds"],
        groups=runs["subject"], cv=GroupKFold(3), scoring="neg_mean_absolute_percentage_error",
    )  # fmt: skip
    assert scores.min() > -0.15


def test_intervals_hold_and_rows_out_of_range_are_named(runs):
    train, test = runs.iloc[:90], runs.iloc[90:]
    regressor = RuntimeRegressor(families=FEW, trials=1).fit(
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
