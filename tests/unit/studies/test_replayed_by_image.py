"""Requests by image, replayed on a planted history."""

import numpy as np
import pandas as pd

import planted
from voxcast.evaluation import replayed_requests


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
    results = replayed_requests.study(table(), folds=3, trials=1, families=("ridge",))["segment"]
    for name in replayed_requests.COSTS:
        costs = {
            method: account["normalised_cost"] for method, account in results[name]["ways"].items()
        }
        assert 1.0 <= costs["per_image"] < costs["population"]
        assert results[name]["excess_left"] < 0.7
        assert 0.7 < results[name]["over_implied"] < 1.4
    few = replayed_requests.study(table(5), folds=2, trials=1, families=("ridge",))
    assert few == {"segment": {"not_measurable": "5 subjects at full scale, 8 are needed"}}
