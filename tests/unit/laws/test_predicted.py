"""Laws from predicted quantiles: exact at the quantiles, lognormal where these are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from voxcast.errors import TableError
from voxcast.laws.families import lognormal
from voxcast.laws.predicted import PredictedLaw

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
