"""The book of openings: nothing is lost, whoever writes at once, and damage is reported."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.models.openings import (
    counts,
    enter_opening,
    read_openings,
    rows_sha256,
)

ROOT = Path(__file__).parents[3]
WRITER = """
import sys, pandas as pd
from pathlib import Path
from voxcast.models.openings import enter_opening
runs = pd.DataFrame({"cell_key": ["a"], "subject": [sys.argv[2]], "cpu_s": 1.0, "runtime_s": 1.0,
                     "peak_rss_bytes": 1.0})
for n in range(10):
    enter_opening(Path(sys.argv[1]), "second", runs, f"study {n}", "")
"""


def runs(*subjects: str, cpu_s: float = 2.0) -> pd.DataFrame:
    keys = [f"cell-{name}" for name in subjects]
    return pd.DataFrame(
        {"cell_key": keys, "subject": list(subjects), "cpu_s": cpu_s, "runtime_s": 3.0,
         "peak_rss_bytes": 10**9}
    )  # fmt: skip


def test_an_opening_is_counted_by_runs_and_by_subjects(tmp_path: Path) -> None:
    book = tmp_path / "results" / "openings.jsonl"
    assert read_openings(book) == []
    first = enter_opening(book, "test table", runs("a", "b"), "stage evaluate", "abc")
    enter_opening(book, "test table", runs("b", "c"), "stage evaluate", "abc")
    enter_opening(book, "real", runs("z"), "study real", "abc")
    openings = read_openings(book)
    assert openings[0] == first
    assert (first.subjects, first.commit, first.by) == (("a", "b"), "abc", "stage evaluate")
    assert [opening.table for opening in openings] == ["test table", "test table", "real"]
    two = counts(openings, runs("a", "b"))
    assert two == {"same_runs": 1, "any_subject": 2}
    # A table of other runs does not make a subject unseen again.
    again = counts(openings, runs("b", cpu_s=9.0))
    assert again == {"same_runs": 0, "any_subject": 2}
    assert counts(openings, runs("new"))["any_subject"] == 0


def test_the_hash_is_that_of_the_runs_and_not_of_their_order_or_features() -> None:
    table = runs("a", "b")
    digest = rows_sha256(table)
    assert rows_sha256(table.iloc[::-1].assign(**{"content.noise_ratio": 0.1})) == digest
    assert rows_sha256(runs("a", "b", cpu_s=2.1)) != digest
    assert rows_sha256(table.head(0)) != digest


def test_processes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    book = tmp_path / "openings.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, book, f"subject-{n}"]) for n in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    openings = read_openings(book)
    assert len(openings) == 40
    for n in range(4):
        of_writer = [o.by for o in openings if o.subjects == (f"subject-{n}",)]
        assert of_writer == [f"study {k}" for k in range(10)]


def test_a_damaged_book_is_reported_with_its_line(tmp_path: Path) -> None:
    book = tmp_path / "openings.jsonl"
    enter_opening(book, "real", runs("a"), "study real", "")
    book.write_text(book.read_text() + '{"table": "real"}\n')
    with pytest.raises(TableError, match=r"openings\.jsonl, line 2: is damaged"):
        read_openings(book)
    book.unlink()
    book.mkdir()
    with pytest.raises(TableError, match="cannot be written"):
        enter_opening(book, "real", runs("a"), "study real", "")
