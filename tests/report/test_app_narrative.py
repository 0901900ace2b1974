"""Sentences about the models of an application."""

import pytest

from voxcast.analysis.model_comparison import ModelComparison
from voxcast.analysis.training_runs import TrainingRuns
from voxcast.report.app_narrative import AppNarrative


@pytest.mark.parametrize(
    ("error", "rival", "ending"),
    [
        (6.0, 20.0, "the voxels baseline 20 % (3.3 times the error); 3 subjects"),
        (9e-14, 20.0, "the voxels baseline 20 % (more than 100 times the error); 3 subjects"),
        (0.0, 20.0, "the voxels baseline 20 % (more than 100 times the error); 3 subjects"),
        (0.0, 0.0, "the voxels baseline 0 %; 3 subjects"),
    ],
)
def test_an_error_near_zero_is_no_divisor(error: float, rival: float, ending: str) -> None:
    models = ModelComparison(
        winner="ridge", champion="ridge", version="1", registered=True, reason="first", detail="",
        calibrated=False, upper_quantile=0.95, subjects_needed=19, training_subjects=3,
        test_subjects=0, test_runs=0, test_openings=0, baseline="voxels",
        cross_validated={"ridge": {"cpu_s": error}, "voxels": {"cpu_s": rival}},
        tested={}, gain={}, voxels_gain=None,
    )  # fmt: skip
    training = TrainingRuns(3, 3, 0, (), 0)
    text = AppNarrative("segment", models, training, {}).cross_validated()
    assert text.endswith(ending)
