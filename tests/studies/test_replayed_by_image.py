"""Requests by image, replayed on a planted history."""

import numpy as np
import pandas as pd

import planted
from voxcast.studies import replayed_requests


def table(subjects: int = 30) -> pd.DataFrame:
    own = planted.table(subjects, noise=0.05).assign(noisy=False, parameters_json="{}", batch="a")
    order = np.random.default_rng(0).permutation(len(own))
    return own.assign(host_id="here", started_at=[f"2026-01-01T00:{n:03d}" for n in order])


def test_runs_seen_are_in_the_order_in_which_they_were_made(monkeypatch) -> None:
    own = table()
    asked: list[np.ndarray] = []
    plans = replayed_requests.plans

    def kept(seen_s, *args, **options):
        asked.append(np.asarray(seen_s))
        return plans(seen_s, *args, **options)

    monkeypatch.setattr(replayed_requests, "plans", kept)
    replayed_requests.study(
        own, costs={"c": (1.0, 0.0, 0.0)}, folds=2, trials=1, families=("ridge",)
    )
    by_time = own.sort_values("started_at")
    for seen in asked:
        mine = by_time[by_time["runtime_s"].isin(seen)]["runtime_s"].to_numpy()
        np.testing.assert_array_equal(seen, mine)


def test_by_image_is_cheaper_where_images_differ() -> None:
    found = replayed_requests.study(table(), folds=3, trials=1, families=("ridge",))["segment"]
    for name in replayed_requests.COSTS:
        ways = {way: own["normalised_cost"] for way, own in found[name]["ways"].items()}
        assert 1.0 <= ways["per_image"] < ways["population"]
        assert found[name]["excess_left"] < 0.7
        assert 0.7 < found[name]["over_implied"] < 1.4
    few = replayed_requests.study(table(5), folds=2, trials=1, families=("ridge",))
    assert few == {"segment": {"not_measurable": "5 subjects at full scale, 8 are needed"}}
