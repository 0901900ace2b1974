"""What is asked for after the bound: rules on planted runs, and the committed decision."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ladder_growth import BASE, BeyondBound, regrets, study
from voxcast.jobs.task import LEAST_GROWTH

RESULTS = Path(__file__).parents[3] / "published" / "ladders" / "growth.json"
BOUND_S, MEDIAN_S = 7200.0, 6000.0


def planted(excess: list[float]) -> pd.DataFrame:
    """Return runs of an hour or two, in minutes of the cluster; those above 1 exceed the bound."""
    n = len(excess)
    return pd.DataFrame({
        "runtime_s": BOUND_S * np.array(excess), "runtime_s_median": MEDIAN_S,
        "runtime_s_upper": BOUND_S, "subject": [f"s{k // 2}" for k in range(n)],
        "fold": np.arange(n) % 2,
    })  # fmt: skip


def test_only_runs_beyond_the_bound_count_and_a_larger_step_saves_attempts() -> None:
    far = study({"slant": planted([0.5, 0.9, 1.45, 1.45, 1.4, 1.4])}, 0.95)["apps"]["slant"]
    assert (far["runs"], far["beyond"], far["subjects_beyond"]) == (6, 4, 2)
    rules = far["rules"]
    assert rules[BASE]["attempts"] > rules["1.5"]["attempts"] == 2
    assert rules["1.5"]["ratios"]["held"]["ratio"] < 1
    near = study({"slant": planted([0.5, 1.01, 1.01, 1.01])}, 0.95)["apps"]["slant"]["rules"]
    assert near["1.5"]["attempts"] == near[BASE]["attempts"] == 2
    assert near["1.5"]["ratios"]["turnaround"]["ratio"] > 1
    assert near["1.5"]["ratios"]["held"]["ratio"] == pytest.approx(1)


def test_other_folds_choose_by_their_runs_alone() -> None:
    runs = planted([1.45, 1.01, 1.45, 1.01])  # the even ones, far beyond, are of fold 0
    rules = study({"slant": runs}, 0.95)["apps"]["slant"]["rules"]
    # Each fold is told by the other: the far ones to grow little, the near ones to grow.
    assert rules["other_folds"]["turnaround"] > rules["1.5"]["turnaround"]


def test_points_of_a_law_are_beyond_its_bound() -> None:
    law = BeyondBound.of_law("pareto(1.5,3)", 0.95)
    assert (law.used_s > law.first_s).all()
    # Median of what is beyond the 95 % bound of a Pareto law of shape 3: 2 ** (1/3) times it.
    assert np.median(law.used_s) / law.upper_s[0] == pytest.approx(2 ** (1 / 3), rel=0.02)


def test_the_factor_in_use_is_the_one_that_the_results_choose() -> None:
    content = json.loads(RESULTS.read_text())
    again = regrets({**content["apps"], **content["laws"]})
    assert again == content["regrets"]
    assert float(again["chosen"]) == LEAST_GROWTH
    assert {"slant", "ants_register", "dnn_train"} <= content["apps"].keys()
