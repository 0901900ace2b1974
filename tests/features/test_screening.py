"""Columns that are left out of a table: leaks by name and by values, names of rows; no input."""

import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.features.any_table import choose_columns
from voxcast.features.hindsight import Suspicion
from voxcast.features.screening import screened

ROWS = 400


def left_out(table: pd.DataFrame, target: str = "seconds") -> dict[str, str]:
    _, noticed = screened(table, choose_columns(table, target))
    return {s.column: s.reason for s in noticed if s.leave_out}


def close(table: pd.DataFrame) -> set[str]:
    _, noticed = screened(table, choose_columns(table, "seconds"))
    return {s.column for s in noticed if not s.leave_out}


@pytest.fixture(params=range(3))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


@pytest.fixture
def size(rng: np.random.Generator) -> np.ndarray:
    return np.exp(rng.uniform(0, 6, ROWS))


@pytest.fixture
def tool(rng: np.random.Generator) -> np.ndarray:
    return rng.choice(["a", "b"], ROWS)


@pytest.fixture
def jobs(size: np.ndarray, tool: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    """Return jobs whose time depends on size, tool and chance."""
    seconds = (3 * size * np.where(tool == "b", 2, 1) + 2) * rng.lognormal(0, 0.1, ROWS)
    return pd.DataFrame({"size": size, "tool": tool, "seconds": seconds})


def test_inputs_of_honest_tables_are_used(
    size: np.ndarray, tool: np.ndarray, rng: np.random.Generator
) -> None:
    noise = rng.lognormal(0, 0.02, ROWS)
    heavy = rng.pareto(1.1, ROWS) + 1
    cpus, iterations = rng.choice([1, 2, 4], ROWS), rng.integers(1, 50, ROWS)
    tables = {
        "exact law of one size": {"size": size, "seconds": 3 * size + 2},
        "the same without a telling name": {"x": size, "seconds": 3 * size + 2},
        "the target is the size": {"x": size, "tool": tool, "seconds": size},
        "exact law of two": {"x": size, "iterations": iterations,
                             "seconds": 0.01 * size * iterations},
        "size over CPUs": {"size": size, "cpus": cpus, "seconds": 2 * size / cpus},
        "linear": {"x": size, "tool": tool, "seconds": (3 * size + 2) * noise},
        "in proportion": {"voxels": size, "file_mb": size * rng.lognormal(0, 0.3, ROWS),
                          "seconds": 3 * size * noise},
        "bytes, each once": {"bytes": (1e7 * size).astype(int), "tool": tool,
                             "seconds": 3 * size * noise},
        "heavy tails": {"size": heavy, "tool": tool, "seconds": 5 * heavy * noise**9},
        "unrelated": {"size": heavy, "tool": tool, "seconds": size},
        "length of an audio": {"duration": 10 * size, "model": tool,
                               "seconds": size * np.where(tool == "a", 1, 3) * noise},
        "sorted": {"size": np.arange(1, ROWS + 1), "seconds": 5 + 2.0 * np.arange(1, ROWS + 1)},
        "few values": {"n": 2 ** (np.arange(ROWS) % 6), "tool": tool, "seconds": size},
        "an earlier run": {"previous_runtime": size, "tool": tool, "seconds": size * noise},
    }  # fmt: skip
    assert {title: left_out(pd.DataFrame(table)) for title, table in tables.items()} == {
        title: {} for title in tables
    }


def test_a_close_input_is_used_and_said(size: np.ndarray, tool: np.ndarray) -> None:
    assert close(pd.DataFrame({"size": size, "tool": tool, "seconds": 3 * size + 2})) == {"size"}
    assert close(pd.DataFrame({"size": size, "seconds": size[::-1]})) == set()


def test_measurements_are_found_by_their_values(
    jobs: pd.DataFrame, rng: np.random.Generator
) -> None:
    seconds = jobs["seconds"].to_numpy()
    began, noise = 1e5 * rng.uniform(size=ROWS), rng.lognormal(0, 0.01, ROWS)
    cpus = rng.choice([1, 2, 4, 8], ROWS)
    leaks = {
        "t1": {"t0": began, "t1": began + seconds},
        "q": {"q": seconds.round(2)},
        "duration": {"duration": 1000 * seconds * rng.lognormal(0, 0.1, ROWS)},
        "after": {"after": 7.3 * seconds * noise},
        "rate": {"rate": 100 / seconds * noise},
        "z": {"z": np.log(seconds)},
        "su": {"cpus": cpus, "su": cpus * seconds / 3600},
        "rest": {"rest": 0.3 * seconds * noise, "part": seconds - 0.3 * seconds * noise},
    }
    for name, columns in leaks.items():
        reasons = left_out(jobs.assign(**columns))
        assert name in reasons, name
        assert not {"size", "tool", "cpus"} & set(reasons), name
    both = left_out(jobs.assign(t0=began, t1=began + seconds))
    assert both["t1"] == "is a part of t1 minus t0, which is seconds"


def test_an_export_of_accounting_keeps_what_was_known_before(
    jobs: pd.DataFrame, rng: np.random.Generator
) -> None:
    elapsed = jobs["seconds"].round()
    start = pd.Series(1.7e9 + np.cumsum(rng.exponential(100, ROWS)))
    table = pd.DataFrame(
        {
            "JobID": [str(n) for n in range(ROWS)], "JobIDRaw": range(ROWS),
            "User": rng.choice(["u1", "u2"], ROWS), "JobName": jobs["tool"],
            "Start": pd.to_datetime(start, unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
            "End": pd.to_datetime(start + elapsed, unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
            "Timelimit": rng.choice(["01:00:00", "1-00:00:00"], ROWS), "AllocCPUS": 2,
            "ElapsedRaw": elapsed, "CPUTimeRAW": 2 * elapsed, "TotalCPU": "00:01:02",
            "MaxRSS": rng.choice(["4K", "8K"], ROWS), "ExitCode": "0:0", "State": "COMPLETED",
            "submit_epoch": start - 500, "InputSize": jobs["size"],
        }
    )  # fmt: skip
    columns, _ = screened(table, choose_columns(table, "ElapsedRaw"))
    assert {*columns.numbers, *columns.texts} == {
        "User", "JobName", "Timelimit", "AllocCPUS", "InputSize"
    }  # fmt: skip


def test_names_of_rows_are_left_out_and_said(jobs: pd.DataFrame) -> None:
    reasons = left_out(
        jobs.assign(path=[f"/x/{n}" for n in range(ROWS)], job=range(ROWS), day="2024-05-01")
    )
    assert reasons == {
        "path": "names rows: 400 values in 400 rows",
        "job": "numbers the rows",
        "day": "is a moment, of which a new row has another",
    }


def test_a_column_is_kept_on_request(jobs: pd.DataFrame) -> None:
    table = jobs.assign(cpu_time=jobs["seconds"])
    columns, noticed = screened(table, choose_columns(table, "seconds"), ["cpu_time"])
    assert "cpu_time" in columns.numbers
    assert noticed == [Suspicion("cpu_time", "is what accounting measures of a run", False)]
    with pytest.raises(TableError, match="size2: is no feature of the table"):
        screened(table, choose_columns(table, "seconds"), ["size2"])
    alone = table[["cpu_time", "seconds"]]
    with pytest.raises(TableError, match="no feature is left without cpu_time; --keep COL"):
        screened(alone, choose_columns(alone, "seconds"))
