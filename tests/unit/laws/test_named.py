"""Laws by their text: parametrisation, conditional means, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from voxcast.errors import ConfigError
from voxcast.laws.families import NAMED, EmpiricalLaw, Law, parse_law
from voxcast.laws.predicted import PredictedLaw

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
