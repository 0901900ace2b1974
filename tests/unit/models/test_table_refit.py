"""A model of a sample is fitted on all rows, if there is time."""

import numpy as np
import pandas as pd
import pytest

from voxcast.features.any_table import choose_columns
from voxcast.models.table_fitting import fit_on_all, refitted
from voxcast.models.table_model import TableModel
from voxcast.models.table_validation import sampled, validation_of


def runs(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f"x{n}": rng.normal(size=rows) for n in range(6)})
    effect = table["x0"] * table["x1"] + np.sin(3 * table["x2"]) + 0.5 * (table["x3"] > 0)
    return table.assign(seconds=np.exp(effect + rng.normal(0, 0.1, rows)))


@pytest.mark.parametrize("families", [("median", "boosted"), ("median", "boosted", "extra_trees")])
def test_all_rows_make_the_error_smaller_and_keep_the_bounds_calibrated(
    families: tuple[str, ...], tmp_path
) -> None:
    table, unseen = runs(4000, 0), runs(1000, 1)
    columns = choose_columns(table, "seconds")
    all_rows = validation_of(table, columns, 0)
    small, leaderboard = fit_on_all(sampled(all_rows, 400), columns, families, trials=1)
    model = refitted(small, all_rows, leaderboard.params[leaderboard.best], left_s=600)
    errors = [
        np.abs(np.log(m.predict(unseen)["prediction"] / unseen["seconds"])).mean()
        for m in (small, model)
    ]
    assert errors[1] < 0.8 * errors[0]
    predictions = model.predict(unseen)
    inside = predictions["calibrated"].to_numpy()
    assert inside.mean() > small.predict(unseen)["calibrated"].mean()
    assert (unseen["seconds"] <= predictions["upper"])[inside].mean() > 0.88
    model.save(tmp_path)
    pd.testing.assert_frame_equal(TableModel.load(tmp_path).predict(unseen), predictions)


def test_without_time_the_model_stays_that_of_the_sample() -> None:
    table = runs(300, 0)
    columns = choose_columns(table, "seconds")
    all_rows = validation_of(table, columns, 0)
    small, leaderboard = fit_on_all(sampled(all_rows, 100), columns, ("median", "ridge"), trials=1)
    params = leaderboard.params[leaderboard.best]
    assert refitted(small, all_rows, params, left_s=0) is small
