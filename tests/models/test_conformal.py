"""Stated risk: the rank rule, its coverage, and a cross-check against an independent library."""

import math

import numpy as np
import pytest
from crepes import ConformalRegressor
from hypothesis import given
from hypothesis import strategies as st

from voxcast.models.conformal import Calibrator, Scores

FACTOR = 1.5


def scores(values: np.ndarray) -> Scores:
    return Scores.of(values.tolist(), [str(n) for n in range(len(values))])


@pytest.mark.parametrize(("level", "needed"), [(0.95, 19), (0.9, 9), (0.8, 4), (0.99, 99)])
def test_the_number_of_subjects_that_a_level_needs(level: float, needed: int) -> None:
    assert math.ceil(1 / (1 - level) - 1e-9) - 1 == needed
    assert scores(np.zeros(needed)).is_calibrated(level)
    assert not scores(np.zeros(needed - 1)).is_calibrated(level)


@pytest.mark.parametrize("n", [20, 57, 200])
def test_the_upper_bound_is_that_of_crepes(n: int) -> None:
    residuals = np.random.default_rng(n).normal(size=n)
    # A two-sided interval of confidence 1 - 2α has the one-sided bound of level 1 - α above it,
    # when the residuals are given with their sign.
    peer = ConformalRegressor().fit(residuals, sigmas=None)
    upper = scores(residuals).upper(0.9, FACTOR)
    rank = math.ceil((n + 1) * 0.9 - 1e-9)
    assert upper == np.sort(residuals)[rank - 1]
    absolute = peer.predict_int(np.zeros(1), confidence=0.9)[0, 1]
    assert scores(np.abs(residuals)).upper(0.9, FACTOR) == pytest.approx(absolute)


def test_new_subjects_have_the_nominal_coverage() -> None:
    rng = np.random.default_rng(1)
    hits = total = 0
    for _ in range(400):
        calibration = np.repeat(rng.normal(size=40), 3) + 0.1 * rng.normal(size=120)
        subjects = np.repeat(np.arange(40), 3).astype(str)
        bound = Scores.of(calibration.tolist(), subjects.tolist()).upper(0.9, FACTOR)
        new = rng.normal(size=20)[:, None] + 0.1 * rng.normal(size=(20, 3))
        hits += int((new.max(axis=1) <= bound).sum())
        total += 20
    # 8,000 subjects in 400 groups: the standard error is below 0.6 %
    assert hits / total == pytest.approx(0.9, abs=0.02)
    assert hits / total > 0.885


def test_one_subject_counts_once_however_often_it_ran() -> None:
    few = Scores.of([1.0, 2.0], ["a", "b"])
    many = Scores.of([1.0] * 50 + [2.0], ["a"] * 50 + ["b"])
    assert few == many


def test_too_few_subjects_fall_back_to_the_stated_multiple() -> None:
    assert scores(np.array([-0.1, 0.2, 0.4])).upper(0.95, 2.0) == pytest.approx(0.8)
    assert scores(np.array([-0.3, -0.2, -0.1])).upper(0.95, 2.0) == 0.0
    assert scores(np.array([-0.3, 0.2, 0.4])).lower(0.05, 2.0) == pytest.approx(-0.6)


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=60),
    st.floats(0.55, 0.99),
)
def test_quantiles_never_cross(values: list[float], upper: float) -> None:
    subjects = [str(n % 7) for n in range(len(values))]
    calibrator = Calibrator.fit(values, subjects, ["a"] * len(values), FACTOR)
    low, high = calibrator.offsets("a", 1 - upper, upper)
    assert low <= 0 <= high


def test_a_censored_subject_counts_as_above_any_bound() -> None:
    residuals = np.linspace(0, 1, 40)
    subjects = [str(n) for n in range(40)]
    free = Scores.of(residuals.tolist(), subjects)
    ended = Scores.of(residuals.tolist(), subjects, ["0", "new"])
    assert ended.censored == 2
    assert ended.upper(0.9, FACTOR) > free.upper(0.9, FACTOR)
    # 41 subjects, rank 38 of whom 39 have a residual; two more above any would take the promise.
    assert ended.is_calibrated(0.9)
    assert not Scores.of(residuals.tolist(), subjects, ["a", "b", "c", "d", "e"]).is_calibrated(
        0.9
    )
    pairs = {("x", "0"), ("y", "1")}
    calibrator = Calibrator.fit(residuals.tolist(), subjects, ["x"] * 40, FACTOR, pairs)
    assert calibrator.by_app["x"].censored == 1
    assert Calibrator.from_json(calibrator.to_json()) == calibrator


def test_an_unseen_application_gets_the_most_conservative_bound() -> None:
    calibrator = Calibrator.fit([0.1, 0.1, 0.9, 0.9], list("abab"), list("xxyy"), FACTOR)
    assert calibrator.offsets("new", 0.05, 0.95)[1] == calibrator.offsets("y", 0.05, 0.95)[1]
    assert not calibrator.is_calibrated("new", 0.5)


def test_calibration_round_trips_through_json() -> None:
    calibrator = Calibrator.fit([0.1, 0.2], ["a", "b"], ["x", "y"], FACTOR)
    assert Calibrator.from_json(calibrator.to_json()) == calibrator
