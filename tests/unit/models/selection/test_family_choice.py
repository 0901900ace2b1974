"""The choice of a family: a baseline, unless another is better by a margin."""

import numpy as np

from voxcast.models.selection.leaderboard import choose_family

BASELINE = np.array([0.30, 0.10, 0.40, 0.20])
SUBJECTS = ["a", "a", "b", "c"]


def test_a_smaller_error_that_chance_explains_does_not_displace_a_baseline() -> None:
    lucky = BASELINE - np.array([0.10, 0.0, -0.05, 0.02])
    choice = choose_family({"voxels": BASELINE, "extra_trees": lucky}, SUBJECTS)
    assert (choice.name, choice.smallest) == ("voxels", "extra_trees")


def test_a_gain_on_every_subject_does() -> None:
    better = BASELINE - np.array([0.05, 0.05, 0.051, 0.049])
    choice = choose_family(
        {"median": BASELINE + 0.1, "voxels": BASELINE, "ridge": better}, SUBJECTS
    )
    assert (choice.name, choice.smallest) == ("ridge", "ridge")


def test_only_the_smallest_error_is_tested() -> None:
    better = BASELINE - np.array([0.05, 0.05, 0.051, 0.049])
    noisier = BASELINE - np.array([0.0, 0.0, 0.37, -0.05])  # a smaller mean, by one subject
    choice = choose_family({"voxels": BASELINE, "ridge": better, "extra_trees": noisier}, SUBJECTS)
    assert (choice.name, choice.smallest) == ("voxels", "extra_trees")


def test_a_constant_is_no_reason_to_leave_the_smallest_error() -> None:
    wide = np.array([0.4, 0.4, 3.0])  # one subject dominates the interval
    errors = {"median": wide, "ridge": np.full(3, 0.1)}
    assert choose_family(errors, ["a", "b", "c"]).name == "ridge"
    errors["voxels"] = wide
    assert choose_family(errors, ["a", "b", "c"]).name == "median"


def test_equal_predictions_are_a_tie_although_they_are_rounded() -> None:
    errors = {"voxels": BASELINE, "boosted": BASELINE * (1 - 1e-12)}
    assert choose_family(errors, SUBJECTS).name == "voxels"


def test_ties_prefer_single_families_then_the_first() -> None:
    means = {"voxels": 1.0, "voting": 0.5, "ridge": 0.5, "extra_trees": 0.5, "stacked": 0.5}
    errors = {name: np.full(3, mean) for name, mean in means.items()}
    assert choose_family(errors, ["a", "b", "c"]).name == "ridge"
    del errors["voxels"]  # without a baseline the smallest error decides
    assert choose_family(errors, ["a", "a", "a"]).name == "ridge"
