"""Stated risk: the rank rule, its coverage, and a cross-check against an independent library."""

import itertools
import math
from collections.abc import Collection, Sequence

import numpy as np
import pytest
from crepes import ConformalRegressor
from hypothesis import given
from hypothesis import strategies as st

from voxcast.models.conformal import BoundEvidence, Calibrator
from voxcast.models.metrics import binomial_interval, scores, under_requests

FACTOR = 1.5


def calibrator_of(
    values: Sequence[float] | np.ndarray,
    subjects: Sequence[str] | None = None,
    censored: Collection[str] = (),
    factor: float = FACTOR,
) -> Calibrator:
    logs = np.asarray(values, dtype=float)
    names = [str(n) for n in range(len(logs))] if subjects is None else subjects
    return Calibrator.fit(logs, np.zeros(len(logs)), names, factor, censored)


def upper(values: Calibrator, quantile: float) -> float:
    return float(values.upper(quantile))


def offsets(calibrator: Calibrator, low: float, high: float) -> tuple[float, float]:
    bounds = calibrator.bounds(np.zeros(1), low, high)
    return float(bounds[0][0]), float(bounds[1][0])


@pytest.mark.parametrize(("level", "needed"), [(0.95, 19), (0.9, 9), (0.8, 4), (0.99, 99)])
def test_the_number_of_subjects_that_a_level_needs(level: float, needed: int) -> None:
    assert math.ceil(1 / (1 - level) - 1e-9) - 1 == needed
    assert [calibrator_of(np.zeros(n)).missing(level) for n in (needed, needed - 1, 1)] == [
        0, 1, needed - 1,
    ]  # fmt: skip


@pytest.mark.parametrize("n", [20, 57, 200])
def test_the_upper_bound_is_that_of_crepes(n: int) -> None:
    residuals = np.random.default_rng(n).normal(size=n)
    # A two-sided interval of confidence 1 - 2α has the one-sided bound of level 1 - α above it,
    # when the residuals are given with their sign.
    peer = ConformalRegressor().fit(residuals, sigmas=None)
    rank = math.ceil((n + 1) * 0.9 - 1e-9)
    assert upper(calibrator_of(residuals), 0.9) == np.sort(residuals)[rank - 1]
    absolute = peer.predict_int(np.zeros(1), confidence=0.9)[0, 1]
    assert upper(calibrator_of(np.abs(residuals)), 0.9) == pytest.approx(absolute)


def test_new_subjects_have_the_nominal_coverage() -> None:
    rng = np.random.default_rng(1)
    hits = total = 0
    for _ in range(400):
        calibration = np.repeat(rng.normal(size=40), 3) + 0.1 * rng.normal(size=120)
        subjects = np.repeat(np.arange(40), 3).astype(str)
        bound = upper(calibrator_of(calibration, subjects.tolist()), 0.9)
        new = rng.normal(size=20)[:, None] + 0.1 * rng.normal(size=(20, 3))
        hits += int((new.max(axis=1) <= bound).sum())
        total += 20
    # 8,000 subjects in 400 groups: the standard error is below 0.6 %
    assert hits / total == pytest.approx(0.9, abs=0.02)
    assert hits / total > 0.885


def test_one_subject_counts_once_however_often_it_ran() -> None:
    few = calibrator_of([1.0, 2.0], ["a", "b"])
    many = calibrator_of([1.0] * 50 + [2.0], ["a"] * 50 + ["b"])
    assert few == many


def test_too_few_subjects_fall_back_to_the_stated_multiple() -> None:
    assert upper(calibrator_of([-0.1, 0.2, 0.4], factor=2.0), 0.95) == pytest.approx(0.8)
    # A model that was always too high may be too low for the next subject.
    assert upper(calibrator_of([-0.3, -0.2, -0.1], factor=2.0), 0.95) == pytest.approx(0.6)
    assert calibrator_of([-0.3, 0.2, 0.4], factor=2.0).lower(0.05) == pytest.approx(-0.8)


@pytest.mark.parametrize(("subjects", "times"), [(1, 2.0), (2, 1.1), (6, 1.1)])
def test_bounds_that_are_not_calibrated_have_a_margin_although_no_error_was_seen(
    subjects: int, times: float
) -> None:
    calibrator = calibrator_of([0.0] * subjects)
    low, high = offsets(calibrator, 0.05, 0.95)
    assert np.exp([low, high]) == pytest.approx([1 / times, times])
    assert calibrator.subjects == subjects


@pytest.mark.parametrize("censored", [0, 1, 3])
@pytest.mark.parametrize("subjects", [1, 2, 3, 5, 9, 10, 12, 18, 19, 40, 99])
def test_bounds_never_cross_those_of_a_smaller_probability(subjects: int, censored: int) -> None:
    rng = np.random.default_rng(subjects)
    names = [str(n) for n in range(subjects)]
    stopped = [f"stopped {n}" for n in range(censored)]
    for shift in (-0.3, 0.0, 0.3):
        logs = shift + rng.normal(0, 0.1, subjects)
        calibrator = Calibrator.fit(logs, np.zeros(subjects), names, FACTOR, stopped)
        bounds = [
            calibrator.bounds(np.zeros(3), 1 - quantile, quantile)
            for quantile in np.arange(0.505, 0.999, 0.005)
        ]
        for inner, outer in itertools.pairwise(bounds):
            assert (outer[1] >= inner[1]).all()
            assert (outer[0] <= inner[0]).all()


