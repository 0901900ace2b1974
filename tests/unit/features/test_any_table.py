"""Tables as people export them: cells read as meant, leaks left out or said."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from column_tables import ROWS, UNNOTICED, honest_tables, leaking_tables
from voxcast.errors import TableError
from voxcast.features.any_table import (
    choose_columns,
    feature_table,
    is_censored,
    read_csv,
    statuses,
)
from voxcast.features.screening import Screening, screened

CELLS = 40
SIZES = [f"{1.37 * n + 0.5:.2f}" for n in range(CELLS)]


def table_of(folder: Path, size: list[str], seconds: list[str] | None = None) -> pd.DataFrame:
    path = folder / "jobs.csv"
    frame = pd.DataFrame({"size": size, "cpus": [1, 2, 4, 8] * (CELLS // 4)})
    frame["seconds"] = seconds or [str(10 + n * n) for n in range(CELLS)]
    frame.to_csv(path, index=False)
    return read_csv(path)


def test_spaces_around_names_and_cells_are_no_part_of_them(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(' size , tool ,seconds\n 1.5 , fast ,"3"\n 2.5 , slow, 4\n', encoding="utf-8")
    table = read_csv(path)
    assert list(table) == ["size", "tool", "seconds"]
    assert table["size"].tolist() == [1.5, 2.5]
    assert table["tool"].tolist() == ["fast", "slow"]
    assert table["seconds"].tolist() == [3, 4]


@pytest.mark.parametrize("mark", ["-", "--", "?", " - ", ""])
def test_a_mark_for_missing_leaves_a_column_of_numbers(tmp_path: Path, mark: str) -> None:
    table = table_of(tmp_path, [*SIZES[:-1], mark])
    assert choose_columns(table, "seconds").numbers == ("size", "cpus")
    assert table["size"].isna().sum() == 1


def test_a_version_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("tool_version,n_versions,seconds\n1.10,3,5\n1.1,4,6\n", encoding="utf-8")
    assert read_csv(path)["tool_version"].tolist() == ["1.10", "1.1"]
    assert read_csv(path)["n_versions"].tolist() == [3, 4]
    assert read_csv(path, texts=())["tool_version"].tolist() == [1.1, 1.1]  # as a model has it


def test_texts_of_a_model_are_read_to_the_letter(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("tool,node\n1.10,007\n,true\n", encoding="utf-8")
    table = read_csv(path, texts=("tool", "node"))
    assert table["node"].tolist() == ["007", "true"]
    assert table["tool"].tolist()[0] == "1.10"
    columns = choose_columns(
        pd.DataFrame({"tool": ["1.10", "2.0-rc1"], "node": ["007", "7b"], "seconds": [1.0, 2.0]}),
        "seconds",
    )
    assert feature_table(table, columns)["column.tool"].fillna("").tolist() == ["1.10", ""]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([f"{s} GB" for s in SIZES], "such as '0.50 GB': write plain numbers, all in one unit"),
        ([f"{s}%" for s in SIZES], "such as '0.50%': write plain numbers"),
        ([s.replace(".", ",") for s in SIZES], "such as '0,50': write plain numbers"),
        ([f"{n + 1},{n:03d}" for n in range(CELLS)], "such as '1,000': write plain numbers"),
        ([f"0:{n:02d}:30" for n in range(CELLS)], "such as '0:00:30': write plain numbers"),
        ([*SIZES[:-1], "Total"], "for 'Total': leave such cells empty"),
    ],
)
def test_numbers_spelled_as_texts_are_said_with_the_cell(
    tmp_path: Path, cells: list[str], reason: str
) -> None:
    table = table_of(tmp_path, cells)
    screening = screened(table, choose_columns(table, "seconds"))
    assert reason in screening.left_out["size"]
    with pytest.raises(TableError, match="is text"):
        choose_columns(table_of(tmp_path, SIZES, cells), "seconds")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PAR1\x15\x04", "is a Parquet file"),
        (b"PK\x03\x04abc", "is a spreadsheet or an archive"),
        (b"\x1f\x8b\x08", "is compressed"),
        ("a,b\n1,2\n".encode("utf-16"), "is text in UTF-16"),
        ("größe,b\n1,2\n".encode("latin-1"), "is not text in UTF-8"),
        (b"a\tb\n1\t2\n", "has a tab between its columns"),
        (b"a;b\n1;2\n", "has ';' between its columns"),
        (b"# from sacct\na,b\n1,2\n", "has more columns in a row than in the header"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a,b\n", "has no rows"),
        (b"a, a\n1,2\n", "names the column a twice"),
    ],
)
def test_other_files_are_refused_by_what_they_are(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(TableError) as raised:
        read_csv(path)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Elapsed", "Elapsed: is text, such as '02:21:22'; write plain numbers, all in one unit; "
                    "those of numbers are ElapsedRaw"),
        ("User", "User: is text, such as 'ann'; the target must be a column of numbers; "
                 "those of numbers are ElapsedRaw"),
    ],
)  # fmt: skip
def test_a_target_that_is_text_is_refused(target: str, message: str) -> None:
    table = pd.DataFrame(
        {
            "Elapsed": ["02:21:22", "1-00:10:51"],
            "ElapsedRaw": [8482, 87051],
            "User": ["ann", "bob"],
        }
    )
    with pytest.raises(TableError) as caught:
        choose_columns(table, target)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        (
            "State",
            ["COMPLETED", "FAILED", "CANCELLED by 12", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"],
            ["completed", "failed", "cancelled", "node_failure", "timeout", "out_of_memory"],
        ),
        ("ExitCode", ["0:0", "1:0", "0:9"], ["completed", "failed", "failed"]),
        ("exit", [0, 137, np.nan], ["completed", "failed", "completed"]),
        ("status", ["ok", "error", None], ["completed", "failed", "failed"]),
        ("state", ["Ohio", "Texas", "Maine"], ["completed"] * 3),
        ("colour", ["failed", "failed", "completed"], ["completed"] * 3),
    ],
)
def test_columns_of_accounting_tell_how_a_run_ended(name: str, cells, expected) -> None:
    assert statuses(pd.DataFrame({name: cells})).tolist() == expected


def test_a_status_outranks_the_exit_code_of_a_stopped_run() -> None:
    table = pd.DataFrame({"state": ["TIMEOUT", "COMPLETED"], "exit": [143, 0]})
    assert is_censored(statuses(table)).tolist() == [True, False]


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
    with pytest.raises(TableError, match="size2: is not a feature of the table"):
        screening_of(columns, ("size2",))
    alone = {name: columns[name] for name in ("cpu_s", "seconds")}
    with pytest.raises(TableError, match="no feature is left without cpu_s; --keep cpu_s"):
        screening_of(alone)
