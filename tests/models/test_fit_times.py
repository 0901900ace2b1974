"""Times of fits: measured on samples, and turned into a number of rows."""

import numpy as np
import pandas as pd
import pytest

from voxcast.models.fit_times import MIN_ROWS, FitTimes, measure


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 100, 3000)
    names = [f"s{n}" for n in range(3000)]
    return pd.DataFrame({"column.size": size, "subject": names, "target": 3 * size})


def test_families_that_are_too_slow_have_no_time(table: pd.DataFrame) -> None:
    fit_times = measure(table, "target", ("median", "ridge", "forest"), budget_s=600)
    assert set(fit_times.lines) == {"median", "ridge", "forest"}
    assert fit_times.of("forest", 20_000) >= fit_times.of("forest", 100) > 0
    assert measure(table, "target", ("median", "forest"), budget_s=0).lines == {}


def test_the_number_of_rows_fits_the_budget() -> None:
    fit_times = FitTimes({"median": (0.0, 0.0), "ridge": (0.0, 1e-4), "forest": (0.1, 9e-4)})
    assert fit_times.affordable_rows(20_000, fits=9, budget_s=1000) == 20_000
    rows = fit_times.affordable_rows(20_000, fits=9, budget_s=40)
    assert 9 * (0.1 + 1e-3 * rows) <= 40 < 9 * (0.1 + 1e-3 * rows / 0.8)
    assert fit_times.affordable_rows(20_000, fits=9, budget_s=0.1) == MIN_ROWS
    assert fit_times.affordable_rows(60, fits=9, budget_s=0.1) == 60
    assert FitTimes({}).affordable_rows(20_000, fits=9, budget_s=1e9) == MIN_ROWS
