"""Runs replayed: one by one, and by image on a planted history."""

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.evaluation import replayed_requests
from voxcast.evaluation.online_replay import Held, replay_online
from voxcast.records import Request

GB, H = 1e9, 3600.0


def test_what_attempts_hold_by_hand() -> None:
    held = Held()
    held.add([Request(1 * H, int(2 * GB)), Request(3 * H, int(5 * GB))], 2 * H, 4 * GB, cpus=2)
    assert (held.runs, held.failures) == (1, 1)
    assert held.unused_gb_h == pytest.approx(2 * 1 + (5 - 4) * 2)
    assert held.unused_core_h == pytest.approx(2 * 1 + 2 * (3 - 2))
    held.add([Request(1 * H, int(1 * GB))], 3 * H, 4 * GB, cpus=1)
    assert held.failures == 3  # doubled twice


def test_nothing_is_known_of_runs_that_have_not_ended() -> None:
    runs = {"app": "a", "cpus": 1, "runtime_s": 2 * H, "peak_rss_bytes": 8 * GB}
    at_once = pd.DataFrame([{**runs, "started_at": "2026-01-01T00:00"}] * 5)
    assert {h["failures"] for h in replay_online(at_once)["a"].values()} == {5}
    apart = at_once.assign(started_at=[f"2026-01-0{day}T00:00" for day in range(1, 6)])
    assert {h["failures"] for h in replay_online(apart)["a"].values()} == {1}


def test_what_grows_with_the_image_is_learned_from_run_to_run() -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 10, 200)
    table = pd.DataFrame({
        "app": "segment", "cpus": 1, "header.megavoxels": size,
        "runtime_s": 60 * size * rng.lognormal(0, 0.05, 200), "peak_rss_bytes": GB * size,
        "started_at": [f"2026-{1 + n // 28:02}-{1 + n % 28:02}T00:00" for n in range(200)],
    })  # fmt: skip
    by_rule = replay_online(table.sample(frac=1, random_state=0))["segment"]
    assert {h["runs"] for h in by_rule.values()} == {200}
    for amount, share in (("unused_gb_h", 0.3), ("unused_core_h", 0.6)):
        best_rule = min(by_rule[rule][amount] for rule in ("largest", "percentile"))
        assert by_rule["online"][amount] < share * best_rule


def table(subjects: int = 30) -> pd.DataFrame:
    runs = planted.table(subjects, noise=0.05).assign(noisy=False, parameters_json="{}", batch="a")
    order = np.random.default_rng(0).permutation(len(runs))
    return runs.assign(host_id="here", started_at=[f"2026-01-01T00:{n:03d}" for n in order])


def test_training_runs_are_in_the_order_in_which_they_were_made(monkeypatch) -> None:
    runs = table()
    train_s_by_fold: list[np.ndarray] = []
    planned_requests = replayed_requests.planned_requests

    def recorded(train_s, *args, **options):
        train_s_by_fold.append(np.asarray(train_s))
        return planned_requests(train_s, *args, **options)

    monkeypatch.setattr(replayed_requests, "planned_requests", recorded)
    replayed_requests.study(
        runs, costs={"c": (1.0, 0.0, 0.0)}, folds=2, trials=1, families=("ridge",)
    )
    by_time = runs.sort_values("started_at")
    for train_s in train_s_by_fold:
        expected = by_time[by_time["runtime_s"].isin(train_s)]["runtime_s"].to_numpy()
        np.testing.assert_array_equal(train_s, expected)


def test_by_image_is_cheaper_where_images_differ() -> None:
    results = replayed_requests.study(table(60), folds=3, trials=1, families=("ridge",))["segment"]
    for name in replayed_requests.COSTS:
        costs = {
            method: account["normalised_cost"] for method, account in results[name]["ways"].items()
        }
        assert 1.0 <= costs["per_image"] < costs["population"]
        assert results[name]["excess_left"] < 0.7
        assert 0.7 < results[name]["over_implied"] < 1.4
    few = replayed_requests.study(table(5), folds=2, trials=1, families=("ridge",))
    assert few == {"segment": {"not_measurable": "5 subjects at full scale, 8 are needed"}}
