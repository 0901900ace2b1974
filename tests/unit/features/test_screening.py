"""Columns of any table: names decide what is left out, values decide what is said."""

import numpy as np
import pandas as pd
import pytest

from column_tables import ROWS, UNNOTICED, honest_tables, leaking_tables
from voxcast.errors import TableError
from voxcast.features.any_table import choose_columns
from voxcast.features.screening import Screening, screened

SEEDS = range(3)
HONEST, LEAKING = list(honest_tables()), list(leaking_tables())


def screening_of(columns: dict[str, object], keep: tuple[str, ...] = ()) -> Screening:
    table = pd.DataFrame(columns)
    return screened(table, choose_columns(table, "seconds"), keep)


@pytest.mark.parametrize("title", HONEST)
def test_no_column_of_an_honest_table_is_left_out(title: str) -> None:
    for seed in SEEDS:
        columns = honest_tables(seed)[title]
        screening = screening_of(columns)
        assert screening.left_out == {}
        used = {*screening.columns.numbers, *screening.columns.texts}
        assert used == set(columns) - {"seconds"}


@pytest.mark.parametrize("title", LEAKING)
def test_a_leak_is_left_out_or_said_and_nothing_else_is(title: str) -> None:
    for seed in SEEDS:
        name, columns = leaking_tables(seed)[title]
        screening = screening_of(columns)
        noticed = {*screening.left_out, *screening.close}
        assert (name in noticed) == (title not in UNNOTICED)
        assert not {"size", "tool", "cpus"} & noticed


def test_usual_tables_raise_no_alarm() -> None:
    usual = (
        "heavy tails", "unrelated", "length of an audio", "release of two dates",
        "regular sweep, in order", "voxels that are created", "size of a key", "few values",
        "usual noise of 10 %",
    )  # fmt: skip
    for seed in SEEDS:
        tables = honest_tables(seed)
        assert not [title for title in usual if screening_of(tables[title]).close]


def test_an_export_of_accounting_keeps_what_was_known_before() -> None:
    rng = np.random.default_rng(0)
    elapsed = pd.Series(rng.integers(10, 5000, ROWS))
    start = pd.Series(1.7e9 + np.cumsum(rng.exponential(100, ROWS)))
    table = pd.DataFrame(
        {
            "JobID": [str(n) for n in range(ROWS)], "JobIDRaw": range(ROWS),
            "User": rng.choice(["u1", "u2"], ROWS), "JobName": rng.choice(["a", "b"], ROWS),
            "Start": pd.to_datetime(start, unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
            "End": pd.to_datetime(start + elapsed, unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
            "Timelimit": rng.choice(["01:00:00", "1-00:00:00"], ROWS), "AllocCPUS": 2,
            "ElapsedRaw": elapsed, "CPUTimeRAW": 2 * elapsed, "TotalCPU": "00:01:02",
            "MaxRSS": rng.choice(["4K", "8K"], ROWS), "ExitCode": "0:0", "State": "COMPLETED",
            "submit_epoch": start - 500, "InputSize": rng.uniform(1, 9, ROWS),
        }
    )  # fmt: skip
    columns = screened(table, choose_columns(table, "ElapsedRaw")).columns
    assert {*columns.numbers, *columns.texts} == {
        "User", "JobName", "Timelimit", "AllocCPUS", "InputSize"
    }  # fmt: skip


def test_a_column_is_kept_on_request() -> None:
    _, columns = leaking_tables()["CPU time by name"]
    screening = screening_of(columns, ("cpu_s",))
    assert "cpu_s" in screening.columns.numbers
    assert screening.requested == {"cpu_s": "is what accounting measures of a run"}
    with pytest.raises(TableError, match="size2: is no feature of the table"):
        screening_of(columns, ("size2",))
    alone = {name: columns[name] for name in ("cpu_s", "seconds")}
    with pytest.raises(TableError, match="no feature is left without cpu_s; --keep cpu_s"):
        screening_of(alone)
