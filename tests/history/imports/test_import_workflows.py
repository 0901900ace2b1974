"""Nextflow's traces and Snakemake's benchmark files."""

import json
from pathlib import Path

import pytest

from voxcast.history.imports import nextflow, snakemake
from voxcast.history.imports.file_records import FileRecords

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"


@pytest.fixture(scope="module")
def trace() -> FileRecords:
    return nextflow.read(SAMPLES / "trace.txt")


def test_a_trace_with_human_readable_units_is_read(trace: FileRecords) -> None:
    row = trace.rows[0]
    assert (row["app"], row["runtime_s"], row["cpu_s"]) == ("BET", 65, pytest.approx(62.075))
    assert row["peak_rss_bytes"] == round(1.2 * 2**30)  # its GB are binary
    assert (row["mem_limit_bytes"], row["limit_s"], row["cpus"]) == (4 * 2**30, 3600, 2)
    assert json.loads(row["labels_json"])["tag"] == "sub-01"
    assert trace.rows[1]["runtime_s"] == pytest.approx(0.35)
    assert trace.rows[1]["peak_rss_bytes"] is None


def test_task_states_become_outcomes(trace: FileRecords) -> None:
    assert [row["outcome"] for row in trace.rows] == [
        "completed", "completed", "out_of_memory", "failed", "timeout",
    ]  # fmt: skip
    assert [(r.line, r.reason) for r in trace.skipped] == [
        (7, "task FAST (sub-04) is ABORTED and was never run"),
        (8, "task FAST (sub-05) is RUNNING"),
    ]
    assert [(r.line, r.reason) for r in trace.bad] == [
        (9, "realtime: not a Nextflow duration: '5 parsecs'"),
        (10, "8 columns where the header has 20"),
    ]


def test_a_raw_trace_gives_the_same_task(trace: FileRecords) -> None:
    raw = nextflow.read(SAMPLES / "trace_raw.txt").rows[0]
    same = ("cell_key", "runtime_s", "limit_s", "mem_limit_bytes", "outcome", "peak_rss_bytes")
    assert {name: raw[name] for name in same} == {name: trace.rows[0][name] for name in same}


def test_benchmarks_count_in_mib_and_equal_repeats_are_kept() -> None:
    reading = snakemake.read(SAMPLES / "sub-01.align.benchmark.tsv")
    assert [row["runtime_s"] for row in reading.rows] == [65.2031, 65.2031, 0.0421, 86405]
    assert len({row["cell_key"] for row in reading.rows}) == 4
    row = reading.rows[0]
    assert (row["peak_rss_bytes"], row["cpu_s"]) == (round(1024.5 * 2**20), 63.9)
    assert (row["app"], row["outcome"]) == ("sub-01.align", "completed")
    assert (reading.rows[2]["peak_rss_bytes"], reading.rows[2]["cpu_s"]) == (None, None)
    assert [(r.line, r.reason) for r in reading.bad] == [
        (6, "run time is -3 s"),
        (7, "s is not a number: 'fast'"),
    ]


def test_extended_benchmarks_name_their_rule() -> None:
    row = snakemake.read(SAMPLES / "extended.tsv").rows[0]
    assert (row["app"], row["cpus"]) == ("segment", 4)
    assert snakemake.read(SAMPLES / "extended.tsv", app="own").rows[0]["app"] == "own"
