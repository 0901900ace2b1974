"""Names of applications, jobs to be read with care, and predictions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from planted_tasks import PLANTED, plan_of, shell_app
from voxcast.allocation.site import Cluster
from voxcast.audit.groups import app_of, apps_of
from voxcast.audit.jobs import read_jobs
from voxcast.audit.report import audit, prepare
from voxcast.audit.text import audit_text
from voxcast.jobs.collect import ProjectVolumes, collect_jobs
from voxcast.jobs.state import SubmissionState, task_rows
from voxcast.jobs.submission import Submission
from voxcast.jobs.task import Attempt
from voxcast.records import Request, as_fields
from voxcast.runs.imported import name_pattern
from voxcast.runs.store import load_history

HEADER = (
    "JobID|JobName|State|ElapsedRaw|TotalCPU|MaxRSS|NTasks|ReqMem|ReqCPUS|AllocCPUS|AllocNodes|"
    "AllocTRES|TimelimitRaw|SubmitLine"
)
LINES = [
    "1|recon_sub-01|COMPLETED|3600|00:59:00||||1|1|1|cpu=1,mem=4G|120|sbatch recon.sh",
    "1.batch|batch|COMPLETED|3600|||1|||||||",
    "2|recon_sub-02|COMPLETED|20|00:10.000||||1|1|1|cpu=1,mem=4G|120|sbatch recon.sh",
    "3|interactive|COMPLETED|3600|00:01:00||||1|1|1|cpu=1,mem=4G|120|salloc",
    "4|own shell|COMPLETED|3600|00:01:00||||1|1|1|cpu=1,mem=4G|120|srun --mem 4G --pty bash",
    "5|sys/dashboard/sys/jupyter|COMPLETED|3600|00:01:00||||1|1|1|cpu=1,mem=4G|120|",
    "6|other|COMPLETED|3600|00:01:00||||1|1|1|cpu=1,mem=4G|120|",
    "6.interactive|interactive|COMPLETED|3600||1G|1|||||||",
    "7|full|COMPLETED|3600|40:00:00|||0n|1|40|1|cpu=40,mem=180G|120|sbatch --exclusive x",
    "7.batch|batch|COMPLETED|3600||10G|1|||||||",
    "8|mpi|COMPLETED|3600|36:00:00||||40|40|2|cpu=40,mem=64G|120|sbatch mpi.sh",
    "8.0|mpi|COMPLETED|3600||2G|40|||||||",
    "9|ssh|COMPLETED|3600|20:00:00||||40|40|2|cpu=40,mem=64G||sbatch ssh.sh",
    "10|broken|COMPLETED|3600|9-00:00:00||||1|1|1|cpu=1,mem=4G|120|sbatch x",
    "11|idle|COMPLETED|3600|00:00:00||||1|1|1|cpu=1,mem=4G|120|sbatch x",
    "12|oom|OUT_OF_MEMORY|3600|00:50:00||||1|1|1|cpu=1,mem=4G|120|sbatch x",
    "12.batch|batch|OUT_OF_MEMORY|3600||1M|1|||||||",
    "13|over|COMPLETED|3600|00:50:00||||1|1|1|cpu=1,mem=4G|120|sbatch x",
    "13.batch|batch|COMPLETED|3600||5G|1|||||||",
]


@pytest.fixture
def few_jobs(tmp_path: Path):
    (tmp_path / "x").write_text("\n".join([HEADER, *LINES]))
    jobs = read_jobs([tmp_path / "x"])
    prepare(jobs)
    return jobs


def test_jobs_to_be_read_with_care_are_counted(few_jobs) -> None:
    counts = {remark.kind: remark.jobs for remark in audit(few_jobs).remarks}
    assert counts == {
        "below a minute": 1,
        "interactive": 4,
        "all memory requested": 1,
        "more CPUs than requested": 1,
        "no time limit": 1,
        "memory of one task only": 1,
        # 1, 3, 4, 5, 9, 10 and 11; a job of 20 s is below the pause between two samples.
        "memory not sampled": 7,
        "more memory than requested": 1,
        "killed for memory below half of the request": 1,
        "no CPU time": 1,
        "impossible CPU time": 1,
        "CPU time of one node only": 1,
    }


def test_memory_of_one_task_is_not_that_of_the_job(few_jobs) -> None:
    mpi = few_jobs.frame.set_index("job_id").loc["8"]
    assert mpi["peak_at_least_bytes"] == 2 * 2**30
    assert mpi["peak_rss_bytes"] != mpi["peak_rss_bytes"]  # not known, not 2 GB, not 80 GB
    total = audit(few_jobs).total.iloc[0]
    used = (10 + 1 + 5) * 2**30 / 1e9  # of 7, 6 and 13, an hour each
    asked = (4 + 4) * 2**30 / 1e9  # 7 asked for all memory of its node
    assert total.requested_gb_hours == pytest.approx(asked)
    assert total.used_gb_hours == pytest.approx(used - 10 * 2**30 / 1e9)


def test_cpu_time_that_cannot_be_is_left_out(few_jobs) -> None:
    total = audit(few_jobs).total.iloc[0]
    assert 0 < total.cpu_efficiency <= 1


@pytest.mark.parametrize(
    ("name", "app"),
    [
        ("recon_sub-01_ses-2", "recon"), ("recon-17", "recon"), ("/home/ann/Recon.sh", "recon"),
        ("fmriprep-20.2.1_sub01", "fmriprep_sub"), ("nf-core_RNASEQ_(SAMPLE_1)", "nf_core_rnaseq"),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "(numbers only)"), ("job_deadbeef1234", "job"),
        ("decade", "decade"), ("", "(no name)"), ("12345", "(numbers only)"), ("bet2", "bet"),
        ("ä_1", "ä"), ("x" * 10_000, "x" * 256),
    ],
)  # fmt: skip
def test_the_application_is_the_name_without_what_differs(name: str, app: str) -> None:
    assert app_of(name) == app


def test_a_pattern_takes_the_application_out_of_names(few_jobs) -> None:
    pattern = name_pattern("^([a-z]+)_sub", "app", "--pattern")
    apps = apps_of(few_jobs.frame["name"], pattern)
    assert set(apps) == {"recon", "(other names)"}


@pytest.mark.parametrize("counted", ["cgroup", "rss"])
def test_memory_is_shown_beside_use_as_the_site_counts_it(counted: str, tmp_path: Path) -> None:
    """In the status and in the history: the model was exact, so nothing is off."""
    site = Cluster("lab", (), (), memory_counted="cgroup", memory_stated=counted)
    resident, upper = 300 * 2**20, 400 * 2**20
    maxrss = resident + site.stated_bytes_of("planted")
    prediction = dataclasses.replace(
        PLANTED, runtime_s=100.0, peak_rss_bytes=resident, peak_rss_bytes_upper=upper
    )
    plan = plan_of(shell_app("true"), [Path("/in/a.nii")], prediction=prediction)
    plan = dataclasses.replace(plan, added_memory_bytes=site.stated_bytes_of("planted"))
    submission = Submission.create(plan, tmp_path / "out", "slurm")
    request = Request(120.0, 600 * 2**20, 1, 0, "debug")
    for event in (
        {"event": "prepared", "array": 1, "tasks": ["a"], "request": as_fields(request)},
        {"event": "submitted", "array": 1, "job": "7"},
        {"event": "ended", "task": "a", "array": 1, "number": 1,
         "attempt": as_fields(Attempt(request, "completed", 100.0)),
         "facts": {"peak_bytes": maxrss}},
    ):  # fmt: skip
        submission.record(event)
    (row,) = task_rows(submission, SubmissionState.of(plan, submission.events()), {})
    assert row["predicted_memory_bytes"] == maxrss
    collect_jobs(submission, tmp_path / "jobs", ProjectVolumes({}, 32))
    (run,) = load_history([tmp_path / "jobs"]).to_dict("records")
    labels = json.loads(run["labels_json"])
    assert labels["predicted_peak_rss_bytes"] == run["peak_rss_bytes"] == maxrss
    assert labels["upper_peak_rss_bytes"] - maxrss == upper - resident


def test_short_jobs_are_left_out_of_ratios(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        "JobID|State|ElapsedRaw|NCPUS|TimelimitRaw\n1|COMPLETED|20|1|2\n2|COMPLETED|90|1|2\n"
    )
    jobs = read_jobs([tmp_path / "x"])
    prepare(jobs)
    shown = audit(jobs)
    assert [r.kind for r in shown.remarks if r.kind.startswith("below")] == ["below a minute"]
    assert shown.total["time_ratio_50"][0] == pytest.approx(120 / 90)


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    name = "\x1b[31mred\x07" + "x" * 60
    (tmp_path / "x").write_text(f"JobID|User|State|Elapsed|NCPUS\n1|{name}|COMPLETED|01:00:00|1\n")
    jobs = read_jobs([tmp_path / "x"])
    prepare(jobs)
    text = audit_text(audit(jobs), 5)
    assert "?[31mred?xxx" in text
    assert "\x1b" not in text
    assert "x" * 30 not in text
