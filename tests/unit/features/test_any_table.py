"""CSV tables as people export them: their cells are read as meant, or the message says which."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.features.any_table import (
    choose_columns,
    feature_table,
    is_censored,
    read_csv,
    statuses,
)
from voxcast.features.screening import screened

ROWS = 40
SIZES = [f"{1.37 * n + 0.5:.2f}" for n in range(ROWS)]


def table_of(folder: Path, size: list[str], seconds: list[str] | None = None) -> pd.DataFrame:
    path = folder / "jobs.csv"
    frame = pd.DataFrame({"size": size, "cpus": [1, 2, 4, 8] * (ROWS // 4)})
    frame["seconds"] = seconds or [str(10 + n * n) for n in range(ROWS)]
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
        ([f"{n + 1},{n:03d}" for n in range(ROWS)], "such as '1,000': write plain numbers"),
        ([f"0:{n:02d}:30" for n in range(ROWS)], "such as '0:00:30': write plain numbers"),
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
