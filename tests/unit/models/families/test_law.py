"""The law of voxels: planted coefficients are found, in spite of outliers, and it continues."""

import numpy as np
import pytest

from voxcast.models.families.regressors import AdditiveLaw

COLUMNS = ["allocation.log2_cpus", "content.foreground_megavoxels", "header.megavoxels"]


def rows(count: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return columns, and seconds of 5 + 2 voxels + 8 voxels of the mask, less with more CPUs."""
    rng = np.random.default_rng(seed)
    cpus, voxels = rng.integers(0, 3, count), rng.uniform(0.5, 20, count)
    mask = voxels * rng.uniform(0.1, 0.5, count)
    seconds = (5 + 8 * mask + 2 * voxels) * np.exp(-0.3 * cpus)
    return np.column_stack([cpus, mask, voxels]), seconds * rng.lognormal(0, 0.02, count)


@pytest.mark.parametrize("outliers", [0, 20])
def test_planted_coefficients_are_found_in_spite_of_outliers(outliers: int) -> None:
    x, y = rows()
    y[:outliers] *= 4
    law = AdditiveLaw(COLUMNS).fit(x, y).law_
    assert law.constant == pytest.approx(5, rel=0.1)
    assert law.weights == pytest.approx([8, 2], rel=0.1)
    assert law.powers == pytest.approx([-0.3], abs=0.02)
    far = np.array([[0.0, 100.0, 500.0]])
    assert law.predict(far) == pytest.approx([5 + 800 + 1000], rel=0.05)


def test_no_coefficient_is_negative_and_columns_that_lack_are_left_out() -> None:
    x, y = rows()
    falling = AdditiveLaw(COLUMNS).fit(x, 50 - x[:, 2]).law_
    assert min(falling.constant, *falling.weights) >= 0
    constant = AdditiveLaw(["parameter.steps"]).fit(x[:, :1], y)
    assert constant.law_.predict(x[:5, :1]) == pytest.approx(np.full(5, constant.law_.constant))
    assert y.min() < constant.law_.constant < y.max()


def test_a_size_of_zero_has_a_finite_answer() -> None:
    x, y = rows(20)
    x[0], y = 0.0, x[:, 2]
    law = AdditiveLaw(COLUMNS).fit(x, np.maximum(y, 1e-6)).law_
    assert np.isfinite(law.predict(x)).all()
