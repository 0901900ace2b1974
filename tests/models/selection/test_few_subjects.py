"""Learning from one to four subjects runs through, and claims nothing that it cannot know."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.importance import explain_model
from voxcast.models.query import queries_of
from voxcast.models.selection.comparison import Contender, compare
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard import Leaderboard
from voxcast.models.selection.learning import learn
from voxcast.models.selection.refitting import fit_forecasters
from voxcast.models.selection.risk import risks
from voxcast.records import TARGETS

TABULAR = [name for name, family in FAMILIES.items() if not family.needs_volume]


def table_of(subjects: int, cpus: list[int], *, varied: bool) -> pd.DataFrame:
    table = planted.table(subjects)
    table = table[table["cpus"].isin(cpus)].reset_index(drop=True)
    if not varied:
        features = [name for name in table.columns if "." in name]
        table[features] = table.loc[0, features].to_numpy()
    return table


def learned_from(table: pd.DataFrame) -> tuple[Validation, Leaderboard]:
    validation = Validation(table, None, 4, 0)
    levels = ("volume", "header")
    return validation, learn(validation, TABULAR, trials=1, input_levels=levels)


@pytest.mark.parametrize("varied", [True, False])
@pytest.mark.parametrize("subjects", [1, 2, 3, 4])
def test_everything_runs_through_and_nothing_is_calibrated(
    tmp_path: Path, subjects: int, varied: bool
) -> None:
    table = table_of(subjects, [1], varied=varied)
    validation, leaderboard = learned_from(table)
    for name, forecaster in fit_forecasters(
        validation, leaderboard, list(leaderboard.params), 1.5
    ):
        forecaster.save(tmp_path / name)
    predictions = Forecaster.load(tmp_path / leaderboard.best).predict(queries_of(table, None))
    assert not any(prediction.calibrated for prediction in predictions)
    for prediction in predictions:
        for target in TARGETS:
            low, median, high = prediction.quantiles[target]
            assert 0 < low <= median <= high < np.inf
    recipe = leaderboard.best, leaderboard.params[leaderboard.best]
    explained = explain_model(validation, *recipe)
    assert {"app", "feature", "rise"} <= set(explained.shuffled.columns)
    for risk in risks(validation, *recipe, 0.95, 1.5).values():
        assert risk.subjects == subjects
    contender = Contender(*recipe, np.ones(len(table), dtype=bool))
    comparison = compare(validation, contender, contender)
    assert comparison is not None
    assert comparison.gain.value == 0
    assert comparison.gain.bounded == (subjects > 1)


def test_one_subject_is_learned_by_baselines_alone_with_folds_over_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    validation, leaderboard = learned_from(table_of(1, [1, 2], varied=True))
    assert "segment: one subject, so only baselines are fitted" in caplog.text
    assert set(leaderboard.params) == {"median", "voxels"}
    assert sorted(int(n) for _, held_out in validation.folds() for n in held_out) == [0, 1]
    assert all(not set(train) & set(held_out) for train, held_out in validation.folds())


def test_without_a_baseline_in_the_configuration_one_subject_gets_the_median() -> None:
    validation = Validation(table_of(1, [1], varied=True), None, 4, 0)
    assert list(learn(validation, ["ridge"], trials=1).params) == ["median"]
