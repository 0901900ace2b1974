"""Combinations of two numbers: which the training rows cover, and which they do not."""

import json

import numpy as np
import pandas as pd
import pytest

import planted
from public_tables import KINDS
from voxcast.features.any_table import choose_columns, feature_table, learnable
from voxcast.features.rows import combination, rows_of
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, Forecaster
from voxcast.models.out_of_range import TrainingRange, paths_of
from voxcast.models.point_model import Query, queries_of
from voxcast.models.table_model import groups_of

ROWS = 400


def sizes(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.exp(rng.uniform(0, np.log(1e4), rows))


def product_runs(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return runs on tables of which rows times columns are below 1e5, as is each."""
    rng = np.random.default_rng(seed)
    a, b = sizes(rng, 4 * rows), sizes(rng, 4 * rows)
    a, b = (values[a * b < 1e5][:rows] for values in (a, b))
    seconds = (1 + 1e-4 * a * b) * rng.lognormal(0, 0.08, rows)
    threads = rng.choice([1, 2, 4, 8], rows)
    return pd.DataFrame({"rows": a, "cols": b, "threads": threads, "seconds": seconds})


def sized_runs(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return runs that were on the more CPUs the larger their input."""
    rng = np.random.default_rng(seed)
    size = sizes(rng, rows)
    cpus = np.clip(2 ** np.round(np.log2(size) / 2.2 + rng.normal(0, 0.5, rows)), 1, 64)
    seconds = (3 + 2 * size / cpus**0.9) * rng.lognormal(0, 0.1, rows)
    return pd.DataFrame({"size": size, "cpus": cpus, "seconds": seconds})


def twin_runs(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return runs on nodes of eight cores, all of which were used."""
    rng = np.random.default_rng(seed)
    cores = 2.0 ** rng.integers(3, 9, rows)
    size = rng.uniform(10, 1000, rows)
    return pd.DataFrame(
        {"cores": cores, "nodes": cores / 8, "size": size, "seconds": size / cores}
    )


def range_of(runs: pd.DataFrame) -> tuple[TrainingRange, pd.DataFrame]:
    """Return the range of a table, and the table's first row."""
    columns = choose_columns(runs, "seconds")
    rows = rows_of(feature_table(runs, columns))
    subjects = groups_of(runs, columns).tolist()
    return TrainingRange.fit(rows, content=False, subjects=subjects), runs.head(1)


def out_of_range(
    covered: TrainingRange, train: pd.DataFrame, runs: pd.DataFrame
) -> list[tuple[str, ...]]:
    return covered.outside(rows_of(feature_table(runs, choose_columns(train, "seconds"))))


@pytest.mark.parametrize(
    ("draw", "changes", "pair"),
    [
        (product_runs, {"rows": 3000.0, "cols": 3000.0}, ("cols", "rows")),
        (sized_runs, {"size": 5000.0, "cpus": 1.0}, ("cpus", "size")),
        (sized_runs, {"size": 5.0, "cpus": 64.0}, ("cpus", "size")),
        (twin_runs, {"cores": 128.0, "nodes": 1.0}, ("cores", "nodes")),
    ],
)
def test_a_combination_that_never_occurred_is_named(draw, changes, pair) -> None:
    for seed in (0, 1):
        runs = draw(seed)
        covered, first = range_of(runs)
        (names,) = out_of_range(covered, runs, first.assign(**changes))
        assert names == (combination(*(f"column.{name}" for name in pair)),)
        others = draw(seed + 100)
        assert np.mean([bool(names) for names in out_of_range(covered, runs, others)]) < 0.03


def test_the_distance_is_how_far_both_numbers_would_have_to_move() -> None:
    runs = product_runs(0)
    covered, first = range_of(runs)
    columns = choose_columns(runs, "seconds")
    for size in (1e3, 5e3):
        row = feature_table(first.assign(rows=size, cols=size), columns)
        (far,) = covered.joint.distances(rows_of(row))
        # From there the products of training rows are reached at 1e5.
        assert far[combination("column.cols", "column.rows")] == pytest.approx(
            np.log(size**2 / 1e5), abs=0.5
        )


def test_repeats_of_few_rows_do_not_tell_which_combinations_occur() -> None:
    few = sized_runs(0, 8)
    runs = few.loc[np.repeat(np.arange(8), 10)].reset_index(drop=True)
    covered, first = range_of(runs)
    changed = first.assign(size=few["size"].max(), cpus=few["cpus"].min())
    assert out_of_range(covered, runs, changed) == [()]


def test_it_is_read_as_it_was_written() -> None:
    covered, _ = range_of(product_runs(0))
    written = json.dumps(covered.to_json(), allow_nan=False)
    assert TrainingRange.from_json(json.loads(written)) == covered


@pytest.mark.parametrize("rows", [30, 300])
def test_few_rows_of_the_same_origin_are_outside(rows: int) -> None:
    """Repeats, heavy tails, constants, missing values, and up to thirty columns."""
    flagged = []
    names = ("spark", "workflow_memory", "genome_tool", "constants", "missing", "codes", "wide")
    for name in names:
        kind = KINDS[name]
        train, unseen = (
            kind.draw(np.random.default_rng(5), np.random.default_rng(seed), count, 1.0)
            for seed, count in ((6, rows), (7, 300))
        )
        columns = choose_columns(train, kind.target)
        usable, _ = learnable(train, columns)
        train = train[usable]
        covered = TrainingRange.fit(
            rows_of(feature_table(train, columns)),
            content=False,
            subjects=groups_of(train, columns).tolist(),
        )
        answers = covered.outside(rows_of(feature_table(unseen, columns)))
        flagged += [any("×" in entry for entry in names_of_row) for names_of_row in answers]
    assert np.mean(flagged) < 0.02


def test_of_an_image_the_bound_widens_and_the_reason_is_in_words() -> None:
    table = planted.table(40)
    model = point_model.fit(table, None, "ridge", FAMILIES["ridge"].defaults, "volume", 0)
    query = queries_of(table)[0]
    ranges = model.range.numbers
    size, foreground = "header.megavoxels", "content.foreground_megavoxels"
    changes = {size: ranges[size][0], foreground: ranges[foreground][1]}
    query = Query(query.features | changes, query.cpus)
    name = combination(foreground, size)
    assert model.range.outside([query.features]) == [(name,)]
    (path,) = paths_of(model.range, [query], None)
    (far,) = model.range.joint.distances([query.features])
    assert path.edge.features == query.features
    assert (path.distance, path.combined, path.unknown) == (0.0, far[name], 0.0)
    (reason,) = Forecaster({"volume": CalibratedModel(model, {})}).outside(query, [name])
    assert reason.endswith("were not measured together")
    assert " in the foreground with " in reason
