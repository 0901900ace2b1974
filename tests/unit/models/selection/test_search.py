"""Tuning: no leakage between folds, determinism, what the families learn of a planted law."""

import numpy as np
import pytest

import planted
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.metrics import error_metrics
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import tune

ADDITIVE = {"alpha": 1e-3, "columns": "sizes", "scale": "relative", "products": False}


def test_a_subject_is_never_on_both_sides_of_a_fold() -> None:
    table = planted.table(13)
    for train, held_out in Validation(table, None, 4, seed=3).folds():
        assert not set(table["subject"].iloc[train]) & set(table["subject"].iloc[held_out])
        assert len(train) + len(held_out) == len(table)


@pytest.mark.parametrize("name", [n for n, f in FAMILIES.items() if not f.needs_volume])
def test_every_family_is_tuned_and_beats_the_median_unless_it_is_one(name: str) -> None:
    table = planted.table(24)
    search = tune(Validation(table, None, 3, 1), name, trials=3, budget_s=60)
    assert np.isfinite(search.out_of_fold).all()
    median = Validation(table, None, 3, 1).out_of_fold("median", {}, "volume")
    bar = error_metrics(table, median)["objective"]
    if not FAMILIES[name].baseline:
        assert search.metrics["objective"] < 0.8 * bar
    assert len(search.trials) == (3 if FAMILIES[name].defaults else 1)


def test_ridge_on_sizes_finds_the_planted_law() -> None:
    table = planted.table(40, noise=0.005)
    out_of_fold = Validation(table, None, 4, 0).out_of_fold("ridge", ADDITIVE, "volume")
    metrics = error_metrics(table, out_of_fold)
    # The law adds up, and so does this family: what is left is the planted noise of 0.5 %.
    assert metrics["peak_rss_bytes/mape"] < 1
    assert metrics["cpu_s/mape"] < 1


def test_without_voxels_the_foreground_cannot_be_known() -> None:
    table = planted.table(40)
    params = ADDITIVE
    seen = Validation(table, None, 4, 0).out_of_fold("ridge", params, "volume")
    blind = Validation(table, None, 4, 0).out_of_fold("ridge", params, "header")
    with_voxels, without = (
        error_metrics(table, out_of_fold)["cpu_s/mape"] for out_of_fold in (seen, blind)
    )
    assert with_voxels < 0.5 * without


def test_same_seed_same_trials_to_the_bit() -> None:
    table = planted.table(16)
    first, second = (
        tune(Validation(table, None, 3, 5), "extra_trees", trials=4, budget_s=600)
        for _ in range(2)
    )
    assert [t.params for t in first.trials] == [t.params for t in second.trials]
    assert np.array_equal(first.out_of_fold, second.out_of_fold)
    assert not first.cut_short


def test_the_clock_ends_a_search_after_the_first_trial() -> None:
    search = tune(Validation(planted.table(8), None, 2, 0), "ridge", trials=50, budget_s=0)
    assert len(search.trials) == 1
    assert search.cut_short


def test_the_network_learns_and_repeats_itself() -> None:
    table = planted.table(12)
    volumes = planted.volumes(table)
    params = {**FAMILIES["cnn"].defaults, "head": "ridge", "epochs": 1}
    fits = [point_model.fit(table, volumes, "cnn", params, "volume", 7) for _ in range(2)]
    logs = [point_model.predict_table(fit, table, volumes) for fit in fits]
    assert logs[0] == pytest.approx(logs[1], abs=1e-6)
    assert np.abs(logs[0] - point_model.log_targets(table)).mean() < 0.15
