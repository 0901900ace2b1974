"""Columns of any table: names decide what is left out, values decide what is said."""

import numpy as np
import pandas as pd
import pytest

from column_tables import ROWS, honest_tables, leaking_tables
from voxcast.errors import TableError
from voxcast.features.any_table import choose_columns
from voxcast.features.screening import Screening, screened

SEEDS = range(3)
HONEST, LEAKING = list(honest_tables()), list(leaking_tables())


def screening_of(columns: dict[str, object], keep: tuple[str, ...] = ()) -> Screening:
    table = pd.DataFrame(columns)
    return screened(table, choose_columns(table, "seconds"), keep)


def close(columns: dict[str, object]) -> dict[str, tuple[str, ...]]:
    return {group.text: group.columns for group in screening_of(columns).close}


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
        noticed = {n for group in screening.close for n in group.columns}
        assert name in {*screening.left_out, *noticed}
        assert not {"size", "tool", "cpus"} & {*screening.left_out, *noticed}


def test_usual_tables_raise_no_alarm() -> None:
    usual = (
        "heavy tails", "unrelated", "length of an audio", "release of two dates",
        "regular sweep, in order", "voxels that are created", "size of a key", "few values",
        "usual noise of 10 %",
    )  # fmt: skip
    for seed in SEEDS:
        tables = honest_tables(seed)
        assert {title: close(tables[title]) for title in usual} == {title: {} for title in usual}


def test_what_is_close_is_said_with_the_columns_to_leave_out() -> None:
    leaks = {title: columns for title, (_, columns) in leaking_tables().items()}
    assert close(leaks["end minus start"]) == {"t1 minus t0": ("t1", "t0")}
    assert close(leaks["times CPUs"]) == {"su over cpus": ("su",)}
    size, seconds = np.geomspace(1, 300, 80), np.random.default_rng(0).lognormal(3, 1, 80)
    speed = {"size": size, "mb_per_s": size / seconds, "seconds": seconds}
    # Which of the two is the input no value tells.
    assert close(speed) == {"size over mb_per_s": ("size", "mb_per_s")}
    parts = ("load", "compute", "write")
    assert close(leaks["three parts"]) == {"load plus compute plus write": parts}
    (minutes,) = screening_of(leaks["whole minutes"]).close
    assert minutes.manner == "is seconds in steps"


def test_texts_of_equal_medians_are_no_steps() -> None:
    seconds = np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], 4)
    assert close({"tool": np.repeat(["a", "b"], 20), "seconds": seconds}) == {}


def test_a_rare_flag_and_a_target_of_few_values_are_no_evidence() -> None:
    rng = np.random.default_rng(0)
    size, rare = rng.uniform(1, 9, ROWS), np.arange(ROWS) % 100 == 0
    assert close({"flag": rare, "seconds": size}) == {}
    assert close({"size": size, "flag": rare[::-1], "seconds": np.where(rare, 60.0, 5.0)}) == {}
    minutes = np.ceil(size)
    assert set(close({"size": size, "bill": minutes / 7, "seconds": minutes})) == {"size", "bill"}


def test_the_order_of_the_rows_is_no_evidence() -> None:
    columns = pd.DataFrame(honest_tables()["unrelated"])
    by_time = columns.sort_values("seconds").assign(same=1.0)
    assert close(dict(by_time)) == {}


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


def test_a_close_column_that_is_kept_on_request_is_not_said_again() -> None:
    columns = honest_tables()["exact law of one size"]
    screening = screening_of(columns, ("size",))
    assert not screening.close
    assert set(screening.requested) == {"size"}
