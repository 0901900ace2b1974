"""The trial of what asking for less is worth: its jobs, its three ways, and its figures."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

import worth
from followed import followed, outcomes
from private_slurm import PrivateSlurm
from worth import (
    ARMS,
    DEFAULT_S,
    MEMORY_SCALE,
    NODE_BYTES,
    OTHERS,
    RULE_FACTOR,
    SHELL_MB,
    STEP_S,
    Job,
    input_path,
    other_jobs,
    plan_of,
    read_jobs,
    write_inputs,
)  # fmt: skip

RESULTS = Path(__file__).parents[3] / "published" / "worth"


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    """Return the hundred jobs."""
    return read_jobs(RESULTS / "jobs.json")


def test_a_hundred_subjects_that_their_predictions_differ_from(jobs: list[Job]) -> None:
    assert len(jobs) == 100
    assert len({(job.app, job.name) for job in jobs}) == 100
    exact = [job for job in jobs if job.predicted["runtime_s_median"] == job.runtime_s]
    assert exact == []


@pytest.mark.parametrize("arm", ARMS)
def test_every_way_asks_within_the_site(arm: str, jobs: list[Job], tmp_path: Path) -> None:
    of_app = [job for job in jobs if job.app == "ants_segment"]
    plan = plan_of(arm, of_app, tmp_path, NODE_BYTES)
    assert len(plan.tasks) == len(of_app)
    for task, job in zip(plan.tasks, of_app, strict=True):
        walltime_s = task.requests.walltimes_s[0]
        assert walltime_s % STEP_S == 0
        assert walltime_s <= DEFAULT_S
        if arm == "default":
            assert walltime_s == DEFAULT_S
        elif arm == "rule":
            largest_s = RULE_FACTOR * job.predicted["runtime_s_largest"]
            assert 0 <= walltime_s - largest_s < STEP_S
        else:
            assert 0 <= walltime_s - job.predicted["runtime_s_upper"] < STEP_S
            upper = job.predicted["peak_rss_bytes_upper"] / MEMORY_SCALE
            assert task.requests.memories_bytes[0] >= 1.1 * upper


def _peak_mb(pid: int) -> float:
    """Return the peak of a process so far; its rusage would have that of its parent as well."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    kilobytes = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return float(kilobytes[0]) * 1024 / 1e6 if kilobytes else 0.0


def test_a_job_holds_its_memory_and_ends(tmp_path: Path) -> None:
    if shutil.which("perl") is None:
        pytest.skip("perl is not installed")
    job = Job("app", "sub-1", 2.0, 400e6, {})
    program = write_inputs([job], tmp_path)
    (tmp_path / "out").mkdir()
    process = subprocess.Popen(
        ["perl", str(program), str(input_path(tmp_path, job)), str(tmp_path / "out")]
    )
    peak_mb = 0.0
    while process.poll() is None:
        peak_mb = max(peak_mb, _peak_mb(process.pid))
        time.sleep(0.02)
    assert process.returncode == 0
    held_mb = float((tmp_path / "out" / "done").read_text()) / 1e6
    assert held_mb == pytest.approx(400 / MEMORY_SCALE - SHELL_MB, rel=1e-3)
    assert held_mb < peak_mb < 400 / MEMORY_SCALE


