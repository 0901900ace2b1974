"""Slurm's accounting as text and as JSON: steps, attempts, units, states, jobs that never ran."""

import json
import re
from pathlib import Path

import pytest

from voxcast.errors import TableError
from voxcast.history.imports import sacct
from voxcast.runs.imported import Records

SAMPLES = Path(__file__).parents[3] / "samples" / "imports"
HEADER = "JobID|JobName|State|ExitCode|ElapsedRaw|MaxRSS|ReqMem|Start\n"


def by_job(reading: Records) -> dict[str, dict]:
    labels = [json.loads(row["labels_json"]) for row in reading.rows]
    return {
        f"{job['job_id']} {job['state']}": row
        for job, row in zip(labels, reading.rows, strict=True)
    }


@pytest.fixture(scope="module")
def text() -> Records:
    return sacct.read(SAMPLES / "sacct.txt")


def test_memory_comes_from_the_steps(text: Records) -> None:
    row = by_job(text)["101 COMPLETED"]
    assert row["peak_rss_bytes"] == round(1331.2 * 2**20)
    assert (row["runtime_s"], row["cpu_s"], row["limit_s"]) == (3723, 7446, 7200)
    assert (row["mem_limit_bytes"], row["cpus"], row["host_id"]) == (8 * 2**30, 2, "n1")
    assert (row["app"], row["node_type"], row["source"]) == ("recon", "normal", "sacct")


def test_every_state_has_an_outcome(text: Records) -> None:
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
        "109 CANCELLED": "cancelled",
        "111 NODE_FAIL": "node_failure",
        "114+1 COMPLETED": "completed",
        "118 COMPLETED": "completed",
    }


def test_attempts_of_a_job_are_separate_runs(text: Records) -> None:
    rows = by_job(text)
    assert rows["107 REQUEUED"]["peak_rss_bytes"] == 800 * 2**20
    assert rows["107 COMPLETED"]["peak_rss_bytes"] == 2 * 2**30
    assert rows["107 COMPLETED"]["cpu_s"] == 330.25
    assert (rows["107 COMPLETED"]["gpus"], rows["107 COMPLETED"]["device"]) == (2, "gpu")


def test_memory_of_old_slurm_is_per_cpu(text: Records) -> None:
    assert by_job(text)["102_4 TIMEOUT"]["mem_limit_bytes"] == 2 * 4 * 2**30
    assert by_job(text)["103 OUT_OF_MEMORY"]["limit_s"] is None


def test_lines_that_are_not_runs_are_listed(text: Records) -> None:
    assert [(r.line, r.reason) for r in text.skipped] == [
        (19, "job 110 is CANCELLED and was never run"),
        (21, "job 112_[5-10%3] is PENDING"),
        (22, "job 113 is RUNNING"),
    ]
    assert {r.line: r.reason for r in text.bad} == {
        25: "run time is 0 s",
        26: "ends before it starts",
        27: "19 columns where the header has 18",
        30: "a step of job 119, without a job line before it",
    }
    assert {r.line: r.reason for r in text.unread} == {
        23: "MaxRSS: that of one of 2 tasks; export TRESUsageInTot for that of all",
        28: "peak_rss_bytes: 9.66e+15 is out of range",
    }
    assert by_job(text)["118 COMPLETED"]["peak_rss_bytes"] is None
    assert text.read == len(text.rows) + 7


