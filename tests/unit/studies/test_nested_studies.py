"""Learning curves and paired comparisons on a planted law; nothing is chosen on held-out runs."""

import numpy as np
import pandas as pd
import pytest

import family_comparison
import learning_curves
import planted
from nested import CHOSEN, Learner
from voxcast.evaluation.scoring import errors, paired
from voxcast.features.table import SPEED_DEVIATION
from voxcast.laws.intervals import clustered_mean
from voxcast.models.selection.cross_validation import FoldCache

FAST = ("median", "voxels", "ridge")
FLOORS = {"segment": {"raw": {"cpu_s": 4.0}, "normalised": {"cpu_s": 1.0}}}


def table(subjects: int = 30, noise: float = 0.02) -> pd.DataFrame:
    runs = planted.table(subjects, noise=noise)
    return runs.assign(noisy=False, host_id="here", parameters_json="{}", batch="first")


def test_what_is_chosen_does_not_depend_on_the_held_out_runs() -> None:
    runs = table()
    train, test = runs[runs["subject"] <= "0020"], runs[runs["subject"] > "0020"]
    learner = Learner(FAST, trials=2)
    predictions = learner.predictions(train, test)[CHOSEN]
    scrambled = test.assign(cpu_s=test["cpu_s"].to_numpy()[::-1])
    again = learner.predictions(train, scrambled)[CHOSEN]
    assert predictions["cpu_s_median"].tolist() == again["cpu_s_median"].tolist()
    assert predictions["chosen"].tolist() == again["chosen"].tolist()
    assert predictions["cell_key"].tolist() == test["cell_key"].tolist()
    by_family = learner.predictions(train, test, every_family=True)
    assert {*FAST, CHOSEN} <= set(by_family)
    chosen = by_family[predictions["chosen"].iloc[0]]
    assert chosen["cpu_s_median"].tolist() == predictions["cpu_s_median"].tolist()


def test_the_error_falls_with_the_subjects_and_the_floors_stand_beside(tmp_path) -> None:
    results = learning_curves.study(
        table(40), FLOORS, counts=(4, 16, 500), families=("ridge",), folds=3, trials=2,
        cache=FoldCache(tmp_path),
    )["segment"]  # fmt: skip
    assert results["floors"] == FLOORS["segment"]
    subjects = [point["subjects"] for point in results["points"]]
    assert subjects[:2] == [4, 16]
    assert subjects[2] == pytest.approx(40 * 2 / 3)  # all subjects of a fold
    mapes = [point["errors"]["cpu_s"]["mape"] for point in results["points"]]
    assert mapes[2] < mapes[0]
    assert mapes[2] < 5


def test_smaller_training_sets_are_parts_of_larger_ones() -> None:
    runs = table(20)
    sets = [
        set(learning_curves._first_subjects(runs, count, seed=3)["subject"])
        for count in (4, 8, None)
    ]
    assert len(sets[0]) == 4
    assert sets[0] < sets[1] < sets[2]


def test_families_are_compared_in_pairs_at_the_level_of_all_pairs() -> None:
    results = family_comparison.study(table(), FAST, folds=3, trials=1, cache=FoldCache())
    cpu = results["segment"]["cpu_s"]
    assert cpu["best"] == "ridge"
    names = [name for name in cpu["families"] if name != CHOSEN]
    assert cpu["pairs"] == len(names) * (len(names) - 1) // 2
    assert cpu["confidence"] == pytest.approx(1 - 0.05 / cpu["pairs"])
    assert cpu["families"]["ridge"]["difference"] is None
    median = cpu["families"]["median"]["difference"]
    assert median["interval"][0] > 0  # the law is not constant
    assert median["ratio"] > 3
    errors_of = {name: scores["errors"]["mape"] for name, scores in cpu["families"].items()}
    assert list(errors_of.values()) == sorted(errors_of.values())
    assert median["points"] == pytest.approx(errors_of["median"] - errors_of["ridge"])


def test_a_paired_difference_is_over_subjects_and_wider_at_a_higher_confidence() -> None:
    rng = np.random.default_rng(0)
    runs = pd.DataFrame(
        {"cell_key": [f"c{n}" for n in range(40)], "subject": [f"s{n // 2}" for n in range(40)],
         "noisy": False, "cpu_s": 10.0, "cpu_s_median": rng.normal(10, 0.5, 40)}
    )  # fmt: skip
    rival = runs.assign(cpu_s_median=runs["cpu_s_median"] + 1.0).iloc[::-1]
    plain, wide = paired(runs, rival, "cpu_s"), paired(runs, rival, "cpu_s", confidence=0.999)
    shares = 10 * (np.abs(runs["cpu_s_median"] + 1 - 10) - np.abs(runs["cpu_s_median"] - 10))
    mean = clustered_mean(shares, runs["subject"].tolist())
    assert plain["points"] == pytest.approx(mean.value)
    assert plain["interval"] == pytest.approx([mean.low, mean.high])
    assert wide["interval"][0] < plain["interval"][0]
    assert wide["interval"][1] > plain["interval"][1]


def test_errors_are_told_as_measured_and_at_the_usual_speed() -> None:
    # The machine was slower by a quarter during the second run, which explains its time.
    runs = pd.DataFrame(
        {"subject": ["a", "b"], "noisy": False, "cpu_s": [10.0, 12.5], "peak_rss_bytes": 1e9,
         "cpu_s_median": [10.0, 10.0], "peak_rss_bytes_median": 1e9,
         SPEED_DEVIATION: [0.0, np.log(0.8)]}
    )  # fmt: skip
    by_target = errors(runs)
    assert by_target["cpu_s"]["mape"] == pytest.approx(10)
    assert by_target["cpu_s"]["normalised_mape"] == pytest.approx(0)
    assert "normalised_mape" not in by_target["peak_rss_bytes"]
    assert "normalised_mape" not in errors(runs.drop(columns=SPEED_DEVIATION))["cpu_s"]
