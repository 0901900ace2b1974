"""Families against SciPy's own likelihoods, and on samples that break careless fits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from voxcast.errors import TableError
from voxcast.laws.families import (
    FAMILIES,
    fit_lognormal,
    fit_truncated_normal,
    normal,
    truncated_normal,
)

SCIPY = {"lognormal": stats.lognorm, "gamma": stats.gamma, "weibull": stats.weibull_min}
LAWS = [
    normal(100, 20),
    truncated_normal(10, 20),
    truncated_normal(122.863, 13.681, 0, 190),
    *(fit(np.random.default_rng(3).lognormal(4, 0.4, 60)) for fit in FAMILIES.values()),
]
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
