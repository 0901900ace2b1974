"""Learning: search, ensembles, the cache of folds; and what few subjects can tell."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.errors import ModelError
from voxcast.files import write_json
from voxcast.models import point_model
from voxcast.models.conformal import REACH
from voxcast.models.explanation import explain_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.metrics import error_metrics
from voxcast.models.point_model import Query, queries_of, weighted_mean
from voxcast.models.selection.comparison import Contender, compare_recipes
from voxcast.models.selection.cross_validation import FoldCache, Validation
from voxcast.models.selection.fitting import fit_forecaster, fit_forecasters
from voxcast.models.selection.leaderboard import (
    Leaderboard,
    choose_family,
    load_leaderboard,
    save_leaderboard,
    save_table,
    stacked_out_of_fold,
    stacked_weights,
    voting_weights,
)
from voxcast.models.selection.learning import learn, tune
from voxcast.models.selection.promotion_rule import risks
from voxcast.records import TARGETS


def noisy(actual: np.ndarray, noise: float, shift: float, seed: int) -> np.ndarray:
    return actual + np.random.default_rng(seed).normal(shift, noise, actual.shape)


def test_stacking_prefers_accurate_families_and_weighs_equals_equally() -> None:
    actual = np.random.default_rng(0).normal(3, 1, (400, 3))
    members = {
        "ridge": noisy(actual, 0.1, 0, 1), "extra_trees": noisy(actual, 0.1, 0, 2),
        "boosted": noisy(actual, 2.0, 0, 3), "median": noisy(actual, 0.01, 0, 4),
    }  # fmt: skip
    weights = stacked_weights(members, actual, TARGETS)
    assert set(weights) == {"ridge", "extra_trees"}  # a baseline has no vote
    assert weights["ridge"][0] == pytest.approx(0.5, abs=0.1)
    total = np.sum([list(by_target) for by_target in weights.values()], axis=0)
    assert total == pytest.approx(1)
    assert set(voting_weights(members, actual, TARGETS)) == {"ridge", "extra_trees", "boosted"}
    blend = weighted_mean(members, weights)
    single = np.abs(members["ridge"] - actual).mean()
    assert np.abs(blend - actual).mean() < 0.8 * single


def test_weights_of_a_fold_come_from_the_others() -> None:
    actual = np.random.default_rng(0).normal(3, 1, (40, 3))
    members = {"ridge": noisy(actual, 0.1, 0, 1), "extra_trees": noisy(actual, 0.3, 0, 2)}
    folds = [(np.arange(20, 40), np.arange(20)), (np.arange(20), np.arange(20, 40))]
    blend = stacked_out_of_fold(members, actual, TARGETS, folds)
    weights = stacked_weights(members, actual, TARGETS, np.arange(20, 40))
    expected = weighted_mean(members, weights)[:20]
    np.testing.assert_allclose(blend[:20], expected)


def test_families_are_told_apart_by_errors_at_the_usual_speed() -> None:
    table = planted.table(40)
    memory = TARGETS.index("peak_rss_bytes")
    # A neighbour slows one run in three by more than families differ by, and a gauge tells so.
    slowed = np.where(np.arange(len(table)) % 3 == 0, 0.5, 0.0)
    times = {name: table[name] * np.exp(slowed) for name in ("cpu_s", "runtime_s")}
    disturbed = Validation(table.assign(**times, speed_deviation=-slowed), None, 4, 0)
    calm = Validation(table, None, 4, 0)
    np.testing.assert_allclose(disturbed.actual_at_usual_speed(), calm.actual())
    np.testing.assert_allclose(disturbed.actual()[:, memory], calm.actual()[:, memory])
    leaderboards = [
        learn(validation, ("median", "ridge", "extra_trees"), trials=1)
        for validation in (disturbed, Validation(table.assign(**times), None, 4, 0))
    ]
    # The metrics of times are of what was measured; the choice is not.
    errors = [b.metrics["volume"][b.best]["cpu_s/mape"] for b in leaderboards]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)
    assert leaderboards[0].objectives["ridge"] < 0.6 * leaderboards[1].objectives["ridge"]


def test_an_ensemble_and_a_second_run_reuse_fits(tmp_path: Path) -> None:
    table = planted.table(12)

    def run(cache: FoldCache) -> tuple[dict[str, float], int]:
        validation = Validation(table, None, 3, 0, cache=cache)
        leaderboard = learn(validation, ("median", "ridge", "extra_trees"), trials=2)
        return leaderboard.objectives, cache.fits

    first, fits = run(FoldCache(tmp_path))
    assert 3 * (1 + 1 + 1) <= fits <= 3 * (1 + 2 + 2)
    second, more = run(FoldCache(tmp_path))
    assert more == 0
    assert second == first
    changed = Validation(
        table.assign(cpu_s=table["cpu_s"] * 2), None, 3, 0, cache=FoldCache(tmp_path)
    )
    learn(changed, ("median",), trials=1)
    assert changed.cache.fits == 3


def test_a_forecaster_of_every_name_shares_trend_and_header_model() -> None:
    table = planted.table(24)
    validation = Validation(table, None, 3, 0)
    families = ("median", "ridge", "extra_trees")
    leaderboard = learn(validation, families, trials=2, input_levels=("volume", "header"))
    assert list(leaderboard.params) == [*families, "voting", "stacked"]
    forecasters = dict(fit_forecasters(validation, leaderboard, list(leaderboard.params), 1.5))
    assert set(forecasters) == set(leaderboard.params)
    trend = forecasters["extra_trees"].model_at("volume").trend
    assert trend is not None
    assert trend.family == "ridge"
    assert trend is forecasters["stacked"].model_at("volume").trend
    assert forecasters["stacked"].family == "stacked"
    headers = {f.models_by_input_level["header"].model.family for f in forecasters.values()}
    assert headers == {leaderboard.name_at("extra_trees", "header")}
    alone = fit_forecaster(validation, leaderboard, "voting", 1.5)
    queries = queries_of(table.head(4))
    assert alone.predict(queries) == forecasters["voting"].predict(queries)


def test_the_reloaded_leaderboard_has_the_grid_as_a_row_of_the_best_family(
    tmp_path: Path,
) -> None:
    table = planted.table(16)
    validation = Validation(table, None, 3, 0)
    leaderboard = learn(
        validation, ("median", "extra_trees"), trials=1, input_levels=("volume", "header")
    )
    keys = table["cell_key"].tolist()
    save_leaderboard(leaderboard, keys, tmp_path / "data")
    save_table({"segment": leaderboard}, tmp_path / "leaderboard.csv")
    loaded = load_leaderboard(tmp_path / "data", keys[::-1])
    assert leaderboard.best == loaded.best == loaded.best_family == "extra_trees"
    assert (loaded.params, loaded.counts) == (leaderboard.params, leaderboard.counts)
    assert loaded.metrics == leaderboard.metrics
    for input_level, by_name in leaderboard.out_of_fold.items():
        for name, out_of_fold in by_name.items():
            again = loaded.out_of_fold[input_level][name]
            np.testing.assert_array_equal(again[::-1], out_of_fold)
    board = pd.read_csv(tmp_path / "leaderboard.csv").set_index("family")
    assert set(board["app"]) == {"segment"}
    assert list(board.index) == ["extra_trees", "grid", "median"]
    assert board.loc["grid", "cv_objective"] == board.loc["extra_trees", "cv_objective"]


def test_a_leaderboard_of_another_release_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "best.json", {"families": {}})
    (tmp_path / "out_of_fold.parquet").touch()
    with pytest.raises(ModelError, match="another release"):
        load_leaderboard(tmp_path)


BASELINE = np.array([0.30, 0.10, 0.40, 0.20])  # of two runs of a, and one each of b and c
BETTER = BASELINE - np.array([0.05, 0.05, 0.051, 0.049])
BY_ONE_SUBJECT = BASELINE - np.array([0.0, 0.0, 0.37, -0.05])
LUCKY = BASELINE - np.array([0.10, 0.0, -0.05, 0.02])
WIDE = np.array([0.4, 0.4, 0.4, 3.0])  # one subject dominates the interval
EQUAL = np.full(4, 0.5)
CHOICES = {
    "chance explains the gain": ({"voxels": BASELINE, "extra_trees": LUCKY}, "voxels"),
    "a gain on every subject": (
        {"median": BASELINE + 0.1, "voxels": BASELINE, "ridge": BETTER}, "ridge",
    ),
    "only the smallest error is tested": (
        {"voxels": BASELINE, "ridge": BETTER, "extra_trees": BY_ONE_SUBJECT}, "voxels",
    ),
    "a constant is no reason to leave the smallest": (
        {"median": WIDE, "ridge": np.full(4, 0.1)}, "ridge",
    ),
    "a baseline of the image is one": (
        {"median": WIDE, "ridge": np.full(4, 0.1), "voxels": WIDE}, "median",
    ),
    "equal but for rounding": ({"voxels": BASELINE, "boosted": BASELINE * (1 - 1e-12)}, "voxels"),
    "a single family, then the first": (
        {"voxels": 2 * EQUAL, "voting": EQUAL, "ridge": EQUAL, "extra_trees": EQUAL}, "ridge",
    ),
    "no baseline": ({"voting": EQUAL, "ridge": EQUAL, "extra_trees": EQUAL}, "ridge"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_a_baseline_is_displaced_by_what_chance_does_not_explain(case: str) -> None:
    errors, name = CHOICES[case]
    choice = choose_family(errors, ["a", "a", "b", "c"])
    smallest = min(errors, key=lambda family: errors[family].mean())
    assert choice.name == name
    assert errors[choice.smallest].mean() == pytest.approx(errors[smallest].mean())


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


# Families of each kind: constant, linear, in trees, out of range, blended.
FEW = ("median", "voxels", "law", "ridge", "extra_trees")
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