@pytest.mark.slurm
def test_a_job_that_asks_for_less_than_it_holds_is_killed_and_asks_again(
    cgroup_slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    predicted = {
        f"{name}{end}": value
        for name, value in (("runtime_s", 30.0), ("peak_rss_bytes", 400e6))
        for end in ("_median", "_upper", "_largest")
    }
    large = Job("app", "large", 4.0, 600e6, predicted)  # half as much more than was predicted
    write_inputs([large], tmp_path / "in")
    plan = plan_of("voxcast", [large], tmp_path / "in", NODE_BYTES)
    follower = followed(follower_of(plan))
    assert outcomes(follower, "app-large.txt") == ["out_of_memory", "completed"]


def test_others_are_the_same_for_every_way() -> None:
    first, again = (other_jobs(random.Random("1-2")) for _ in range(2))  # noqa: S311
    assert first == again
    assert len(first) == OTHERS
    assert all(job.asked_minutes * 60 > job.run_s for job in first)


def record_of(arm: str, waits_s: tuple[int, int]) -> dict:
    """Return a record of two jobs, one of which takes two attempts, and one job of others."""

    def attempt(submit: int, start: int, outcome: str, walltime_s: float, ran_s: float) -> dict:
        times = {n: f"2026-01-01T00:{t // 60:02}:{t % 60:02}" for n, t in
                 (("submitted_at", submit), ("started_at", start))}  # fmt: skip
        return times | {"array": 1, "outcome": outcome, "walltime_s": walltime_s,
                        "memory_bytes": 2e9, "ran_s": ran_s, "state": ""}  # fmt: skip

    first, second = waits_s
    jobs = [
        [attempt(0, first, "completed", 360.0, 300.0)],
        [attempt(0, second, "timeout", 60.0, 60.0),
         attempt(second + 60, second + 60, "completed", 120.0, 90.0)],
    ]  # fmt: skip
    other = {"State": "COMPLETED", "Eligible": "2026-01-01T00:00:00", "ReqMem": "100M",
             "Start": "2026-01-01T00:00:30", "ElapsedRaw": "60", "TimelimitRaw": "2",
             "ReqCPUS": "4"}  # fmt: skip
    names = [job.name for job in read_jobs(RESULTS / "jobs.json") if job.app == "tile_segment"]
    return {"arm": arm, "round": 1, "others": [other], "jobs": [
        {"app": "tile_segment", "name": name, "runtime_s": a[-1]["ran_s"] - 1, "peak_bytes": 1e9,
         "attempts": a} for name, a in zip(names, jobs, strict=False)
    ]}  # fmt: skip


def test_the_figures_of_a_round_worked_out_by_hand() -> None:
    figures = worth.figures(record_of("rule", (10, 20)))
    assert (figures["attempts"], figures["outcomes"]) == (3, {"completed": 2, "timeout": 1})
    assert figures["makespan_s"] == 310
    assert figures["mean_wait_s"] == 15
    assert figures["asked_core_h"] == pytest.approx((360 + 60 + 120) / 3600)
    assert figures["held_core_h"] == pytest.approx((300 + 60 + 90) / 3600)
    assert figures["lost_core_h"] == pytest.approx(60 / 3600)
    assert figures["used_gb_h"] == pytest.approx(390 / 3600)
    assert figures["held_gb_h"] == pytest.approx(2 * 450 / 3600)
    assert (figures["others_mean_wait_s"], figures["mean_overhead_s"]) == (30, 1)


def test_ratios_are_of_the_same_rounds() -> None:
    rounds = [worth.figures(record_of(arm, waits)) for arm, waits in
              (("default", (20, 20)), ("rule", (10, 10)))]  # fmt: skip
    others = [replaced | {"round": 2} for replaced in rounds]
    assert worth.ratios(rounds, "rule", "default")["mean_wait_s"]["ratio"] == 0.5
    assert worth.ratios(rounds, "voxcast", "default") == {}
    both = worth.ratios(rounds + others, "rule", "default")["mean_wait_s"]
    assert both["interval"] == [pytest.approx(0.5), pytest.approx(0.5)]


def test_the_figures_on_record_are_those_of_the_rounds() -> None:
    written = json.loads((RESULTS / "rounds.json").read_text())
    paths = {(r["round"], r["arm"]): r for r in written["rounds"]}
    assert len(paths) == len(list((RESULTS / "rounds").glob("*.json")))
    for (number, arm), figures in paths.items():
        record = json.loads((RESULTS / "rounds" / f"{number}-{arm}.json").read_text())
        again = json.loads(json.dumps(worth.figures(record)))
        assert again.keys() == figures.keys()
        for name in ("makespan_s", "mean_wait_s", "outcomes", "asked_core_h", "held_gb_h"):
            assert again[name] == pytest.approx(figures[name]), name


def test_a_job_is_scaled_alike_for_every_way(jobs: list[Job], tmp_path: Path) -> None:
    job = replace(jobs[0], name="one")
    write_inputs([job], tmp_path)
    run_s, held_mb = input_path(tmp_path, job).read_text().split()
    assert float(run_s) == round(job.runtime_s)
    assert float(held_mb) == pytest.approx(job.peak_bytes / MEMORY_SCALE / 1e6 - SHELL_MB, abs=0.1)