def test_both_json_layouts_give_the_same_rows(text: Records) -> None:
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
        ("1|a|COMPLETED|0:0|twelve|||", "no run time; column ElapsedRaw: not a number or time: "
         "'twelve'"),
        ("1|a|SLEEPING|0:0|12|||", "column State: not a state of a Slurm job: 'SLEEPING'"),
        ("1|a|COMPLETED|0:0|-12|||", "run time is -12 s"),
        ("1|a|COMPLETED|0:0|999999999999|||", "runtime_s: 1e+12 is more than ten years"),
        ("1||COMPLETED|0:0|12|||", "no application name"),
        ("1|a|COMPLETED|0:0||||", "no run time"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_reported_with_its_reason(
    tmp_path: Path, line: str, reason: str
) -> None:
    (tmp_path / "x").write_text(HEADER + line + "\n")
    reading = sacct.read(tmp_path / "x")
    assert [(r.line, r.reason) for r in reading.bad] == [(2, reason)]


@pytest.mark.parametrize(
    ("line", "reason", "column"),
    [
        ("COMPLETED|0:0|12|lots||", "column MaxRSS: not a Slurm size: 'lots'", "peak_rss_bytes"),
        ("COMPLETED|0:0|12||4Q|", "column ReqMem: not a size: '4Q'", "mem_limit_bytes"),
        ("COMPLETED|zero|12|||", "column ExitCode: not an exit code: 'zero'", "exit_status"),
        ("COMPLETED|0:0|12|||yesterday", "column Start: not a number or time: 'yesterday'",
         "started_at"),
    ],
)  # fmt: skip
def test_a_job_is_kept_without_the_field_that_cannot_be_read(
    tmp_path: Path, line: str, reason: str, column: str
) -> None:
    (tmp_path / "x").write_text(f"{HEADER}1|a|{line}\n")
    reading = sacct.read(tmp_path / "x")
    assert [(r.line, r.reason) for r in reading.unread] == [(2, reason)]
    (row,) = reading.rows
    assert (row["runtime_s"], row["outcome"]) == (12, "completed")
    assert not row[column]


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


def test_clock_times_and_units_of_a_plain_export(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        "JobID|JobName|User|Account|Partition|State|Submit|Start|End|Elapsed|TotalCPU|MaxRSS|"
        "ReqMem|Timelimit|ReqTRES\n"
        "7|recon|ann|imaging|long|COMPLETED|2024-05-01T09:00:00|2024-05-01T10:00:00|"
        "2024-05-02T12:30:05|1-02:30:05|2-05:00:10||12Gc|2-00:00:00|billing=4,cpu=4,mem=48G,node=1\n"
        "7.batch|batch||imaging||COMPLETED|2024-05-01T10:00:00|2024-05-01T10:00:00|"
        "2024-05-02T12:30:05|1-02:30:05|2-05:00:10|3.50G|||\n"
        "7.extern|extern||imaging||COMPLETED|2024-05-01T10:00:00|2024-05-01T10:00:00|"
        "2024-05-02T12:30:05|1-02:30:05|00:00.002|0|||\n"
        "7.0|mpi||imaging||COMPLETED|2024-05-01T10:00:00|2024-05-01T10:00:00|"
        "2024-05-02T12:30:05|1-02:30:05|00:10:00|812.25M|||\n"
        "8|recon|ann|imaging|long|COMPLETED|2024-05-01T09:00:00|2024-05-01T10:00:00|"
        "2024-05-01T10:02:30|02:30|00:58.500|340K|2Gn|30:00|cpu=1,mem=2G,node=1\n"
    )
    long, short = sacct.read(tmp_path / "x").rows
    assert (long["runtime_s"], long["cpu_s"], long["limit_s"]) == (95405, 190810, 172800)
    assert (long["peak_rss_bytes"], long["mem_limit_bytes"]) == (3.5 * 2**30, 48 * 2**30)
    assert long["cpus"] == 4
    assert (short["runtime_s"], short["cpu_s"], short["limit_s"]) == (150, 58.5, 1800)
    assert short["peak_rss_bytes"] == 340 * 2**10
    labels = json.loads(long["labels_json"])
    assert (labels["user"], labels["account"], labels["partition"], labels["submitted_at"]) == (
        "ann", "imaging", "long", "2024-05-01T09:00:00",
    )  # fmt: skip


def test_arrays_het_jobs_and_joined_exports(tmp_path: Path) -> None:
    header = "JobID|JobName|State|Elapsed|MaxRSS|Start\n"
    task = "|recon|COMPLETED|00:10:00||2024-05-01T10:00:0"
    step = "|batch|COMPLETED|00:10:00|"
    (tmp_path / "x").write_text(
        f"{header}20_1{task}1\n20_1.batch{step}100M|\n20_2{task}2\n20_2.batch{step}200M|\n"
        f"20_[3-9]|recon|PENDING|00:00:00||Unknown\n"
        f"{header}30+0{task}3\n30+0.0{step}1G|\n30+1{task}4\n30+1.0{step}2G|\n"
        # Without -D a requeued job has its last attempt only; its number may recur in an export.
        f"40|recon|NODE_FAIL|00:05:00||2024-05-01T09:00:01\n40{task}5\n40.batch{step}3G|\n"
    )
    reading = sacct.read(tmp_path / "x")
    labels = [json.loads(row["labels_json"]) for row in reading.rows]
    assert [(label["job_id"], row["outcome"], row["peak_rss_bytes"])
            for label, row in zip(labels, reading.rows, strict=True)] == [
        ("20_1", "completed", 100 * 2**20), ("20_2", "completed", 200 * 2**20),
        ("30+0", "completed", 2**30), ("30+1", "completed", 2**31),
        ("40", "node_failure", None), ("40", "completed", 3 * 2**30),
    ]  # fmt: skip
    assert [label.get("array_job") for label in labels] == ["20", "20", None, None, None, None]
    assert [label.get("het_job") for label in labels] == [None, None, "30", "30", None, None]
    assert len({row["cell_key"] for row in reading.rows}) == 6
    assert [r.reason for r in reading.skipped] == ["job 20_[3-9] is PENDING"]
    assert not reading.bad


@pytest.mark.parametrize(
    ("state", "note", "outcome"),
    [
        ("CANCELLED by 1000", "", "cancelled"),
        ("CANCELLED+", "", "cancelled"),
        ("CANCELLED by 0", "Exceeded job memory limit", "out_of_memory"),
        ("NODE_FAIL", "", "node_failure"),
        ("BOOT_FAIL", "", "node_failure"),
        ("LAUNCH_FAILED", "", "node_failure"),
        ("DEADLINE", "", "timeout"),
        ("REVOKED", "", "preempted"),
    ],
)
def test_states_of_other_ends(tmp_path: Path, state: str, note: str, outcome: str) -> None:
    (tmp_path / "x").write_text(
        f"JobID|JobName|State|ElapsedRaw|Comment\n1|a|{state}|60|{note}\n2|a|{state}|0|{note}\n"
    )
    reading = sacct.read(tmp_path / "x")
    assert [row["outcome"] for row in reading.rows] == [outcome]
    assert [r.reason.partition(" and ")[2] for r in reading.skipped] == ["was never run"]


def test_the_time_from_start_to_end_stands_in_for_a_missing_elapsed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        "JobIDRaw|JobName|State|Start|End\n"
        "1|a|COMPLETED|2024-05-01T10:00:00|2024-05-01T10:02:30\n1.batch|batch|COMPLETED|||\n"
    )
    (row,) = sacct.read(tmp_path / "x").rows
    assert row["runtime_s"] == 150