@pytest.mark.parametrize("best", [(), (-0.1,)])
def test_without_a_subject_the_bound_is_a_factor_of_two_and_not_calibrated(
    best: tuple[float, ...],
) -> None:
    bounds = Calibrator((), best).bounds(np.zeros(2), 0.05, 0.95)
    assert np.exp(bounds[1]) == pytest.approx([2, 2])
    assert np.exp(bounds[0]) == pytest.approx([0.5, 0.5])
    assert not bounds[2].any()


@pytest.mark.parametrize("subjects", [3, 30])
def test_a_bound_reaches_ten_times_what_was_measured_and_is_then_not_calibrated(
    subjects: int,
) -> None:
    logs = np.log(np.linspace(50, 200, subjects))
    names = [str(n) for n in range(subjects)]
    medians = np.log([100.0, 5000.0])
    poor = Calibrator.fit(logs, logs - np.linspace(-500, 500, subjects), names, FACTOR)
    bounds = poor.bounds(medians, 0.05, 0.95)
    assert np.exp(bounds[1]) == pytest.approx([2000, 50_000])
    assert np.exp(bounds[0]) == pytest.approx([5, 5])
    assert not bounds[2].any()
    good = Calibrator.fit(logs, logs - np.linspace(-0.1, 0.1, subjects), names, FACTOR)
    narrow = good.bounds(medians, 0.05, 0.95)
    assert narrow[2].all() == (subjects == 30)


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=60),
    st.floats(0.55, 0.99),
)
def test_quantiles_never_cross(values: list[float], quantile: float) -> None:
    subjects = [str(n % 7) for n in range(len(values))]
    calibrator = calibrator_of(values, subjects)
    low, high = offsets(calibrator, 1 - quantile, quantile)
    assert low <= 0 <= high


def test_a_censored_subject_counts_as_above_any_bound() -> None:
    residuals = np.linspace(0, 1, 40)
    free, ended = calibrator_of(residuals), calibrator_of(residuals, censored=["0", "new"])
    assert ended.censored == 2
    assert upper(ended, 0.9) > upper(free, 0.9)
    # 41 subjects, rank 38 of whom 39 have a residual; two more above any would take the promise.
    assert ended.missing(0.9) == 0
    # Six censored: 7 × 0.9 / 0.1 = 63 subjects with a residual are needed, and 39 have one.
    assert calibrator_of(residuals, censored=list("0abcde")).missing(0.9) == 63 - 39


@pytest.mark.parametrize("complete", [3, 9, 19, 34, 200])
@pytest.mark.parametrize("stopped", [0, 1, 2, 6, 21])
def test_the_highest_quantile_is_calibrated_and_the_next_is_not(
    complete: int, stopped: int
) -> None:
    calibrator_of = Calibrator((0.0,) * complete, (0.0,) * complete, censored=stopped)
    highest = BoundEvidence.of(calibrator_of, 0.9, "groups").highest_quantile
    assert highest == 0 or calibrator_of.missing(highest) == 0
    assert highest + 0.01 >= 1 or calibrator_of.missing(highest + 0.01) > 0
    for quantile in (0.6, 0.9, 0.99):
        evidence = BoundEvidence.of(calibrator_of, quantile, "groups")
        more = Calibrator((0.0,) * (complete + evidence.missing), (), censored=stopped)
        assert more.missing(quantile) == 0
        assert bool(evidence.reason) == (quantile > highest)


def test_few_groups_and_stopped_runs_are_told_apart() -> None:
    few = BoundEvidence.of(Calibrator((0.0,) * 5, (0.0,) * 5), 0.9, "groups")
    assert (few.reason, few.missing) == ("too few groups", 4)
    assert few.advice() == (
        "add 4 groups in which all runs completed, or take --quantile 0.83, the highest that holds"
    )
    stopped = BoundEvidence.of(Calibrator((0.0,) * 8, (0.0,) * 8, censored=1), 0.9, "rows")
    assert stopped.reason == "too many stopped runs"
    assert stopped.text().startswith("1 of 9 runs was stopped before it completed and counts as")
    assert stopped.advice().startswith("run the stopped jobs again with a higher limit and")
    none = BoundEvidence.of(Calibrator((0.0,) * 9, (0.0,) * 9), 0.9, "rows")
    assert (none.reason, none.text()) == ("", "9 rows calibrate a 90 % bound")
    assert (
        "--quantile" not in BoundEvidence.of(Calibrator((), (), censored=3), 0.9, "rows").advice()
    )


def test_scores_by_hand() -> None:
    metrics = scores([10, 10, 10, 10], [8, 10, 12, 15])
    assert metrics["mape"] == pytest.approx(22.5)
    assert metrics["upp"] == 25  # equality counts for neither side
    assert metrics["ov_mape"] == pytest.approx(35)
    assert scores([1, 2], [0.5, 1])["ov_mape"] == 0


def test_under_requests_count_subjects_not_runs() -> None:
    exceeded, n, interval = under_requests([5, 5, 1], [1, 1, 1], ["a", "a", "b"])
    assert (exceeded, n) == (1, 2)
    assert interval == binomial_interval(1, 2)
