"""Traces of workflow engines; whatever a cell holds, every record is counted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from voxcast.errors import TableError
from voxcast.runs import csv_table
from voxcast.runs.imported import Records
from voxcast.runs.importer import READERS
from voxcast.runs.workflows import nextflow, snakemake

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"


@pytest.fixture(scope="module")
def trace() -> Records:
    return nextflow(SAMPLES / "trace.txt")


def test_a_trace_with_human_readable_units_is_read(trace: Records) -> None:
    row = trace.rows[0]
    assert (row["app"], row["runtime_s"], row["cpu_s"]) == ("BET", 65, pytest.approx(62.075))
    assert row["peak_rss_bytes"] == round(1.2 * 2**30)  # its GB are binary
    assert (row["mem_limit_bytes"], row["limit_s"], row["cpus"]) == (4 * 2**30, 3600, 2)
    assert json.loads(row["labels_json"])["tag"] == "sub-01"
    assert trace.rows[1]["runtime_s"] == pytest.approx(0.35)
    assert trace.rows[1]["peak_rss_bytes"] is None


def test_task_states_become_outcomes(trace: Records) -> None:
    assert [row["outcome"] for row in trace.rows] == [
        "completed", "completed", "out_of_memory", "failed", "timeout",
    ]  # fmt: skip
    assert trace.skipped.listed() == [
        (7, "task FAST (sub-04) is ABORTED and was never run"),
        (8, "task FAST (sub-05) is RUNNING"),
        (11, "task BET (sub-01) is CACHED: it was not run again"),
    ]
    assert trace.refused.listed() == [
        (9, "no run time; column realtime: not a Nextflow duration: '5 parsecs'"),
        (10, "8 columns where the header has 20"),
    ]


def test_a_raw_trace_gives_the_same_task(trace: Records) -> None:
    raw = nextflow(SAMPLES / "trace_raw.txt").rows[0]
    same = ("cell_key", "runtime_s", "limit_s", "mem_limit_bytes", "outcome", "peak_rss_bytes")
    assert {name: raw[name] for name in same} == {name: trace.rows[0][name] for name in same}


def test_benchmarks_count_in_mib_and_equal_repeats_are_kept() -> None:
    reading = snakemake(SAMPLES / "sub-01.align.benchmark.tsv")
    assert [row["runtime_s"] for row in reading.rows] == [65.2031, 65.2031, 0.0421, 86405, 1]
    assert len({row["cell_key"] for row in reading.rows}) == 5
    row = reading.rows[0]
    assert (row["peak_rss_bytes"], row["cpu_s"]) == (round(1024.5 * 2**20), 63.9)
    assert (row["app"], row["outcome"]) == ("sub-01.align", "completed")
    assert (reading.rows[2]["peak_rss_bytes"], reading.rows[2]["cpu_s"]) == (None, None)
    assert reading.refused.listed() == [(6, "run time is -3 s")]
    assert reading.unread.listed() == [
        (7, "column s: not a duration: 'fast'"),  # the other column has the time
    ]


def test_a_task_with_a_cell_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    header = "name\tstatus\texit\trealtime\t%cpu\tpeak_rss\tmemory\ttime\tstart\tcpus\n"
    (tmp_path / "t").write_text(
        header + "A (1)\tCOMPLETED\t0\t1m 5s\thigh\tmuch\t4 GB\t1h\tsoon\ttwo\n"
    )
    reading = nextflow(tmp_path / "t")
    (row,) = reading.rows
    assert (row["runtime_s"], row["limit_s"], row["mem_limit_bytes"]) == (65, 3600, 4 * 2**30)
    assert (row["peak_rss_bytes"], row["cpu_s"], row["started_at"], row["cpus"]) == (
        None, None, "", 0,
    )  # fmt: skip
    assert sorted(reason.partition(":")[0] for _, reason in reading.unread.listed()) == [
        "column %cpu", "column cpus", "column peak_rss", "column start",
    ]  # fmt: skip


def test_times_with_and_without_a_zone_are_compared(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(
        "name\tstatus\trealtime\tstart\tcomplete\n"
        "A\tCOMPLETED\t1m\t2024-05-01 10:00:00.000\t1714557660000\n"
        "B\tCOMPLETED\t1m\t0001-01-01 00:00:00\t9999-12-31 23:59:59\n"
    )
    reading = nextflow(tmp_path / "t")
    assert [row["app"] for row in reading.rows] == ["A", "B"]


@pytest.mark.parametrize(("completes", "read"), [("02:10", 1), ("01:05", 0)])
def test_a_clock_is_set_back_by_an_hour_and_no_more(
    tmp_path: Path, completes: str, read: int
) -> None:
    (tmp_path / "t").write_text(
        "name\tstatus\trealtime\tstart\tcomplete\n"
        f"A\tCOMPLETED\t10m\t2024-10-27 03:00:00\t2024-10-27 {completes}:00\n"
    )
    assert len(nextflow(tmp_path / "t").rows) == read


TABLES = [
    ("sacct", "slurm_22_05_8.txt", "|"), ("sacct", "sacct.txt", "|"),
    ("nextflow", "trace.txt", "\t"), ("nextflow", "trace_raw.txt", "\t"),
    ("snakemake", "sub-01.align.benchmark.tsv", "\t"), ("csv", "runs.csv", ","),
]  # fmt: skip
TEXTS = [
    "", "-", "x", "1e999", "-5", "9" * 30, "²", "٣", "0", "NaN", "inf", "1:2:3:4", "1-", "K",
    "9999999G", "0001-01-01T00:00:00", "9999-12-31T23:59:59+14:00", "\u2028", "1_0", "0x10", '"',
]  # fmt: skip


def check(read: Any, path: Path) -> None:
    try:
        reading: Records = read(path)
    except TableError:
        return
    assert len(reading.rows) == len(reading.lines) == len(reading.names)
    assert all(row["runtime_s"] > 0 for row in reading.rows)


@pytest.mark.parametrize(("kind", "name", "delimiter"), TABLES)
def test_tables_with_damaged_cells(kind: str, name: str, delimiter: str, tmp_path: Path) -> None:
    draw = random.Random(name)  # noqa: S311
    column_map = csv_table.load_map(SAMPLES / "runs.yaml")
    for _ in range(25):
        lines = [line.split(delimiter) for line in (SAMPLES / name).read_text().splitlines()]
        for _ in range(draw.randint(1, 8)):
            cells = draw.choice(lines)
            cells[draw.randrange(len(cells))] = draw.choice(TEXTS)
        path = tmp_path / name
        path.write_text("\n".join(map(delimiter.join, lines)) + "\n", encoding="utf-8")
        check(
            (lambda path: csv_table.read(path, None, column_map))
            if kind == "csv"
            else READERS[kind],
            path,
        )