def test_json_of_slurm_24_keeps_user_account_and_submit_time(tmp_path: Path) -> None:
    def number(value: int | None) -> dict[str, object]:
        return {"set": value is not None, "infinite": False, "number": value or 0}

    job = {
        "job_id": 12, "name": "recon_sub-01", "cluster": "lab", "partition": "long",
        "user": "ann", "account": "imaging", "nodes": "n1",
        "association": {"account": "imaging", "cluster": "lab", "user": "ann", "id": 4},
        "array": {"job_id": 0, "task_id": number(None), "task": ""},
        "het": {"job_id": 0, "job_offset": number(None)},
        "state": {"current": ["CANCELLED"], "reason": "None"},
        "comment": {"administrator": "", "job": "", "system": ""},
        "exit_code": {"status": ["SIGNALED"], "return_code": number(None),
                      "signal": {"id": number(15), "name": "SIGTERM"}},
        "time": {"elapsed": 61, "start": 1714557600, "end": 1714557661,
                 "submission": 1714557000, "limit": number(120),
                 "total": {"seconds": 50, "microseconds": 0}},
        "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 2}],
                 "requested": [{"type": "mem", "name": "", "id": 2, "count": 4096}]},
        "steps": [{"state": ["CANCELLED"], "step": {"id": "12.batch", "name": "batch"},
                   "tasks": {"count": 1},
                   "tres": {"requested": {"max": [{"type": "mem", "count": 2**30}]}}}],
    }  # fmt: skip
    odd = {**job, "job_id": 13, "time": {**job["time"], "limit": "soon", "total": [1]},
           "steps": "none"}  # fmt: skip
    odd["time"]["submission"] = 1e18
    (tmp_path / "x").write_text(json.dumps({"jobs": [job, odd]}))
    reading = sacct.read(tmp_path / "x")
    row, kept = reading.rows
    labels = json.loads(row["labels_json"])
    assert (row["outcome"], row["peak_rss_bytes"], row["exit_status"]) == (
        "cancelled", 2**30, -15,
    )  # fmt: skip
    assert row["mem_limit_bytes"] == 4 * 2**30
    assert (labels["user"], labels["account"]) == ("ann", "imaging")
    assert labels["submitted_at"] == "2024-05-01T09:50:00+00:00"
    assert reading.names == ["recon_sub-01"] * 2
    assert (kept["runtime_s"], kept["limit_s"], kept["cpu_s"]) == (61, None, None)
    assert [(r.line, r.reason.split(":")[0]) for r in reading.unread] == [
        (2, "field time.submission"), (2, "field time.limit"),
        (2, "field steps"), (2, "field time.total"),
    ]  # fmt: skip


