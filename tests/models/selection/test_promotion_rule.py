"""The risk of a bound is judged where it was not read from."""

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.promotion_rule import Risk, Rival, decide, risks
from voxcast.records import TARGETS

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


def test_an_untestable_bound_counts_as_exceeded() -> None:
    risk_by_target = risks(Validation(planted.table(2), None, 2, 0), "ridge", LAW, 0.9, 1.5)
    assert all(risk.rate == 1.0 for risk in risk_by_target.values())


def test_the_worst_application_decides() -> None:
    calm = planted.table(24, noise=0.02)
    other = calm.assign(app="other")
    # Two in three of its subjects lie where nobody else does, on either side.
    far = other["subject"].map({n: k % 3 for k, n in enumerate(sorted(set(other["subject"])))})
    other["cpu_s"] *= far.map({0: 1.0, 1: 5.0, 2: 25.0})
    both = pd.concat([calm, other], ignore_index=True)
    combined = risks(Validation(both, None, 4, 0), "ridge", LAW, 0.7, 1.0)["cpu_s"]
    alone = {
        app: risks(Validation(table, None, 4, 0), "ridge", LAW, 0.7, 1.0)["cpu_s"]
        for app, table in (("segment", calm), ("other", other))
    }
    assert combined.subjects == 24
    assert combined.rate == max(risk.rate for risk in alone.values())


def errors(value: float) -> pd.Series:
    return pd.Series(np.full(8, value), index=[str(n) for n in range(8)])


def rival(value: float | None, **changed: bool) -> Rival:
    facts = {"readable": True, "same_recipe": False, "same_model": False, "more_subjects": False}
    return Rival(**(facts | changed), errors=None if value is None else errors(value))


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
        (rival(0.1, readable=False, more_subjects=True), RISKY, "champion_unreadable"),
        (rival(None), SAFE, "champion_unjudgeable"),
        (rival(None), RISKY, "under_request"),
    ],
)
def test_the_rule_of_promotion(champion: Rival | None, risk: dict[str, Risk], reason: str) -> None:
    decision = decide(errors(0.2), champion, risk, max_under_request=0.10)
    assert decision.reason == reason
    promoting = ("first", "better", "refitted", "champion_unreadable", "champion_unjudgeable")
    assert decision.promote == (reason in promoting)
