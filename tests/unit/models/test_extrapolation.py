"""What answers where the data end is chosen, and calibrated, where the data end."""

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.models.calibrated_model import calibrate
from voxcast.models.extrapolation import choose, fit_extrapolator
from voxcast.models.metrics import binomial_interval
from voxcast.models.outer_subjects import MINIMUM_SUBJECTS
from voxcast.models.query import queries_of
from voxcast.models.selection.cross_validation import Validation

PLAIN = {"alpha": 1e-3, "columns": "sizes", "scale": "relative", "products": False}
GREEDY = {"alpha": 1e-3, "columns": "all", "scale": "log", "products": True}
SIZE = "content.foreground_megavoxels"


def test_a_model_of_sizes_is_preferred_to_one_of_all_features() -> None:
    table = planted.table(40)
    noise = np.random.default_rng(1)
    by_subject = {name: noise.normal(size=12) for name in sorted(set(table["subject"]))}
    for k in range(12):
        table[f"content.nothing_{k}"] = [by_subject[name][k] for name in table["subject"]]
    validation = Validation(table, None, 3, 0)
    assert choose(validation, {"median": {}, "ridge": GREEDY}) == (
        "ridge",
        {**PLAIN, "alpha": 0.1},
    )
    assert choose(validation, {"median": {}}) is None
    calibrated = fit_extrapolator(validation, {"ridge": GREEDY}, 1.5)
    assert calibrated is not None
    assert set(calibrated.calibrators) == set(validation.targets)


def scattered(subjects: int, seed: int) -> pd.DataFrame:
    """Return runs whose CPU time scatters more the larger the foreground is."""
    table = planted.table(subjects, seed=seed, noise=0.03)
    rng = np.random.default_rng(seed)
    own = {name: rng.normal() for name in sorted(set(table["subject"]))}
    size = table[SIZE] / 0.4
    factor = np.exp(0.08 * size * table["subject"].map(own))
    return table.assign(cpu_s=table["cpu_s"] * factor, runtime_s=table["runtime_s"] * factor)


@pytest.mark.parametrize("quantile", [0.8, 0.95])
def test_bounds_hold_beyond_the_largest_subjects_where_those_of_all_subjects_do_not(
    quantile: float,
) -> None:
    above = {"of all": 0, "of the outermost": 0}
    subjects = 0
    for seed in range(6):
        table = scattered(120, seed)
        largest = table.groupby("subject")[SIZE].max().nlargest(25).index
        is_far = table["subject"].isin(largest)
        validation = Validation(table[~is_far].reset_index(drop=True), None, 4, 0)
        outer = fit_extrapolator(validation, {"ridge": PLAIN}, 1.5)
        assert outer is not None
        recipe = choose(validation, {"ridge": PLAIN})
        assert recipe is not None
        of_all = calibrate(
            outer.model, validation.table, validation.out_of_fold(*recipe, "volume"), 1.5
        )
        held_out = table[is_far]
        queries = queries_of(held_out)
        for name, model in (("of all", of_all), ("of the outermost", outer)):
            upper = model.quantiles(queries, 1 - quantile, quantile)[0][:, 0, 2]
            is_above = held_out["cpu_s"].to_numpy() > upper
            above[name] += held_out["subject"][is_above].nunique()
        subjects += len(largest)
    stated = 1 - quantile
    # All of the second interval lies above what is stated, and none of the first.
    assert binomial_interval(above["of all"], subjects)[0] > stated
    assert binomial_interval(above["of the outermost"], subjects)[0] <= stated


def test_with_few_subjects_the_bounds_are_those_of_all_and_wider_where_nothing_is_known() -> None:
    table = planted.table(MINIMUM_SUBJECTS - 1)
    outer = fit_extrapolator(Validation(table, None, 3, 0), {"ridge": PLAIN}, 1.5)
    assert outer is not None
    query = queries_of(table)[0]
    unknown = type(query)(query.features | {"device": "gpu"}, query.cpus)
    (within, beyond), calibrated = outer.quantiles([query, unknown], 0.05, 0.95)
    assert beyond[:, 2] / beyond[:, 1] == pytest.approx(10 * within[:, 2] / within[:, 1], rel=0.2)
    assert not calibrated.any()


def test_an_extrapolator_is_read_as_it_was_written(tmp_path) -> None:
    table = scattered(40, 0)
    outer = fit_extrapolator(Validation(table, None, 3, 0), {"ridge": PLAIN}, 1.5)
    assert outer is not None
    queries = queries_of(table.assign(**{SIZE: 3 * table[SIZE]}))
    read = type(outer).load(outer.save(tmp_path), tmp_path)
    assert read.sides == outer.sides
    assert outer.sides
    assert (read.quantiles(queries, 0.1, 0.9)[0] == outer.quantiles(queries, 0.1, 0.9)[0]).all()