def test_the_exports_of_a_real_cluster_are_the_same_runs() -> None:
    """Slurm 22.05.8: an array, a het job, a failure, a cancelled and a requeued job."""
    text, content = (sacct.read(SAMPLES / f"slurm_22_05_8.{end}") for end in ("txt", "json"))
    assert by_job(text).keys() == by_job(content).keys()
    assert {job: row["outcome"] for job, row in by_job(text).items()} == {
        "1 COMPLETED": "completed",
        "2_1 COMPLETED": "completed", "2_2 COMPLETED": "completed", "2_3 COMPLETED": "completed",
        "3+0 COMPLETED": "completed", "3+1 COMPLETED": "completed",
        "5 FAILED": "failed",
        "6 CANCELLED": "cancelled",
        "7 REQUEUED": "preempted", "7 COMPLETED": "completed",
    }  # fmt: skip
    for job, row in by_job(text).items():
        other = by_job(content)[job]
        same = ("cell_key", "app", "cpus", "runtime_s", "limit_s", "mem_limit_bytes",
                "peak_rss_bytes", "host_id")  # fmt: skip
        assert {name: row[name] for name in same} == {name: other[name] for name in same}
        assert (row["cpu_s"] or 0) == pytest.approx(other["cpu_s"] or 0, abs=2e-3)
        labels, other_labels = (json.loads(r["labels_json"]) for r in (row, other))
        names = ("user", "account", "partition", "array_job", "het_job")
        assert [labels.get(n) for n in names] == [other_labels.get(n) for n in names]
    assert by_job(text)["5 FAILED"]["exit_status"] == 3
    # This release writes success as the exit code of a job, and of its steps, in JSON.
    assert by_job(content)["5 FAILED"]["exit_status"] is None
    for reading in (text, content):
        assert [*reading.bad, *reading.skipped, *reading.unread] == []


