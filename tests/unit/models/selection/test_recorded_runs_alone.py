"""Runs measured here, predicted from the recorded ones of another machine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.models.families.family import FAMILIES
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.recorded_runs_alone import predict_without_own_runs

PARAMS = FAMILIES["ridge"].defaults
SLOWER = 1.3


def table(recorded: int = 40, here: int = 6) -> pd.DataFrame:
    """Return runs of recorded subjects, and of others on a machine that is slower."""
    runs = planted.table(recorded + here, noise=0.02)
    names = sorted(runs["subject"].unique())
    is_here = runs["subject"].isin(names[recorded:])
    runs["batch"] = np.where(is_here, "", "reference")
    runs["host_id"] = np.where(is_here, "here", "there")
    runs["sitting"] = runs["host_id"]
    runs.loc[is_here, ["cpu_s", "runtime_s"]] *= SLOWER
    return runs


def test_the_speed_of_this_machine_is_told_from_its_other_runs() -> None:
    alone = predict_without_own_runs(Validation(table(), None, 4, 1), "ridge", PARAMS)
    assert alone is not None
    assert (alone.runs, alone.subjects, alone.recorded_subjects) == (12, 6, 40)
    assert alone.ratio == pytest.approx(SLOWER, rel=0.03)
    assert alone.error_percent == pytest.approx(100 * (1 - 1 / SLOWER), abs=3)
    assert alone.corrected_error_percent is not None
    assert alone.corrected_error_percent < 4


def test_subjects_measured_here_are_not_learned_from() -> None:
    runs = table()
    here = runs[runs["batch"] == ""]
    # The same subjects on record, with times that would teach the answer.
    runs = pd.concat([runs, here.assign(batch="reference")], ignore_index=True)
    alone = predict_without_own_runs(Validation(runs, None, 4, 1), "ridge", PARAMS)
    assert alone is not None
    assert alone.recorded_subjects == 40
    assert alone.ratio == pytest.approx(SLOWER, rel=0.03)


def test_nothing_is_said_without_recorded_runs_or_runs_here() -> None:
    runs = table()
    for part in (runs[runs["batch"] == ""], runs[runs["batch"] != ""], table(recorded=9)):
        validation = Validation(part.reset_index(drop=True), None, 4, 1)
        assert predict_without_own_runs(validation, "ridge", PARAMS) is None


def test_a_single_subject_has_no_other_to_be_corrected_by() -> None:
    alone = predict_without_own_runs(Validation(table(here=1), None, 4, 1), "ridge", PARAMS)
    assert alone is not None
    assert alone.corrected_error_percent is None
