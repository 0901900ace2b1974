"""Ranking of families, honest and flattered p, quantiles without a family, dip and modes."""

import math

import numpy as np
import pytest
from scipy import stats

from voxcast.errors import TableError
from voxcast.laws.families import lognormal, quantile_interval
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


@pytest.mark.parametrize("values", [[5.0] * 9, [1.0, 2.0], [1.0, 2.0, 3.0, 4.0, -1.0], []])
def test_samples_without_variation_are_refused(values: list[float]) -> None:
    with pytest.raises(TableError):
        rank_fits(values)


def test_quantile_intervals_have_their_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    true = math.log(10)  # the 90 % quantile of the exponential law
    held = 0
    for _ in range(400):
        at = quantile_interval(rng.exponential(1, 60), 0.9)
        assert at.confidence >= 0.95
        held += (at.low or -1) <= true and (at.high is None or true <= at.high)
    assert held >= 370


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (5, 0.5), (20, 0.95), (58, 0.95), (200, 0.05)])
def test_quantile_intervals_against_the_binomial(n: int, p: float) -> None:
    at = quantile_interval(np.arange(1, n + 1), p)
    low = 0 if at.low is None else int(at.low)
    high = n + 1 if at.high is None else int(at.high)
    below = stats.binom.cdf(high - 1, n, p) - (stats.binom.cdf(low - 1, n, p) if low else 0)
    assert at.confidence == pytest.approx(below)
    if at.low is not None:  # the next run would break the tail
        assert stats.binom.cdf(low, n, p) > 0.025 >= stats.binom.cdf(low - 1, n, p)


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
