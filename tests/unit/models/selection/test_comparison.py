"""Two recipes are compared on the same held-out subjects, each fitted to its runs alone."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.models.families.family import FAMILIES
from voxcast.models.point_model import queries_of
from voxcast.models.selection.comparison import (
    NOISY_WEIGHT,
    OTHER_FOLDS,
    Contender,
    compare,
    compare_recipes,
    cross_fitted_errors,
    run_weights,
)
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fitting import fit_forecaster
from voxcast.models.selection.learning import learn

RIDGE = "ridge", FAMILIES["ridge"].defaults
MEDIAN = "median", FAMILIES["median"].defaults


@pytest.fixture
def table() -> pd.DataFrame:
    return planted.table(8, noise=0.02)


def test_a_contender_learns_from_its_rows_without_the_held_out_subjects(
    table: pd.DataFrame,
) -> None:
    validation = Validation(table, None, 4, 0)
    rows = table["subject"].isin(["0001", "0002"]).to_numpy()
    before = cross_fitted_errors(validation, Contender(*MEDIAN, rows))
    changed = table.copy()
    # Neither runs of others nor, for its own subject, its own runs change what it predicts.
    changed.loc[~rows, "cpu_s"] *= 2
    after = cross_fitted_errors(Validation(changed, None, 4, 0), Contender(*MEDIAN, rows))
    np.testing.assert_array_equal(before[rows], after[rows])
    assert not np.allclose(before[~rows], after[~rows])
    everything = np.ones(len(table), dtype=bool)
    assert not np.allclose(before, cross_fitted_errors(validation, Contender(*MEDIAN, everything)))


def test_no_contender_is_judged_on_the_folds_of_its_tuning(table: pd.DataFrame) -> None:
    everything = np.ones(len(table), dtype=bool)
    trees = "extra_trees", FAMILIES["extra_trees"].defaults
    contenders = Contender(*trees, everything), Contender(*RIDGE, everything)
    tuned = Validation(table, None, 4, 0)
    comparison = compare_recipes(tuned, *contenders)
    assert comparison is not None
    of_tuning, of_others = (
        cross_fitted_errors(validation, contenders[0]).mean()
        for validation in (tuned, replace(tuned, seed=OTHER_FOLDS))
    )
    assert comparison.challenger.value == pytest.approx(of_others)
    assert comparison.challenger.value != pytest.approx(of_tuning)


def test_subjects_that_one_cannot_be_judged_on_are_left_out_for_both(table: pd.DataFrame) -> None:
    everything = np.ones(len(table), dtype=bool)
    alone = (table["subject"] == "0001").to_numpy()
    validation = Validation(table, None, 4, 0)
    comparison = compare_recipes(
        validation, Contender(*RIDGE, everything), Contender(*MEDIAN, alone)
    )
    assert comparison is not None
    assert comparison.subjects == 6  # its fold has two subjects
    nothing = np.zeros(len(table), dtype=bool)
    assert (
        compare_recipes(validation, Contender(*RIDGE, everything), Contender(*MEDIAN, nothing))
        is None
    )


def test_a_fitted_model_is_judged_as_it_is_on_subjects_that_it_did_not_learn_from(
    table: pd.DataFrame,
) -> None:
    rows = table["subject"].isin(["0001", "0002"]).to_numpy()
    seen = Validation(table, None, 4, 0).part(np.flatnonzero(rows))
    leaderboard = learn(seen, ["ridge"], trials=1)
    fitted = fit_forecaster(seen, leaderboard, "ridge", 1.5)
    validation = Validation(table, None, 4, 0)
    errors = cross_fitted_errors(validation, Contender(*RIDGE, rows, fitted))
    assert np.isnan(errors[rows]).all()
    predictions = fitted.predict(queries_of(table, None))
    logs = np.log([[p.quantiles[t][1] for t in ("cpu_s", "peak_rss_bytes")] for p in predictions])
    expected = np.abs(np.log(table[["cpu_s", "peak_rss_bytes"]].to_numpy()) - logs)
    np.testing.assert_allclose(errors[~rows], expected[~rows])
    # The same subjects, measured again: none of its own runs is on record.
    none = np.zeros(len(table), dtype=bool)
    again = Contender(*RIDGE, none, fitted, frozenset({"0001", "0002"}))
    np.testing.assert_array_equal(cross_fitted_errors(validation, again), errors)


def test_subjects_count_the_same_and_disturbed_runs_less() -> None:
    table = pd.DataFrame({"subject": ["a", "a", "b", "c"], "noisy": [False, True, False, True]})
    weights = run_weights(table)
    np.testing.assert_allclose(weights, [0.5, NOISY_WEIGHT / 2, 1.0, NOISY_WEIGHT])
    assert run_weights(table[["subject"]]).tolist() == [0.5, 0.5, 1.0, 1.0]


def test_a_gain_has_the_opposite_sign_the_other_way_round(table: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    worse = rng.uniform(0.2, 0.3, (len(table), 2))
    better = worse - rng.uniform(0.05, 0.1, worse.shape)
    gain, loss = compare(better, worse, table), compare(worse, better, table)
    assert gain is not None
    assert loss is not None
    assert gain.gain.low > 0
    assert loss.gain.value == pytest.approx(-gain.gain.value)
    assert loss.worse_targets == ("cpu_s", "peak_rss_bytes")
