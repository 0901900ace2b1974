"""What a model depends on, on a planted law: foreground voxels, and nothing else."""

import pytest

import planted
from voxcast.models.families.family import FAMILIES
from voxcast.models.importance import explain_model
from voxcast.models.selection.cross_validation import Validation


def test_the_planted_feature_comes_first_and_time_grows_with_it() -> None:
    validation = Validation(planted.table(40), None, 3, 0)
    explanation = explain_model(validation, "ridge", FAMILIES["ridge"].defaults)
    first = explanation.shuffled.iloc[0]
    assert (first["app"], first["feature"]) == ("segment", "foreground_voxels")
    assert first["rise"] > 5 * max(explanation.shuffled["rise"].iloc[1], 0.1)
    dependence = explanation.dependence.query("feature == 'foreground_voxels'")
    assert dependence["factor"].is_monotonic_increasing
    assert dependence["factor"].iloc[3] == pytest.approx(1)


def test_one_run_per_fold_gives_empty_tables() -> None:
    table = planted.table(2).drop_duplicates("subject")
    validation = Validation(table.reset_index(drop=True), None, 2, 0)
    importance = explain_model(validation, "median", FAMILIES["median"].defaults)
    assert importance.shuffled.empty
    assert importance.dependence.empty
    assert list(importance.shuffled) == ["app", "feature", "rise"]
