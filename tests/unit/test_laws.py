"""Laws of runtimes: by name, fitted, of predicted quantiles; intervals of means over subjects."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from voxcast.errors import ConfigError, TableError
from voxcast.laws.families import (
    FAMILIES,
    NAMED,
    EmpiricalLaw,
    Law,
    fit_lognormal,
    fit_truncated_normal,
    lognormal,
    parse_law,
    quantile_interval,
    truncated_normal,
)
from voxcast.laws.fits import modality, rank_fits, tied_by_aic, variation
from voxcast.laws.intervals import cautious_mean, clustered_mean, standard_error
from voxcast.laws.predicted import PredictedLaw

SCIPY = {"lognormal": stats.lognorm, "gamma": stats.gamma, "weibull": stats.weibull_min}
RNG = np.random.default_rng(1)
SAMPLES = {
    "wide": RNG.lognormal(5, 1.5, 60),
    "narrow": RNG.normal(1e5, 1, 30),
    "small": RNG.weibull(40, 100) * 1e-3,
    "exponential": RNG.exponential(3, 50),
    "heavy": RNG.pareto(1.1, 50) + 1,
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", SCIPY)
def test_no_other_parameters_are_likelier(family: str, sample: str) -> None:
    x = SAMPLES[sample]
    theirs = SCIPY[family].fit(x, floc=0)
    likelihood = float(np.sum(SCIPY[family].logpdf(x, *theirs)))
    assert FAMILIES[family](x).log_likelihood(x) >= likelihood - 2e-3


@pytest.mark.parametrize("sample", SAMPLES)
def test_truncated_normal_fit_maximises_the_likelihood(sample: str) -> None:
    x = SAMPLES[sample]
    law = fit_truncated_normal(x)
    best = law.log_likelihood(x)
    for mu in (0.9, 1.0, 1.1):
        for sigma in (0.9, 1.0, 1.1):
            other = truncated_normal(law.parameters["mu"] * mu, law.parameters["sigma"] * sigma)
            assert other.log_likelihood(x) <= best + 0.02


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-3, 1e7), min_size=2, max_size=20))
def test_any_sample_gives_finite_parameters(values: list[float]) -> None:
    if max(values) - min(values) <= 1e-9 * max(values):
        return
    for family, fit in FAMILIES.items():
        assert all(np.isfinite(list(fit(values).parameters.values())[:2])), family


@pytest.mark.parametrize("values", [[1.0, 0.0], [1.0, -2.0], [1.0, np.nan], [1.0, np.inf], [1.0]])
def test_invalid_samples_are_refused(values: list[float]) -> None:
    with pytest.raises(TableError):
        fit_lognormal(values)


TEXTS = [
    "exponential(1)", "weibull(1,0.5)", "gamma(2,2)", "lognormal(3,0.5)", "truncnormal(8,2,0,inf)",
    "truncnormal(8,2,1,9)", "pareto(1.5,3)", "uniform(10,20)", "beta(2,2)",
    "boundedpareto(1,20,2.1)", "boundedpareto(1,20,1)",
]  # fmt: skip
LAWS: list[Law] = [
    *map(parse_law, TEXTS),
    PredictedLaw.of([0.05, 0.25, 0.5, 0.9], [10, 20, 21, 50]),
]
LAW_IDS = [*TEXTS, "predicted"]


def mean_above(law: Law, t: float) -> float:
    """Integrate the quantile function, which no formula under test does."""
    level = float(law.cdf(t))
    jumps = [p for p in (0.05, 0.25, 0.5, 0.9) if level < p < 1]
    area = integrate.quad(law.quantile, level, 1, limit=400, points=jumps or None)[0]
    return area / (1 - level)


@pytest.mark.parametrize("law", LAWS, ids=LAW_IDS)
def test_mean_residual_life(law: Law) -> None:
    assert law.mean_above(0.0) == law.mean
    for p in (1e-3, 0.3, 0.6, 0.95, 0.999):
        t = float(law.quantile(p))
        assert law.mean_above(t) == pytest.approx(mean_above(law, t), rel=1e-4)
    last = [law.mean_above(float(law.quantile(1 - 2.0**-n))) for n in range(1, 45)]
    assert np.isfinite(last).all()
    assert (np.diff(last) >= -1e-9 * last[-1]).all()
    assert last[-1] <= law.support[1]


@pytest.mark.parametrize("law", LAWS, ids=LAW_IDS)
def test_density_distribution_and_moments_are_consistent(law: Law) -> None:
    low, high = (float(law.quantile(p)) for p in (0.01, 0.97))
    knots = [float(law.quantile(p)) for p in (0.05, 0.25, 0.5, 0.9)]
    area = integrate.quad(law.pdf, low, high, limit=400, points=knots)[0]
    assert area == pytest.approx(0.96, rel=1e-6)
    p = np.array([0.001, 0.2, 0.5, 0.8, 0.999])
    np.testing.assert_allclose(law.cdf(law.quantile(p)), p, rtol=1e-9)
    np.testing.assert_allclose(law.sf(law.quantile(p)), 1 - p, rtol=1e-6)
    start, end = law.support
    assert law.cdf(start) == 0
    assert law.sf(end) == pytest.approx(0)
    drawn = law.quantile(np.random.default_rng(1).random(40_000))
    assert ((drawn >= start) & (drawn <= end)).all()
    assert drawn.mean() == pytest.approx(law.mean, abs=6 * law.sd / 200)


def test_parameters_follow_the_order_of_the_papers() -> None:
    assert parse_law("weibull(1, 0.5)").mean == pytest.approx(2)
    assert parse_law("gamma(2,4)").mean == pytest.approx(0.5)  # a rate
    assert parse_law("truncnormal(100,4,0,inf)").sd == pytest.approx(2)  # of a variance
    assert parse_law("LogNormal(3,0.5)").quantile(0.5) == pytest.approx(np.exp(3))
    assert parse_law(" pareto( 1.5 , 3 ) ").support[0] == 1.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("normal(1,2)", "is not a known law; choose from exponential.rate., weibull"),
        ("lognormal(3,0.5) or so", "is not a known law"),
        ("open('x').read()", "is not a known law"),
        ("gamma(2)", r"gamma\(2\): needs numbers; write gamma\(shape,rate\)"),
        ("gamma()", "needs numbers"),
        ("gamma(2,two)", "needs numbers"),
        ("gamma(2,nan)", "is not a law of positive amounts"),
        ("uniform(0,inf)", "infinite mean"),
        ("exponential(0)", "infinite mean"),
        ("lognormal(3,-1)", "is not a law of positive amounts; parameters of scale"),
        ("uniform(20,10)", "is not a law of positive amounts"),
        ("uniform(-1,10)", "is not a law of positive amounts"),
        ("truncnormal(8,2,3,3)", "is not a law of positive amounts"),
        ("pareto(1,1)", "infinite mean"),
        ("weibull(1,0.001)", "infinite mean"),
        ("lognormal(800,1)", "infinite mean"),
        ("exponential(1e-320)", "infinite mean"),
    ],
)
def test_invalid_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_law(text)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*NAMED, "nothing"]), st.lists(st.floats(), max_size=4))
def test_any_numbers_give_a_law_or_an_error(name: str, numbers: list[float]) -> None:
    try:
        law = parse_law(f"{name}({','.join(map(str, numbers))})")
    except ConfigError:
        return
    assert 0 < law.mean < np.inf


def test_the_sample_as_a_law() -> None:
    law = EmpiricalLaw([3, 1, 2, 6])
    assert law.support == (1, 6)
    assert [law.mean_above(t) for t in (0, 1, 2.5, 6)] == [3, 11 / 3, 4.5, 6]
    assert not law.continuous


LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def test_lognormal_law_is_recovered_from_its_quantiles() -> None:
    true = lognormal(0.5, 20.0)
    law = PredictedLaw.of(LEVELS, true.quantile(LEVELS))
    at = np.array([0.5, 5, 20, 44, 300])
    np.testing.assert_allclose(law.sf(at), true.sf(at), rtol=1e-9)
    np.testing.assert_allclose(law.pdf(at), true.pdf(at), rtol=1e-9)
    p = [1e-9, 0.3, 1 - 1e-9]
    np.testing.assert_allclose(law.quantile(p), true.quantile(p), rtol=1e-9)
    assert (law.mean, law.sd) == pytest.approx((true.mean, true.sd))
    assert law.mean_above(60) == pytest.approx(true.mean_above(60))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=5, max_size=5))
def test_any_quantiles_are_met_and_the_law_is_monotone(logs: list[float]) -> None:
    values = np.exp(np.sort(logs))
    law = PredictedLaw.of(LEVELS, values)
    np.testing.assert_allclose(law.quantile(LEVELS), values, rtol=1e-4)
    x = np.geomspace(1e-6, 1e6, 400)
    assert (np.diff(law.cdf(x)) >= 0).all()
    assert (law.pdf(x) >= 0).all()
    assert law.mean_above(0.0) == pytest.approx(law.mean)
    assert values[0] / 1e3 < law.mean < 1e4 * values[-1]


def test_the_tail_is_that_of_the_line_from_the_middle() -> None:
    law = PredictedLaw.of([0.1, 0.5, 0.9, 0.95], [8, 10, 11, 18])
    far = 1 - 1e-5
    slope = np.log(18 / 10) / special.ndtri(0.95)
    assert law.quantile(far) == pytest.approx(10 * np.exp(slope * special.ndtri(far)), rel=1e-6)
    assert law.sf(1e300) == 0
    assert law.mean_above(1e300) == 1e300
    assert law.sf([-1.0, 0.0]).tolist() == [1, 1]
    assert law.pdf([-1.0, 0.0]).tolist() == [0, 0]


def test_residuals_scaled_to_many_images() -> None:
    residuals = np.random.default_rng(0).normal(0, 0.2, 2000)
    law = PredictedLaw.of_residuals(residuals)
    assert (law.mean, law.sd) == pytest.approx(
        (np.exp(residuals).mean(), np.exp(residuals).std()), rel=0.03
    )
    median, down, up = np.array([10.0, 200.0]), np.array([1.0, 0.5]), np.array([1.0, 2.0])
    both = law.scaled(median, down, up)
    each = [law.scaled(*scale) for scale in zip(median, down, up, strict=True)]
    np.testing.assert_allclose(both.moment(1), [single.mean for single in each])
    z = np.array([-2.0, 0.3, 4.0])
    np.testing.assert_allclose(both.at_score(z), [single.at_score(z) for single in each])
    assert each[1].quantile(0.9) / 200 == pytest.approx(float(law.quantile(0.9)) ** 2, rel=1e-3)


def test_equal_quantiles_are_one_amount() -> None:
    law = PredictedLaw.of([0.1, 0.5, 0.9], [5, 5, 5])
    assert law.mean == pytest.approx(5, rel=1e-5)
    assert law.sd < 1e-4
    assert PredictedLaw.of_residuals([0, 0, 0]).mean == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("levels", "values"),
    [
        ([0.5], [1]),
        ([0.1, 0.5], [1]),
        ([0.5, 0.1], [1, 2]),
        ([0, 0.5], [1, 2]),
        ([0.1, 0.5], [2, 1]),
        ([0.1, 0.5], [0, 1]),
        ([0.1, 0.5], [1, np.nan]),
    ],
)
def test_invalid_quantiles_are_refused(levels: list[float], values: list[float]) -> None:
    with pytest.raises(TableError, match="predicted quantiles"):
        PredictedLaw.of(levels, values)
    with pytest.raises(TableError, match="three finite residuals"):
        PredictedLaw.of_residuals([1, np.nan, 2])


def test_discontinuous_quantiles_have_finite_moments() -> None:
    law = PredictedLaw.of([0.1, 0.3, 0.31, 0.5, 0.9], [1e-3, 1.2e-3, 500.0, 550.0, 700.0])
    drawn = law.at_score(np.random.default_rng(0).standard_normal(400_000))
    assert law.mean == pytest.approx(drawn.mean(), rel=0.01)
    assert law.sd == pytest.approx(drawn.std(), rel=0.03)


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


def test_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    subjects = [str(n // 3) for n in range(18)]
    hits = 0
    for _ in range(400):
        shared = np.repeat(rng.normal(0, 1, 6), 3)
        hits += clustered_mean(5 + shared + rng.normal(0, 0.3, 18), subjects).covers(5)
    assert 0.9 < hits / 400 < 0.99


def share_above_zero(mean_of: object, samples: np.ndarray) -> float:
    """Return the share of samples, shape (samples, n_subjects), whose interval is above zero."""
    subjects = [str(n) for n in range(samples.shape[1])]
    return float(np.mean([mean_of(sample, subjects).low > 0 for sample in samples]))


@pytest.mark.parametrize("subjects", [4, 6, 9, 15, 30])
def test_skewed_differences_without_a_gain_are_seldom_taken_for_one(subjects: int) -> None:
    rng = np.random.default_rng(subjects)
    sigma = 0.5  # of the logarithm: a skewness of 1.75
    samples = np.exp(sigma**2 / 2) - rng.lognormal(0, sigma, (500, subjects))  # of mean zero
    assert share_above_zero(clustered_mean, samples) > 0.035
    assert share_above_zero(cautious_mean, samples) <= 0.03
    rare = np.where(rng.random((500, subjects)) < 0.2, -4.0, 1.0) + rng.normal(0, 1, samples.shape)
    assert share_above_zero(clustered_mean, rare) > 0.04
    assert share_above_zero(cautious_mean, rare) <= 0.04


def test_a_gain_of_thirty_subjects_is_seen_on_one_side_only() -> None:
    samples = 0.2 + np.random.default_rng(0).normal(0, 0.25, (300, 30))
    assert share_above_zero(cautious_mean, samples) > 0.85
    assert share_above_zero(cautious_mean, -samples) == 0
    up, down = (cautious_mean(s, [*map(str, range(30))]) for s in (samples[0], -samples[0]))
    assert (up.low, up.value, up.high) == pytest.approx((-down.high, -down.value, -down.low))


def test_a_weight_does_not_change_with_its_unit() -> None:
    values, subjects = [1.0, 0.5, -0.2, 0.7], ["a", "a", "b", "c"]
    weights = np.array([0.5, 0.5, 0.25, 1.0])
    for mean_of in (cautious_mean, clustered_mean):
        first, second = (mean_of(values, subjects, w) for w in (weights, 8 * weights))
        assert (first.low, first.high) == pytest.approx((second.low, second.high))
    assert standard_error(values, subjects, weights) == pytest.approx(
        standard_error(values, subjects, 8 * weights)
    )
    assert math.isnan(standard_error([1.0, 2.0], ["a", "a"]))
