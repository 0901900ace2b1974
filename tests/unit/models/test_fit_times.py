"""Times of fits: measured on samples, and turned into a number of rows."""

import numpy as np
import pandas as pd
import pytest

from voxcast.models.fit_times import ENOUGH_ROWS, MIN_ROWS, FitTimes, measure


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 100, 3000)
    names = [f"s{n}" for n in range(3000)]
    return pd.DataFrame({"column.size": size, "subject": names, "target": 3 * size})


def test_families_that_are_too_slow_have_no_time(table: pd.DataFrame) -> None:
    fit_times = measure(table, "target", ("median", "ridge", "extra_trees"), budget_s=600)
    assert set(fit_times.lines) == {"median", "ridge", "extra_trees"}
    assert fit_times.of("extra_trees", 20_000) >= fit_times.of("extra_trees", 100) > 0
    assert measure(table, "target", ("median", "extra_trees"), budget_s=0).lines == {}


def test_the_number_of_rows_fits_the_budget() -> None:
    names = ["median", "ridge", "extra_trees"]
    fit_times = FitTimes({"median": (0.0, 0.0), "ridge": (0.0, 1e-4), "extra_trees": (0.1, 9e-4)})
    assert fit_times.affordable(20_000, fits=9, budget_s=1000) == (names, 20_000)
    families, rows = fit_times.affordable(20_000, fits=9, budget_s=40)
    assert families == names
    assert 9 * (0.1 + 1e-3 * rows) <= 40 < 9 * (0.1 + 1e-3 * rows / 0.8)
    assert fit_times.affordable(20_000, fits=9, budget_s=0.1, first=names) == (names, MIN_ROWS)
    assert fit_times.affordable(60, fits=9, budget_s=0.1, first=names) == (names, 60)
    assert FitTimes({}).affordable(20_000, fits=9, budget_s=1e9) == ([], MIN_ROWS)


def test_a_slow_family_does_not_cost_the_others_their_rows() -> None:
    fit_times = FitTimes(
        {
            "median": (0.0, 0.0),
            "extra_trees": (0.1, 9e-4),
            "boosted": (0.0, 2e-4),
            "mlp": (0.0, 1e-5),
        }
    )
    families, rows = fit_times.affordable(20_000, fits=9, budget_s=9, first=("boosted",))
    assert families == ["boosted", "median", "mlp"]
    assert ENOUGH_ROWS < rows < 20_000
