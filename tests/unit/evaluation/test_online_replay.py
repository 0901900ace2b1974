"""Runs replayed one by one: by hand, and on a planted law that rules by hand cannot follow."""

import numpy as np
import pandas as pd
import pytest

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
