"""HARP: its definitions, its documented defects, and that the corrected one has none of them."""

import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.evaluation import harp
from voxcast.evaluation.harp import (
    HarpCandidate,
    Preprocessor,
    adjustment_factor,
    choose,
    draw_mixes,
    inliers,
    score,
)


def history(
    seed: int = 0, small: int = 60, large: int = 24
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Scaled-down runs of few epochs, full-scale ones of many; time follows size and epochs."""
    rng = np.random.default_rng(seed)
    full = np.array([False] * small + [True] * large)
    epochs = np.where(full, rng.integers(20, 40, small + large), rng.integers(1, 4, small + large))
    size = rng.uniform(1, 5, small + large)
    features = pd.DataFrame(
        {"epochs": epochs, "size": size, "copy": size, "net": rng.choice(["vgg", "fc"], len(full))}
    )
    times_s = (2 + epochs * size) * np.exp(rng.normal(0, 0.05, len(full)))
    return features, times_s, full


def candidate(upp: float, ov_mape: float, mae_s: float = 1.0) -> HarpCandidate:
    return HarpCandidate("SD", "MLR", False, 1.0, mae_s, 1.0, 1.0, upp, 1.0, ov_mape)


def test_measures_are_those_of_the_paper() -> None:
    measures = score([100, 100, 100, 100], [50, 150, 120, 100])
    assert measures == {
        "mae_s": 30.0, "mse_s2": 1350.0, "mape": 30.0,
        "upp": 25.0, "up_mape": 50.0, "ov_mape": 35.0,
    }  # fmt: skip
    assert score([1, 1], [1, 1])["ov_mape"] == 0
    assert adjustment_factor([100, 10], [50, 12]) == 1.5
    assert adjustment_factor([10], [12]) == 1.0


def test_mixes_are_drawn_as_in_harp() -> None:
    _, _, full = history()
    drawn = draw_mixes(full)
    assert len(drawn.validation) == 6
    assert full[drawn.validation].all()
    assert len(drawn.training["SD"]) == 60
    for name, count in (("SD+25%FS", 6), ("SD+50%FS", 12), ("SD+75%FS", 18)):
        rows = drawn.training[name]
        assert len(rows) == 120  # sampled up to as many as are scaled down
        in_training = set(rows[full[rows]])
        assert len(in_training) <= count
        assert not in_training & set(drawn.validation)


def test_validation_holds_out_complete_groups() -> None:
    _, _, full = history()
    groups = [f"g{n % 7}" for n in range(len(full))]
    drawn = draw_mixes(full, groups)
    held = {groups[n] for n in drawn.validation}
    assert not held & {groups[n] for rows in drawn.training.values() for n in rows if full[n]}


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(TableError, match="4 at full scale"):
        draw_mixes([False, False, True, True, True])


def test_a_tie_of_wtm_is_decided_among_the_tied() -> None:
    safe, wasteful, reckless = candidate(0, 40), candidate(0, 60), candidate(100, 0)
    table = [wasteful, safe, reckless]
    assert choose(table, "WTM") is safe
    assert choose(table, "WTM", released_ties=True) is reckless  # the release's defect
    assert choose([candidate(5, 1, 3.0), candidate(9, 1, 2.0)], "MAE").mae_s == 2.0


def test_the_release_drops_the_long_runs_and_we_do_not() -> None:
    features, times_s, full = history(small=200, large=4)
    assert not inliers(features.assign(walltime=times_s))[full].any()
    fitted = harp.fit(features, times_s, full)
    assert {candidate.mix for candidate in fitted.candidates} == {
        "SD",
        "SD+25%FS",
        "SD+50%FS",
        "SD+75%FS",
    }
    assert len(fitted.candidates) == 24


def test_components_reduce_and_predicted_rows_do_not_change_the_fit() -> None:
    features, times_s, full = history()
    reduced = Preprocessor(one_hot=True).fit(features)
    assert reduced.transform(features).shape[1] < 5
    everything = Preprocessor(one_hot=False, variance=None).fit(features)
    assert everything.transform(features).shape[1] == 4
    strange = features.assign(size=1e6)
    alone, beside = harp.fit(features, times_s, full), harp.fit(features, times_s, full)
    best = alone.chosen()
    first = alone.predict(features.head(3), best)
    beside.predict(strange, best)
    np.testing.assert_array_equal(beside.predict(features.head(3), best), first)


def test_unseen_categories_and_runs_get_a_positive_prediction() -> None:
    features, times_s, full = history()
    fitted = harp.fit(features, times_s, full)
    new_runs = pd.DataFrame(
        {"epochs": [1, 100], "size": [0.1, 9.0], "copy": [0.1, 9.0], "net": ["new", "fc"]}
    )
    for candidate in fitted.candidates:
        assert (fitted.predict(new_runs, candidate) > 0).all()
    paper = harp.fit(features, times_s, full, mode="paper")
    assert (
        min(paper.predict(new_runs, candidate).min() for candidate in paper.candidates) < 0
    )  # its defect


def test_the_release_needs_the_test_rows_and_is_chosen_by_them() -> None:
    features, times_s, full = history()
    with pytest.raises(TableError, match="needs test rows"):
        harp.fit(features, times_s, full, mode="code")
    test = features[full], times_s[full]
    fitted = harp.fit(features, times_s, full, mode="code", test=test)
    first = fitted.candidates[0]
    assert score(test[1], fitted.predict(test[0], first))["mae_s"] == first.mae_s


def test_more_full_scale_runs_help_and_the_chosen_one_is_right() -> None:
    features, times_s, full = history()
    fitted = harp.fit(features, times_s, full)
    new_features, new_times_s, new_full = history(seed=1)
    best = fitted.chosen("MAE")
    assert best.mix != "SD"
    measures = score(new_times_s[new_full], fitted.predict(new_features[new_full], best))
    assert measures["mape"] < 30


def test_full_scale_alone_uses_every_full_scale_run_once() -> None:
    features, times_s, full = history()
    mixes = draw_mixes(full, scaled_down=False)
    assert set(mixes.training) == {"FS"}
    positions = [*mixes.training["FS"], *mixes.validation]
    assert sorted(positions) == np.flatnonzero(full).tolist()
    fitted = harp.fit(features, times_s, full, scaled_down=False)
    assert len(fitted.candidates) == 6
    only_full = harp.fit(features[full], times_s[full], full[full], scaled_down=False)
    assert only_full.candidates == fitted.candidates
