"""Ensembles and the cache beneath them."""

import numpy as np
import pytest

import planted
from voxcast.models.extrapolation import fit_extrapolator
from voxcast.models.selection.blends import (
    out_of_fold,
    stacked_out_of_fold,
    stacked_weights,
    voting_weights,
)
from voxcast.models.selection.cross_validation import OutOfFold, Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.leaderboard import Leaderboard
from voxcast.models.selection.learning import calibrated, fit_all, learn
from voxcast.records import TARGETS


def said(actual: np.ndarray, noise: float, shift: float, seed: int) -> OutOfFold:
    logs = actual + np.random.default_rng(seed).normal(shift, noise, actual.shape)
    return OutOfFold(logs, np.ones((*actual.shape, 2)))


def test_stacking_trusts_who_is_right_and_weighs_equals_equally() -> None:
    actual = np.random.default_rng(0).normal(3, 1, (400, 3))
    found = {
        "ridge": said(actual, 0.1, 0, 1), "forest": said(actual, 0.1, 0, 2),
        "tree": said(actual, 2.0, 0, 3), "median": said(actual, 0.01, 0, 4),
    }  # fmt: skip
    weights = stacked_weights(found, actual, TARGETS)
    assert set(weights) == {"ridge", "forest"}  # a baseline has no vote
    assert weights["ridge"][0] == pytest.approx(0.5, abs=0.1)
    total = np.sum([list(own) for own in weights.values()], axis=0)
    assert total == pytest.approx(1)
    assert set(voting_weights(found, actual, TARGETS)) == {"ridge", "forest", "tree"}
    blend = out_of_fold(found, weights)
    own = np.abs(found["ridge"].logs - actual).mean()
    assert np.abs(blend.logs - actual).mean() < 0.8 * own


def test_weights_of_a_fold_come_from_the_others() -> None:
    actual = np.random.default_rng(0).normal(3, 1, (40, 3))
    found = {"ridge": said(actual, 0.1, 0, 1), "forest": said(actual, 0.3, 0, 2)}
    folds = [(np.arange(20, 40), np.arange(20)), (np.arange(20), np.arange(20, 40))]
    blend = stacked_out_of_fold(found, actual, TARGETS, folds)
    other = stacked_weights(found, actual, TARGETS, np.arange(20, 40))
    np.testing.assert_allclose(blend.logs[:20], out_of_fold(found, other).logs[:20])


def test_an_ensemble_and_a_second_run_fit_nothing_again(tmp_path) -> None:
    table = planted.table(12)

    def run(cache: FoldCache) -> tuple[dict[str, float], int]:
        own = Validation(table, None, 3, 0, cache=cache)
        found = learn(own, ("median", "ridge", "forest"), trials=2, budget_s=600)
        return found.objectives, cache.fits

    first, fits = run(FoldCache(tmp_path))
    assert 3 * (1 + 1 + 1) <= fits <= 3 * (1 + 2 + 2)
    second, more = run(FoldCache(tmp_path))
    assert more == 0
    assert second == first
    changed = Validation(
        table.assign(cpu_s=table["cpu_s"] * 2), None, 3, 0, cache=FoldCache(tmp_path)
    )
    learn(changed, ("median",), trials=1, budget_s=600)
    assert changed.cache.fits == 3


def test_what_is_learned_answers_and_extrapolates() -> None:
    own = Validation(planted.table(24), None, 3, 0)
    found = learn(own, ("median", "ridge", "forest"), trials=2, budget_s=600)
    models = fit_all(own, found)
    calibrated_model = calibrated(
        own, found, models["forest"], "forest", 1.5, fit_extrapolator(own, found.tuned, 1.5)
    )
    assert calibrated_model.extrapolator is not None
    assert calibrated_model.extrapolator.model.family == "ridge"
    assert models["stacked"].family == "stacked"
    assert found.best in {*found.searches, "grid", "voting", "stacked"}


def test_of_equals_a_single_family_is_best(tmp_path) -> None:
    own = Validation(planted.table(16), None, 3, 0)
    found = learn(own, ("median", "tree"), trials=1, budget_s=600)
    board = Leaderboard.of(own, found)
    board.save(tmp_path / "data", tmp_path / "results")
    again = Leaderboard.load(tmp_path / "data")
    equal = board.families["grid"]["metrics"]["objective"]
    assert equal == board.families["tree"]["metrics"]["objective"]
    assert board.best == again.best == "tree"  # and not `grid`, which is before it by name
