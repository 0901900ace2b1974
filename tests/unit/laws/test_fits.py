"""Ranking of families, honest and flattered p, quantiles without a family, dip and modes."""

import math

import numpy as np
import pytest
from diptest import diptest
from scipy import stats
from scipy.optimize import linprog

from voxcast.errors import TableError
from voxcast.laws import empirical
from voxcast.laws.families import lognormal
from voxcast.laws.fits import modality, rank_fits, tied_by_aic, variation


def test_the_true_family_comes_first() -> None:
    x = lognormal(0.8, 60.0).sample(300, seed=0)
    fits = rank_fits(x)
    assert fits[0].family == tied_by_aic(fits)[0] == "lognormal"
    assert [fit.ks for fit in fits] == sorted(fit.ks for fit in fits)
    theirs = stats.kstest(x, fits[0].law.cdf)
    assert (fits[0].ks, fits[0].ks_p) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_indistinguishable_families_are_tied() -> None:
    fits = rank_fits(np.random.default_rng(0).normal(100, 3, 30))
    assert {"normal", "truncated_normal", "lognormal", "gamma"} <= set(tied_by_aic(fits))
    assert [fit.family for fit in fits].index("normal") < [fit.family for fit in fits].index(
        "truncated_normal"
    )


def test_the_naive_p_value_exceeds_the_bootstrap_p_value() -> None:
    x = lognormal(0.3, 60.0).sample(40, seed=4)
    fits = {fit.family: fit for fit in rank_fits(x, bootstrap=40, seed=1)}
    assert fits["lognormal"].ks_p > (fits["lognormal"].ks_p_bootstrap or 1)
    assert list(fits.values()) == rank_fits(x, bootstrap=40, seed=1)


def test_the_bootstrap_p_value_is_uniform_under_the_true_family() -> None:
    p = [
        rank_fits(lognormal(0.5, 10.0).sample(20, seed=i), ["lognormal"], 40, i)[0].ks_p_bootstrap
        for i in range(40)
    ]
    assert stats.kstest(p, "uniform").pvalue > 0.01


@pytest.mark.parametrize("values", [[5.0] * 9, [1.0, 2.0], [1.0, 2.0, 3.0, 4.0, -1.0], []])
def test_samples_without_variation_are_refused(values: list[float]) -> None:
    with pytest.raises(TableError):
        rank_fits(values)


def test_quantile_intervals_have_their_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    true = math.log(10)  # the 90 % quantile of the exponential law
    held = 0
    for _ in range(400):
        at = empirical.quantile_interval(rng.exponential(1, 60), 0.9)
        assert at.confidence >= 0.95
        held += (at.low or -1) <= true and (at.high is None or true <= at.high)
    assert held >= 370


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (5, 0.5), (20, 0.95), (58, 0.95), (200, 0.05)])
def test_quantile_intervals_against_the_binomial(n: int, p: float) -> None:
    at = empirical.quantile_interval(np.arange(1, n + 1), p)
    low = 0 if at.low is None else int(at.low)
    high = n + 1 if at.high is None else int(at.high)
    below = stats.binom.cdf(high - 1, n, p) - (stats.binom.cdf(low - 1, n, p) if low else 0)
    assert at.confidence == pytest.approx(below)
    if at.low is not None:  # the next run would break the tail
        assert stats.binom.cdf(low, n, p) > 0.025 >= stats.binom.cdf(low - 1, n, p)


def test_the_sample_as_a_law() -> None:
    law = empirical.EmpiricalLaw([30, 10, 20, 20])
    np.testing.assert_array_equal(law.cdf([5, 10, 20, 30]), [0, 0.25, 0.75, 1])
    np.testing.assert_array_equal(law.quantile([0.0, 0.25, 0.26, 0.75, 1]), [10, 10, 20, 20, 30])
    assert (law.mean, law.sd) == (20, pytest.approx(math.sqrt(50)))


def test_constancy() -> None:
    assert empirical.constancy([50.0e9, 50.3e9, 50.1e9]).constant
    assert not empirical.constancy([50.0e9, 52.0e9]).constant


