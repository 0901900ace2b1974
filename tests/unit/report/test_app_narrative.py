"""Sentences about the models of an application."""

import pandas as pd

from voxcast.analysis.model_comparison import ModelComparison
from voxcast.analysis.runs_on_record import TrainingRuns
from voxcast.report.narrative import AppNarrative

NO_DAYS = pd.DataFrame({"app": []})


def narrative(error: float, rival: float, new_days: pd.DataFrame = NO_DAYS) -> AppNarrative:
    models = ModelComparison(
        winner="ridge", champion="ridge", version="1", registered=True, reason="first", detail="",
        calibrated=False, upper_quantile=0.95, subjects_needed=19, training_subjects=3,
        test_subjects=0, test_runs=0, baseline="voxels",
        cross_validated={"ridge": {"cpu_s": error}, "voxels": {"cpu_s": rival}},
        tested={}, gain={}, voxels_gain=None,
    )  # fmt: skip
    training = TrainingRuns(3, 3, 0, (), 0)
    return AppNarrative("segment", models, training, {}, new_days)


def test_another_day_is_said_to_be_unknown_or_off_by_so_much() -> None:
    assert narrative(6.0, 20.0).on_new_days().startswith("unknown: ")
    days = pd.DataFrame({
        "target": ["cpu_s", "cpu_s", "runtime_s"], "local_runs": [0, 2, 0],
        "mape": [13.3, 8.0, 50.0], "low": [10.0, 7.1, 40.0], "high": [17.0, 9.6, 60.0],
        "subjects": [24, 24, 24], "days": [12, 12, 12],
    })  # fmt: skip
    assert narrative(6.0, 20.0, days).on_new_days() == (
        "13 % (10 to 17 %), after 2 runs on that day 8.0 % (7.1 to 9.6 %) in CPU time, as the "
        "speed of a machine differs from day to day; 24 subjects on 12 days, each left out of "
        "the fit but not of the choice of the family"
    )
