"""Metrics, encoder, slowdown law and the rule of promotion."""

import numpy as np
import pandas as pd
import pytest

from voxcast.models.families.encoder import Encoder
from voxcast.models.metrics import binomial_interval, scores, under_requests
from voxcast.models.selection.promotion_rule import Risk, Rival, best_family, decide
from voxcast.models.slowdown import SlowdownLaw


def test_scores_by_hand() -> None:
    found = scores([10, 10, 10, 10], [8, 10, 12, 15])
    assert found["mape"] == pytest.approx(22.5)
    assert found["upp"] == 25  # equality counts for neither side
    assert found["ov_mape"] == pytest.approx(35)
    assert scores([1, 2], [0.5, 1])["ov_mape"] == 0


def test_under_requests_count_subjects_not_runs() -> None:
    exceeded, n, interval = under_requests([5, 5, 1], [1, 1, 1], ["a", "a", "b"])
    assert (exceeded, n) == (1, 2)
    assert interval == binomial_interval(1, 2)


def test_binomial_interval_of_nothing_is_everything() -> None:
    assert binomial_interval(0, 0) == (0.0, 1.0)
    low, high = binomial_interval(5, 100)
    assert low == pytest.approx(0.0164, abs=1e-3)
    assert high == pytest.approx(0.1128, abs=1e-3)


ROWS = [
    {"app": "a", "device": "cpu", "header.x": 1.0, "header.same": 4.0, "content.y": 2.0},
    {"app": "b", "device": "cpu", "header.x": 3.0, "header.same": 4.0, "content.y": 5.0},
]


def test_encoder_leaves_out_constants_and_content_when_told() -> None:
    full = Encoder.fit(ROWS, content=True)
    assert full.columns == ["content.y", "header.x", "app=a", "app=b", "device=cpu"]
    assert Encoder.fit(ROWS, content=False).numbers == ("header.x",)
    assert Encoder.fit(ROWS, content=True, only=("none.",)).numbers == ()
    assert Encoder.from_json(full.to_json()) == full


def test_encoder_tells_what_is_unlike_all_it_has_seen() -> None:
    rows = [
        {"app": "a", "header.megavoxels": 1.0, "parameter.n": 5.0, "allocation.log2_cpus": 0.0,
         "host.log_probe_cpu": 2.3},
        {"app": "a", "header.megavoxels": 4.0, "parameter.n": 5.0, "allocation.log2_cpus": 1.0,
         "host.log_probe_cpu": 2.3},
    ]  # fmt: skip
    encoder = Encoder.fit(rows, content=False)
    assert encoder.out_of_range(rows) == [()] * len(rows)
    assert encoder.out_of_range([{**rows[0], "header.megavoxels": 4.9}]) == [()]
    assert encoder.out_of_range([{**rows[0], "header.megavoxels": 5.1}]) == [
        ("header.megavoxels",)
    ]
    assert encoder.out_of_range([{**rows[0], "parameter.n": 6.0}]) == [("parameter.n",)]
    assert encoder.out_of_range([{**rows[0], "host.log_probe_cpu": 2.5}]) == [()]
    assert encoder.out_of_range([{**rows[0], "host.log_probe_cpu": 2.9}]) == [
        ("host.log_probe_cpu",)
    ]
    other = {**rows[0], "allocation.log2_cpus": 6.0, "app": "b"}
    assert encoder.out_of_range([other]) == [("allocation.log2_cpus", "app")]


def test_encoder_stands_in_for_what_is_missing_or_new() -> None:
    encoder = Encoder.fit(ROWS, content=True)
    matrix = encoder.transform([{"app": "new", "device": "cpu", "header.x": float("nan")}])
    assert matrix.tolist() == [[3.5, 2.0, 0.0, 0.0, 1.0]]


def test_slowdown_falls_back_to_coarser_groups() -> None:
    law = SlowdownLaw.fit(
        ["a"] * 6, [1, 1, 1, 2, 2, 2], ["h"] * 6, [1, 1, 1, 3, 3, 3], [1, 1, 1, 6, 6, 6]
    )
    assert law.ratio("a", 1, "h") == 1
    assert law.ratio("a", 2, "elsewhere") == 0.5
    assert law.ratio("a", 8) == pytest.approx(0.75)
    assert law.ratio("unheard", 1) == pytest.approx(0.75)


def errors(value: float) -> pd.Series:
    return pd.Series(np.full(8, value), index=[str(n) for n in range(8)])


def rival(value: float | None, **changed: bool) -> Rival:
    facts = {"same_recipe": False, "same_model": False, "more_subjects": False} | changed
    return Rival(**facts, errors=None if value is None else errors(value))


SAFE = {"cpu_s": Risk(0, 8, 0.0, (0.0, 0.37))}
RISKY = {"cpu_s": Risk(0, 8, 0.0, (0.0, 0.37)), "runtime_s": Risk(1, 8, 0.125, (0.0, 0.5))}


@pytest.mark.parametrize(
    ("champion", "risk", "reason"),
    [
        (None, RISKY, "first"),
        (rival(0.1), SAFE, "not_better"),
        (rival(0.3), RISKY, "under_request"),
        (rival(0.3), SAFE, "better"),
        (rival(0.2), SAFE, "not_better"),
        (rival(0.2, same_recipe=True), SAFE, "refitted"),
        (rival(0.2, same_recipe=True), RISKY, "under_request"),
        (rival(0.2, same_recipe=True, same_model=True), SAFE, "unchanged"),
        (rival(0.3, more_subjects=True), SAFE, "fewer_subjects"),
        (rival(None), SAFE, "champion_unjudgeable"),
        (rival(None), RISKY, "under_request"),
    ],
)
def test_the_rule_of_promotion(champion: Rival | None, risk: dict[str, Risk], reason: str) -> None:
    decision = decide(errors(0.2), champion, risk, max_under_request=0.10)
    assert decision.reason == reason
    promoting = ("first", "better", "refitted", "champion_unjudgeable")
    assert decision.promote == (reason in promoting)


def test_ties_go_to_the_first_family() -> None:
    assert best_family({"median": 1.0, "ridge": 0.5, "forest": 0.5}) == "ridge"
