"""Slurm's accounting as text and as JSON: steps, attempts, units, states, jobs that never ran."""

import json
from pathlib import Path

import pytest

from voxcast.errors import TableError
from voxcast.history.imports import sacct
from voxcast.history.imports.file_records import FileRecords

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"
HEADER = "JobID|JobName|State|ExitCode|ElapsedRaw|MaxRSS|ReqMem|Start\n"


def by_job(reading: FileRecords) -> dict[str, dict]:
    labels = [json.loads(row["labels_json"]) for row in reading.rows]
    return {
        f"{job['job_id']} {job['state']}": row
        for job, row in zip(labels, reading.rows, strict=True)
    }


@pytest.fixture(scope="module")
def text() -> FileRecords:
    return sacct.read(SAMPLES / "sacct.txt")


def test_memory_comes_from_the_steps(text: FileRecords) -> None:
    row = by_job(text)["101 COMPLETED"]
    assert row["peak_rss_bytes"] == round(1331.2 * 2**20)
    assert (row["runtime_s"], row["cpu_s"], row["limit_s"]) == (3723, 7446, 7200)
    assert (row["mem_limit_bytes"], row["cpus"], row["host_id"]) == (8 * 2**30, 2, "n1")
    assert (row["app"], row["node_type"], row["source"]) == ("recon", "normal", "sacct")


def test_every_state_has_an_outcome(text: FileRecords) -> None:
    outcomes = {job: row["outcome"] for job, row in by_job(text).items()}
    assert outcomes == {
        "101 COMPLETED": "completed",
        "102_4 TIMEOUT": "timeout",
        "103 OUT_OF_MEMORY": "out_of_memory",
        "104 FAILED": "out_of_memory",  # 0:9, killed by Slurm itself
        "105 FAILED": "failed",
        "106 FAILED": "out_of_memory",  # a note says so
        "107 REQUEUED": "preempted",
        "107 COMPLETED": "completed",
        "108 PREEMPTED": "preempted",
        "109 CANCELLED": "preempted",
        "111 NODE_FAIL": "preempted",
        "114+1 COMPLETED": "completed",
    }


def test_attempts_of_a_job_are_separate_runs(text: FileRecords) -> None:
    rows = by_job(text)
    assert rows["107 REQUEUED"]["peak_rss_bytes"] == 800 * 2**20
    assert rows["107 COMPLETED"]["peak_rss_bytes"] == 2 * 2**30
    assert rows["107 COMPLETED"]["cpu_s"] == 330.25
    assert (rows["107 COMPLETED"]["gpus"], rows["107 COMPLETED"]["device"]) == (2, "gpu")


def test_memory_of_old_slurm_is_per_cpu(text: FileRecords) -> None:
    assert by_job(text)["102_4 TIMEOUT"]["mem_limit_bytes"] == 2 * 4 * 2**30
    assert by_job(text)["103 OUT_OF_MEMORY"]["limit_s"] is None


def test_lines_that_are_not_runs_are_listed(text: FileRecords) -> None:
    assert [(r.line, r.reason) for r in text.skipped] == [
        (19, "job 110 is CANCELLED and was never run"),
        (21, "job 112_[5-10%3] is PENDING"),
        (22, "job 113 is RUNNING"),
    ]
    assert {r.line: r.reason for r in text.bad} == {
        25: "run time is 0 s",
        26: "ends before it starts",
        27: "19 columns where the header has 18",
        28: "peak_rss_bytes is 9.66e+15, out of range",
        30: "a step of job 119, without a job line before it",
    }
    assert text.read == len(text.rows) + 8