@pytest.mark.parametrize("sampled", [True, False])
def test_the_end_of_a_step_is_read_alike_from_both_exports(sampled: bool, tmp_path: Path) -> None:
    """Slurm 22.05.8, OverMemoryKill, jobs of root: who ended a step, with and without samples."""
    table = (SAMPLES / "slurm_22_05_8_steps.txt").read_text()
    content = json.loads((SAMPLES / "slurm_22_05_8_steps.json").read_text())
    if not sampled:  # a step that ends within a second may have none
        table = re.sub(r"\|\d+K\|", "||", table)
        for step in (step for job in content["jobs"] for step in job["steps"]):
            step["tres"]["requested"] = {}
    (tmp_path / "text").write_text(table)
    (tmp_path / "json").write_text(json.dumps(content))
    names = ("outcome", "exit_status", "peak_rss_bytes", "mem_limit_bytes")
    text, other = (
        {row["app"]: [row[name] for name in names] for row in sacct.read(tmp_path / export).rows}
        for export in ("text", "json")
    )
    assert text == other
    outcomes = {app: outcome for app, (outcome, *_) in text.items()}
    assert outcomes["cancelled_step"] == "failed"
    assert outcomes["left_step"] == "completed"
    assert outcomes["cancelled_job"] == "cancelled"
    assert outcomes["killed_script"] == "out_of_memory"
    assert (outcomes["killed_step"] == "out_of_memory") == sampled  # Slurm kills by its samples


def test_the_memory_of_a_real_job_of_several_tasks_is_that_of_all(tmp_path: Path) -> None:
    """Slurm 22.05.8: tasks of 60, 120 and 180 MiB, with and without a step of all of them."""
    peaks = {}
    for end in ("txt", "json"):
        for row in sacct.read(SAMPLES / f"slurm_22_05_8_tasks.{end}").rows:
            name = json.loads(row["labels_json"])["job_name"]
            peaks.setdefault(name, []).append((row["peak_rss_bytes"], row["memory_method"]))
    for name, ((of_text, method), (of_json, method_of_json)) in peaks.items():
        assert method == method_of_json, name
        assert of_text == pytest.approx(of_json, abs=3 * 512), name  # AveRSS is rounded to KiB
    assert peaks["frees_sub-01"][1] == (418603008, "slurm_tresusageintot")
    assert peaks["both_sub-03"][1] == (74840 * 1024, "slurm_maxrss")


def test_a_lower_bound_of_memory_is_no_memory(tmp_path: Path, caplog) -> None:
    table = (SAMPLES / "slurm_22_05_8_tasks.txt").read_text().splitlines()
    without_average = "\n".join(line.rpartition("|")[0] for line in table)
    (tmp_path / "x").write_text(without_average)
    reading = sacct.read(tmp_path / "x")
    row = next(row for row in reading.rows if "frees" in row["labels_json"])
    assert (row["peak_rss_bytes"], row["memory_method"]) == (None, "")
    assert json.loads(row["labels_json"])["peak_rss_at_least_bytes"] == 197788 * 1024
    reasons = {remark.reason.partition("; ")[0] for remark in reading.unread}
    assert reasons == {"MaxRSS: that of one of 3 tasks"}
    assert not caplog.messages
    without_tasks = "\n".join(line.rpartition("|")[0] for line in without_average.splitlines())
    (tmp_path / "x").write_text(without_tasks)
    rows = sacct.read(tmp_path / "x").rows
    assert [row["memory_method"] for row in rows] == ["slurm_maxrss"] * 4
    assert "no column NTasks: each step is taken to be of one task" in caplog.text


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_another_separator_is_named(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text((HEADER + "1|recon|COMPLETED|0:0|60|1G|4G|\n").replace("|", mark))
    with pytest.raises(TableError) as caught:
        sacct.read(path)
    assert f"its columns are separated by {mark!r}, not by '|'; write it with" in str(caught.value)
    path.write_text("JobName|Comment\nrecon|JobID, State\n")
    with pytest.raises(TableError, match="no column JobID or JobIDRaw in line 1"):
        sacct.read(path)