def brute_dip(x: np.ndarray) -> float:
    """Return the distance to the nearest law of one mode, by a linear programme for every mode."""
    n, best = len(x), 1.0
    for mode in range(n):
        width = n + 2  # left limits at the points, value at the mode, distance

        def row(**at: float) -> np.ndarray:
            line = np.zeros(n + 2)
            for name, value in at.items():
                line[int(name[1:])] += value
            return line

        right = [n if i == mode else i for i in range(n)]
        rows, bounds = [row(**{f"v{mode}": 1, f"v{n}": -1})], [0.0]
        for i in range(n):
            for v, share in ((right[i], (i + 1) / n), (i, i / n)):
                rows += [
                    row(**{f"v{v}": 1, f"v{n + 1}": -1}),
                    row(**{f"v{v}": -1, f"v{n + 1}": -1}),
                ]
                bounds += [share, -share]
        slopes = [
            (row(**{f"v{i + 1}": 1}) - row(**{f"v{right[i]}": 1})) / (x[i + 1] - x[i])
            for i in range(n - 1)
        ]
        for i in range(n - 2):
            if i + 2 <= mode:
                rows.append(slopes[i] - slopes[i + 1])
                bounds.append(0)
            if i >= mode:
                rows.append(slopes[i + 1] - slopes[i])
                bounds.append(0)
        rows += [-slope for slope in slopes]
        bounds += [0.0] * len(slopes)
        cost = row(**{f"v{n + 1}": 1})
        programme = linprog(cost, np.array(rows), bounds, bounds=[(0, 1)] * width)
        best = min(best, float(programme.fun)) if programme.status == 0 else best
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_dip_is_the_distance_to_the_nearest_law_of_one_mode(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 13))
    x = (
        rng.random(n)
        if seed % 2
        else np.r_[rng.normal(0, 1, n // 2), rng.normal(6, 1, n - n // 2)]
    )
    assert diptest(x)[0] == pytest.approx(brute_dip(np.sort(x)), abs=1e-7)


@pytest.mark.parametrize(
    ("seed", "one_mode", "two_modes"),
    [
        (0, 0.0491949965529682, 0.08407925416689208),
        (1, 0.03602530134816241, 0.12110575171224398),
        (5, 0.027614379655095514, 0.08256638406781223),
    ],
)
def test_the_dip_of_a_sample_does_not_change(seed: int, one_mode: float, two_modes: float) -> None:
    skewed = np.random.default_rng(seed).lognormal(0, 1, 40 + seed)
    short = np.random.default_rng(seed).normal(10, 1, 30)
    both = np.r_[short, np.random.default_rng(seed + 9).normal(15, 1, 25)]
    assert modality(skewed).dip == pytest.approx(one_mode, abs=1e-12)
    assert modality(both).dip == pytest.approx(two_modes, abs=1e-12)
    assert modality(both).dip_p < 0.05 < modality(skewed).dip_p


def test_two_groups_are_found_and_located() -> None:
    x = np.r_[lognormal(0.05, 65).sample(30, 0), lognormal(0.12, 125).sample(90, 1)]
    result = modality(x)
    assert result.verdict == "two"
    assert [g.median for g in result.groups] == pytest.approx([65, 125], rel=0.03)
    assert result.groups[0].weight == pytest.approx(0.25, abs=0.03)
    assert result == modality(x)


def test_a_skewed_sample_is_not_two_groups() -> None:
    wrong = sum(modality(lognormal(0.8, 60).sample(60, i)).verdict != "one" for i in range(8))
    assert wrong <= 1


@pytest.mark.parametrize("values", [[7.0], [7.0] * 30, [60.0] * 10 + [61.0] * 12 + [62.0] * 9])
def test_few_equal_or_rounded_runs_are_not_two_groups(values: list[float]) -> None:
    assert modality(values).verdict != "two"


def test_variation_of_any_group_is_json() -> None:
    import json

    for values in ([5.0], [5.0] * 6, [5.0, 6.0, 7.0, 8.0, 9.0], list(range(1, 40))):
        text = json.dumps(variation(values, bootstrap=5).as_json(), allow_nan=False)
        assert json.loads(text)["n"] == len(values)
