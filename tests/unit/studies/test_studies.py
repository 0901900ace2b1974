"""Studies on a history with a planted law: what is held out stays so, and counts are right."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import ablation
import fold_predictions
import planted
import second_batch
import splits
import transfer
from voxcast.evaluation.protocols import HOLDOUTS, split
from voxcast.evaluation.scoring import coverage, errors, requests
from voxcast.models.selection.cross_validation import FoldCache


@pytest.fixture(autouse=True)
def one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let voxcast try one family, which has the law that is planted."""
    predictions = partial(fold_predictions.voxcast_predictions, families=("ridge",))
    for study in (splits, second_batch):
        monkeypatch.setattr(study, "voxcast_predictions", predictions)
    monkeypatch.setattr(ablation, "TABULAR", ("ridge",))


def table(subjects: int = 24, seed: int = 0, batch: str = "first") -> pd.DataFrame:
    """Return full-scale runs, and scaled-down ones that take a tenth."""
    full = planted.table(subjects, seed=seed)
    down = full[full["cpus"] == 1].copy()
    down["scale"] = "scaled_down"
    down["cell_key"] = "down-" + down["cell_key"]
    down["parameter.iterations"] = 3.0
    for target in ("cpu_s", "runtime_s"):
        down[target] = 0.5 + 0.1 * down[target]
    runs = pd.concat([full, down], ignore_index=True)
    runs["subject"] = batch + runs["subject"]
    return runs.assign(noisy=False, host_id="here", parameters_json="{}", batch=batch)


@pytest.mark.parametrize("holdout", sorted(HOLDOUTS))
def test_training_and_test_runs_are_disjoint(holdout: str) -> None:
    runs = table()
    results = split(runs, holdout, folds=4)
    if holdout in {"host", "parameters"}:
        assert results.reason is not None
        assert results.folds == ()
        return
    tested = []
    for fold in results.folds:
        train, test = runs.iloc[fold.train], runs.iloc[fold.test]
        tested += test["cell_key"].tolist()
        assert not set(train["subject"]) & set(test["subject"])
        assert set(test["scale"]) == {"full_scale"}
        assert set(train["scale"]) == {"scaled_down" if holdout == "scale" else "full_scale"}
        if holdout == "configuration":
            assert not set(train["cpus"]) & set(test["cpus"])
    assert sorted(tested) == sorted(runs.loc[runs["scale"] == "full_scale", "cell_key"])


def test_parameters_are_held_out_point_by_point() -> None:
    runs = table().assign(parameters_json=lambda t: [f"p{n % 6}" for n in range(len(t))])
    for fold in split(runs, "parameters", folds=3).folds:
        train, test = runs.iloc[fold.train], runs.iloc[fold.test]
        assert not set(train["parameters_json"]) & set(test["parameters_json"])


def test_all_contenders_predict_and_voxcast_finds_the_law() -> None:
    results = splits.study(table(), folds=2, trials=1)["segment"]
    subject = results["subject"]
    assert {"voxcast", "constant", "voxels", "harp_WTM", "harp_MAE", "harp_full_scale"} == set(
        subject
    )
    mape = {name: scores["errors"]["runtime_s"]["mape"] for name, scores in subject.items()}
    assert mape["voxcast"] < 0.3 * min(mape["constant"], mape["voxels"])
    low, high = subject["voxcast"]["errors"]["cpu_s"]["mape_interval"]
    assert low <= subject["voxcast"]["errors"]["cpu_s"]["mape"] <= high
    assert results["host"] == {"not_measurable": "measured on one machine"}


def test_the_trimmed_error_leaves_out_the_subjects_with_the_largest_errors() -> None:
    subjects = [f"s{number:02d}" for number in range(40) for _ in range(2)]
    runs = pd.DataFrame({"subject": subjects, "noisy": False, "cpu_s": 10.0, "cpu_s_median": 11.0})
    runs.loc[runs["subject"].isin(["s07", "s31"]), "cpu_s_median"] = 30.0
    scores = errors(runs)["cpu_s"]
    assert scores["mape"] == pytest.approx((38 * 10 + 2 * 200) / 40)
    assert scores["trimmed_mape"] == pytest.approx(10)
    few = errors(runs[runs["subject"] <= "s09"])["cpu_s"]
    assert few["trimmed_mape"] == pytest.approx(few["mape"])  # 5 % of ten are none


def test_a_bound_is_counted_by_subject_and_by_quartile() -> None:
    runs = pd.DataFrame(
        {
            "subject": list("aabbccdd"), "noisy": False,
            "cpu_s": [1.0, 2, 3, 4, 5, 6, 7, 8], "cpu_s_median": [1.0, 2, 3, 4, 5, 6, 7, 10],
            "cpu_s_upper": [1.0, 2, 3, 4, 5, 5.9, 8, 8],
        }
    )  # fmt: skip
    results = coverage(runs, "cpu_s")
    assert (results["covered"], results["subjects"]) == (3, 4)
    assert [q["covered"] for q in results["by_quartile"]] == [2, 2, 1, 2]
    assert errors(runs)["cpu_s"]["mae"] == 0.25
    assert errors(runs)["cpu_s"]["mape"] == pytest.approx(100 * 0.25 / 8)
    request = requests(runs, "cpu_s")
    assert request["upp"] == pytest.approx(100 / 8)
    assert request["asked_over_used"] == pytest.approx(36.9 / 36)