def test_both_json_layouts_give_the_same_rows(text: FileRecords) -> None:
    old = by_job(sacct.read(SAMPLES / "sacct_22_05.json"))
    new = by_job(sacct.read(SAMPLES / "sacct_23_11.json"))
    same = ("runtime_s", "cpu_s", "peak_rss_bytes", "mem_limit_bytes", "limit_s", "gpus",
            "outcome", "started_at")  # fmt: skip
    a, b = old["101 COMPLETED"], new["301 COMPLETED"]
    assert {name: a[name] for name in same} == {name: b[name] for name in same}
    assert (a["cpu_s"], a["limit_s"], a["gpus"]) == (7446.5, 7200, 1)
    assert a["started_at"] == "2024-05-01T10:00:00+00:00"
    assert old["202 FAILED"]["outcome"] == "out_of_memory"
    assert {"200_4 TIMEOUT", "300+1 OUT_OF_MEMORY"} <= set(old) | set(new)
    assert new["302 FAILED"]["exit_status"] == 3
    # The same job in both exports is one run, whatever the zone of the text's times.
    assert a["cell_key"] == by_job(text)["101 COMPLETED"]["cell_key"]


def test_bad_jobs_of_json_are_listed_by_number() -> None:
    reading = sacct.read(SAMPLES / "sacct_23_11.json")
    assert [r.line for r in reading.bad] == [5, 6]
    assert [r.reason for r in reading.skipped] == ["job 304 is RUNNING"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1|a|COMPLETED|0:0|12|lots||", "memory: not a Slurm size: 'lots'"),
        ("1|a|COMPLETED|0:0|twelve|||", "ElapsedRaw is not a number of seconds: 'twelve'"),
        ("1|a|SLEEPING|0:0|12|||", "not a state of a Slurm job: 'SLEEPING'"),
        ("1|a|COMPLETED|0:0|-12|||", "run time is -12 s"),
        ("1|a|COMPLETED|0:0|999999999999|||", "runtime_s is 1e+12, more than ten years"),
        ("1||COMPLETED|0:0|12|||", "no application name"),
        ("1|a|COMPLETED|0:0||||", "no run time"),
        ("1|a|COMPLETED|0:0|12||4Q|", "ReqMem is not a size: '4Q'"),
        ("1|a|COMPLETED|0:0|12|||yesterday", "start is not a time: 'yesterday'"),
    ],
)
def test_an_invalid_line_is_reported_with_its_reason(
    tmp_path: Path, line: str, reason: str
) -> None:
    (tmp_path / "x").write_text(HEADER + line + "\n")
    reading = sacct.read(tmp_path / "x")
    assert [(r.line, r.reason) for r in reading.bad] == [(2, reason)]


def test_sigkill_with_memory_to_spare_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        HEADER + "1|a|FAILED|0:9|12||1G|\n1.batch|batch|FAILED|0:9|12|100M||\n"
    )
    assert sacct.read(tmp_path / "x").rows[0]["outcome"] == "failed"


def test_trailing_delimiters_and_bytes_without_unit(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        "jobid|jobname|state|elapsed|maxrss|\n5|a|COMPLETED|1-00:00:10||\n"
        "5.0|a|COMPLETED|1-00:00:10|1048576|\n"
    )
    row = sacct.read(tmp_path / "x").rows[0]
    assert (row["runtime_s"], row["peak_rss_bytes"]) == (86410, 2**20)


@pytest.mark.parametrize(
    "content", ['{"jobs": 3}', "{", '{"jobs": [' + "[" * 100_000, "JobID|State\n1|COMPLETED\n"]
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(TableError):
        sacct.read(tmp_path / "x")


@pytest.mark.parametrize(
    ("job", "step", "outcome"),
    [
        ("COMPLETED|0:0", "1.0|srun|OUT_OF_ME+|0:125", "out_of_memory"),
        ("FAILED|1:0", "1.0|srun|OUT_OF_MEMORY|0:125", "out_of_memory"),
        ("COMPLETED|0:0", "1.extern|extern|OUT_OF_MEMORY|0:125", "completed"),
        ("TIMEOUT|0:0", "1.0|srun|OUT_OF_MEMORY|0:125", "timeout"),
    ],
)
def test_a_step_killed_for_memory_is_not_a_label(
    tmp_path: Path, job: str, step: str, outcome: str
) -> None:
    (tmp_path / "x").write_text(f"{HEADER}1|a|{job}|12|||\n{step}|12|||\n")
    assert sacct.read(tmp_path / "x").rows[0]["outcome"] == outcome
