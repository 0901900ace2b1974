"""The rule of promotion, case by case, and on small tables with planted costs."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.laws.intervals import Interval
from voxcast.models.families.family import FAMILIES
from voxcast.models.selection.comparison import Comparison, Contender, compare_recipes
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.promotion_rule import (
    Decision,
    Risk,
    Rival,
    decide,
    decide_beforehand,
    risks,
)
from voxcast.records import TARGETS

SAFE = {"cpu_s": Risk(0, 8, 0.0, (0.0, 0.37))}
RISKY = {"cpu_s": Risk(0, 8, 0.0, (0.0, 0.37)), "runtime_s": Risk(1, 8, 0.125, (0.0, 0.5))}
AT_LIMIT = {"runtime_s": Risk(1, 10, 0.10, (0.0, 0.5))}
NOWHERE = Interval(math.nan, math.nan, math.nan, 0)


def gains(low: float, value: float, calm: Interval | None = None) -> Comparison:
    gain = Interval(value, low, 2 * value - low, 8)
    error = Interval(0.2, 0.1, 0.3, 8)
    return Comparison(error, error, gain, gain if calm is None else calm)


@pytest.mark.parametrize(
    ("champion", "reason"),
    [
        (None, "first"),
        (Rival(same_model=True), "unchanged"),
        (Rival(same_model=True, same_facts=False), "new_facts"),
        (Rival(same_version=False), "new_version"),
        (Rival(), None),
    ],
)
def test_what_is_decided_without_a_comparison(champion: Rival | None, reason: str | None) -> None:
    decision = decide_beforehand(champion)
    assert (None if decision is None else decision.reason) == reason
    if decision is not None:
        promoting = ("first", "new_facts", "new_version")
        assert decision.promote == (reason in promoting)


@pytest.mark.parametrize(
    ("facts", "comparison", "risk", "reason"),
    [
        ({}, gains(0.01, 0.1), SAFE, "better"),
        ({}, gains(-0.01, 0.1), SAFE, "not_better"),
        ({}, gains(0.0, 0.0), SAFE, "not_better"),
        ({"new_subjects": 2}, gains(-0.01, 0.03), SAFE, "more_subjects"),
        ({"new_subjects": 2}, gains(-0.1, 0.001), SAFE, "more_subjects"),
        ({"new_subjects": 2}, gains(math.nan, 0.01), SAFE, "more_subjects"),
        ({"new_subjects": 2}, gains(-0.1, 0.0), SAFE, "not_better"),
        ({"new_subjects": 2}, gains(-0.1, 0.001), RISKY, "under_request"),
        ({"new_subjects": 2, "new_disturbed": 0.9}, gains(-0.1, 0.001), SAFE, "under_load"),
        ({"new_subjects": 2}, gains(-0.1, -0.01), SAFE, "not_better"),
        ({}, gains(0.01, 0.1), RISKY, "under_request"),
        ({}, gains(0.01, 0.1), AT_LIMIT, "under_request"),
        ({"calibrated": False}, gains(0.01, 0.1), RISKY, "better"),
        ({}, None, SAFE, "not_comparable"),
        ({}, gains(0.01, 0.1, Interval(-0.01, -0.1, 0.1, 5)), SAFE, "under_load"),
        ({"new_disturbed": 0.9}, gains(0.01, 0.1, Interval(0.01, -0.1, 0.1, 5)), SAFE,
         "under_load"),
        ({"new_disturbed": 0.9}, gains(0.01, 0.1, Interval(0.02, 0.01, 0.1, 5)), SAFE, "better"),
        ({"new_disturbed": 1.0}, gains(0.01, 0.1, NOWHERE), SAFE, "under_load"),
        ({"new_disturbed": 1.0, "disturbed": 1.0}, gains(0.01, 0.1, NOWHERE), SAFE, "better"),
        ({"new_subjects": 2, "is_included": False}, gains(-0.01, 0.03), SAFE, "not_better"),
    ],
)  # fmt: skip
def test_what_a_comparison_decides(
    facts: dict, comparison: Comparison | None, risk: dict[str, Risk], reason: str
) -> None:
    decision = decide(Rival(**facts), comparison, risk, 0.10)
    assert decision.reason == reason
    assert decision.promote == (reason in ("better", "more_subjects"))


@pytest.mark.parametrize("high", [-0.01, 0.01])
def test_a_gain_in_one_target_does_not_pay_for_a_loss_in_the_other(high: float) -> None:
    by_target = {
        "cpu_s": Interval(0.3, 0.2, 0.4, 8), "peak_rss_bytes": Interval(-0.1, -0.2, high, 8),
    }  # fmt: skip
    comparison = replace(gains(0.01, 0.1), gain_by_target=by_target)
    decision = decide(Rival(), comparison, SAFE, 0.10)
    assert decision.reason == ("worse_target" if high < 0 else "better")
    assert decision.promote == (high > 0)


def decided(
    table: pd.DataFrame, champion_rows: np.ndarray, challenger: str, champion: str
) -> Decision:
    """Apply the rule where the champion learned from some of the rows."""
    recipes = [(name, FAMILIES[name].defaults) for name in (challenger, champion)]
    everything = np.ones(len(table), dtype=bool)
    comparison = compare_recipes(
        Validation(table, None, 4, 0),
        Contender(*recipes[0], everything),
        Contender(*recipes[1], champion_rows),
    )
    subjects = set(table["subject"][champion_rows])
    noisy = table["noisy"][~champion_rows]
    rival = Rival(
        new_subjects=len(set(table["subject"]) - subjects),
        new_disturbed=float(noisy.mean()) if len(noisy) else 0.0,
    )
    return decide(rival, comparison, SAFE, 0.10)


def first_subjects(table: pd.DataFrame, count: int) -> np.ndarray:
    return table["subject"].isin(sorted(set(table["subject"]))[:count]).to_numpy()


def test_on_the_same_runs_only_a_better_recipe_is_promoted() -> None:
    table = planted.table(16, noise=0.02).assign(noisy=False)
    everything = first_subjects(table, 16)
    assert decided(table, everything, "ridge", "median").reason == "better"
    assert decided(table, everything, "median", "ridge").reason == "not_better"
    same = decided(table, everything, "ridge", "ridge")
    assert (same.promote, same.reason) == (False, "not_better")


@pytest.mark.parametrize("challenger", ["ridge", "extra_trees"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_nine_subjects_measured_under_load_do_not_replace_a_better_champion(
    challenger: str, elsewhere: bool
) -> None:
    table = planted.table(21, noise=0.02)
    loaded = ~first_subjects(table, 12)
    times = ["cpu_s", "runtime_s"]
    table.loc[loaded, times] *= 3
    if elsewhere:  # images of another kind, so that a model can tell the two sets apart
        sizes = [name for name in table.columns if "megavoxels" in name]
        table.loc[loaded, sizes] += 20
    table["noisy"] = loaded
    decision = decided(table, ~loaded, challenger, "ridge")
    assert not decision.promote, decision
    assert "most of the new runs were measured under load" in decision.detail


LAW = {"alpha": 1e-3, "columns": "sizes", "scale": "relative", "products": False}


def test_a_valid_bound_has_the_nominal_exceedance() -> None:
    table = planted.table(60, noise=0.02)
    risk_by_target = risks(Validation(table, None, 4, 0), "ridge", LAW, 0.9, 1.5)
    assert set(risk_by_target) == set(TARGETS)
    for risk in risk_by_target.values():
        assert risk.subjects == 60
        assert risk.rate < 0.25
        assert risk.interval[0] <= 0.1


def test_an_atypical_subject_exceeds_its_bound() -> None:
    table = planted.table(24, noise=0.02)
    odd = table["subject"].isin(sorted(set(table["subject"]))[:8])
    table.loc[odd, "cpu_s"] *= 1 + 3 * (table.loc[odd, "cpus"] == 2)
    calm = risks(Validation(planted.table(24, noise=0.02), None, 4, 0), "ridge", LAW, 0.8, 1.0)
    wild = risks(Validation(table, None, 4, 0), "ridge", LAW, 0.8, 1.0)
    # A gate that only counted ranks would say the same of both.
    assert wild["cpu_s"] != calm["cpu_s"]


def test_a_stopped_run_counts_as_above_every_bound() -> None:
    table = planted.table(30, noise=0.02)
    whole = risks(Validation(table, None, 4, 0), "ridge", LAW, 0.9, 1.5)
    stopped = pd.DataFrame({"app": "segment", "subject": ["0001", "never completed"]})
    validation = Validation(table, None, 4, 0, stopped=stopped)
    for target, risk in risks(validation, "ridge", LAW, 0.9, 1.5).items():
        assert risk.subjects == whole[target].subjects + 1  # the one without any completed run
        assert risk.censored == 2
        assert risk.exceeded >= 2