def test_the_one_request_for_all_is_chosen_with_hindsight() -> None:
    runs = pd.DataFrame(
        {"noisy": False, "cpu_s": [1.0, 2, 3, 10], "cpu_s_upper": [1.1, 2.1, 3.1, 9.0]}
    )
    results = second_batch.sharpness(runs, "cpu_s")
    assert results["one_request_asked_over_used"] == pytest.approx(3 * 4 / 16)
    assert results["asked_over_used"] == pytest.approx(15.3 / 16)


def test_the_second_batch_is_not_in_the_training_set() -> None:
    both = pd.concat([table(24, 0, "first"), table(16, 9, "second")], ignore_index=True)
    first, second = (both[both["batch"] == name] for name in ("first", "second"))
    results = second_batch.study(first, second, trials=1)["segment"]
    assert results["coverage"]["cpu_s"]["subjects"] == 16
    assert results["coverage"]["cpu_s"]["rate"] > 0.7
    assert results["answers"]["runs"] == 32
    assert results["answers"]["calibrated"] + results["answers"]["out_of_range"] <= 32
    assert results["errors"]["cpu_s"]["mape"] < 5


def test_runs_of_other_subjects_on_that_day_tell_the_speed_of_the_sitting() -> None:
    times = {"first": "2026-01-01T08:00:00", "second": "2026-03-01T09:00:00"}
    both = pd.concat([table(30, 0, "first"), table(12, 9, "second")], ignore_index=True)
    runs = both.assign(
        sitting=both["batch"] + "/1", started_at=both["batch"].map(times) + "+00:00"
    )
    # Ten of the subjects to learn from were measured on that day as well.
    on_that_day = runs["subject"].isin([f"first{n:04d}" for n in range(1, 11)])
    runs.loc[on_that_day, "sitting"] = "first/2"
    runs.loc[on_that_day, "started_at"] = "2026-03-01T07:00:00+00:00"
    slow = on_that_day | (runs["batch"] == "second")
    for target in ("cpu_s", "runtime_s"):
        runs.loc[slow, target] *= 1.4
    train, test = (runs[runs["batch"] == name] for name in ("first", "second"))
    local = second_batch.local_runs(train[train["scale"] == "full_scale"], test)
    assert len(local) == local["subject"].nunique() == 8
    assert set(local["sitting"]) == {"second/1"}
    assert set(local["started_at"]) == {"2026-03-01T07:00:00+00:00"}
    told = second_batch.study(train, test, trials=1)["segment"]
    late = train.assign(started_at="2025-01-01T00:00:00+00:00")
    untold = second_batch.study(late, test, trials=1)["segment"]
    assert (told["local_runs"], untold["local_runs"]) == (8, 0)
    assert told["learned_from"]["subjects"] == untold["learned_from"]["subjects"] - 8
    assert told["errors"]["cpu_s"]["mape"] < 6 < untold["errors"]["cpu_s"]["mape"]


def test_another_applications_history_helps_when_runs_are_few() -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, 3, 60))
    net = np.array(["a", "b"])[np.arange(60) % 2]
    seconds = size * np.where(net == "a", 1.0, 4.0) * rng.lognormal(0, 0.03, 60)
    runs = pd.DataFrame(
        {
            "app": "dnn_train", "device": "cpu", "scale": "full_scale", "subject": range(60),
            "cpus": 1, "host_class": "here", "parameters_json": [str(n) for n in range(60)],
            "parameter.network": net, "parameter.log_size": np.log(size),
            "cpu_s": seconds, "runtime_s": seconds, "peak_rss_bytes": 1e8,
        }
    )  # fmt: skip
    first = transfer.study(runs, repeats=4)["a -> b"][0]
    assert first["runs"] == 2
    assert first["transferred"] < 10
    assert first["transferred"] < 0.7 * first["cold"]


def test_leaving_information_out_increases_the_error(tmp_path) -> None:
    runs = table(16)
    runs = runs[runs["scale"] == "full_scale"].reset_index(drop=True)
    cache = FoldCache(tmp_path)
    volumes = planted.volumes(runs, 8)
    results = ablation.study(runs, volumes, folds=2, trials=1, cache=cache)["segment"]
    errors_of = {name: errors["cpu_s"]["mape"] for name, errors in results.items()}
    assert errors_of["header + content"] < 0.5 * errors_of["header"]
    assert {"constant", "voxels", "header + network", "all",
            "without hardware"} <= set(results)  # fmt: skip
    fits = cache.fits
    ablation.study(runs, volumes, folds=2, trials=1, cache=cache)
    assert cache.fits == fits
