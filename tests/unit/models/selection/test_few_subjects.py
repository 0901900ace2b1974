"""Learning from one to four subjects runs through, and claims nothing that it cannot know."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.models.conformal import REACH
from voxcast.models.explanation import explain_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.point_model import Query, queries_of
from voxcast.models.selection.comparison import Contender, compare_recipes
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fitting import fit_forecasters
from voxcast.models.selection.leaderboard import Leaderboard
from voxcast.models.selection.learning import learn
from voxcast.models.selection.promotion_rule import risks
from voxcast.records import TARGETS

# Families of each kind: constant, linear, in trees, out of range, blended.
FEW = ("median", "voxels", "law", "ridge", "extra_trees", "boosted")
TABULAR = [name for name, family in FAMILIES.items() if not family.needs_volume]


def table_of(subjects: int, cpus: list[int], *, varied: bool) -> pd.DataFrame:
    table = planted.table(subjects)
    table = table[table["cpus"].isin(cpus)].reset_index(drop=True)
    if not varied:
        features = [name for name in table.columns if "." in name]
        table[features] = table.loc[0, features].to_numpy()
    return table


def learned_from(
    table: pd.DataFrame, families: Sequence[str] = TABULAR
) -> tuple[Validation, Leaderboard]:
    validation = Validation(table, None, 4, 0)
    levels = ("volume", "header")
    return validation, learn(validation, families, trials=1, input_levels=levels)


@pytest.mark.parametrize(
    ("subjects", "varied", "families"),
    [(1, False, FEW), (2, False, TABULAR), (4, True, FEW)],
)
def test_everything_runs_through_and_nothing_is_calibrated(
    tmp_path: Path, subjects: int, varied: bool, families: Sequence[str]
) -> None:
    table = table_of(subjects, [1], varied=varied)
    validation, leaderboard = learned_from(table, families)
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
    comparison = compare_recipes(validation, contender, contender)
    assert comparison is not None
    assert comparison.gain.value == 0
    assert comparison.gain.bounded == (subjects > 1)


def test_one_subject_is_learned_by_baselines_alone_with_folds_over_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    validation, leaderboard = learned_from(table_of(1, [1, 2], varied=True))
    assert "segment: one subject, so only baselines are fitted" in caplog.text
    assert set(leaderboard.params) == {"median", "voxels", "law"}
    assert sorted(int(n) for _, held_out in validation.folds() for n in held_out) == [0, 1]
    assert all(not set(train) & set(held_out) for train, held_out in validation.folds())


def enlarged(query: Query, times: float) -> Query:
    """Return the query for a volume so many times as large, far out of range."""
    features = dict(query.features)
    features["header.megavoxels"] *= times
    features["header.log_voxels"] += np.log(times)
    return Query(features, query.cpus, query.host_class, query.volume)


@pytest.mark.parametrize(("subjects", "seed"), [(1, 0), (9, 1)])
def test_no_bound_is_far_from_the_prediction_and_all_that_was_measured(
    subjects: int, seed: int
) -> None:
    everything = planted.table(subjects + 8, seed=seed, noise=0.15)
    names = sorted(set(everything["subject"]))
    is_known = everything["subject"].isin(names[:subjects])
    table = everything[is_known].reset_index(drop=True)
    held_out = queries_of(everything[~is_known], None)
    validation, leaderboard = learned_from(table, FEW)
    farthest = 0.0
    for _, forecaster in fit_forecasters(validation, leaderboard, list(leaderboard.params), 1.5):
        for queries in (held_out, [enlarged(query, 1000) for query in held_out]):
            for prediction in forecaster.predict(queries):
                assert not prediction.calibrated
                assert prediction.missing_subjects == 19 - subjects
                for target, (_, median, upper) in prediction.quantiles.items():
                    times = upper / max(median, float(table[target].max()))
                    farthest = max(farthest, times)
    assert 1 < farthest <= REACH * (1 + 1e-9)


def test_where_there_is_only_noise_a_baseline_is_seldom_displaced() -> None:
    displaced = 0
    for seed in range(4):
        table = planted.table(3, seed=seed)
        rng = np.random.default_rng(seed)
        for target in ("cpu_s", "peak_rss_bytes"):
            table[target] = 100 * np.exp(0.3 * rng.normal(size=len(table)))
        _, leaderboard = learned_from(table, FEW)
        displaced += leaderboard.best not in ("median", "voxels", "law")
        assert leaderboard.objectives[leaderboard.best] >= min(leaderboard.objectives.values())
    assert displaced <= 1
