"""The risk of a bound is judged where it was not read from."""

import pandas as pd

import planted
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.promotion_rule import risks
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


def test_a_stopped_run_counts_as_above_every_bound() -> None:
    table = planted.table(30, noise=0.02)
    whole = risks(Validation(table, None, 4, 0), "ridge", LAW, 0.9, 1.5)
    stopped = pd.DataFrame({"app": "segment", "subject": ["0001", "never completed"]})
    validation = Validation(table, None, 4, 0, stopped=stopped)
    for target, risk in risks(validation, "ridge", LAW, 0.9, 1.5).items():
        assert risk.subjects == whole[target].subjects + 1  # the one without any completed run
        assert risk.censored == 2
        assert risk.exceeded >= 2
