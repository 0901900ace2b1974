"""The trial of what asking for less is worth: its jobs, its queues, and its figures."""

import json
from pathlib import Path

import pytest

import worth
import worth_queue
from voxcast.jobs.task import RequestSequence, Task
from worth_requests import ARMS, JOBS, Job, OtherJob, job_set

RESULTS = Path(__file__).parents[3] / "published" / "worth"


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
    return {"arm": arm, "round": 1, "others": [other], "jobs": [
        {"app": "tile_segment", "name": str(n), "runtime_s": a[-1]["ran_s"] - 1, "peak_bytes": 1e9,
         "attempts": a} for n, a in enumerate(jobs)
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


def test_a_set_is_drawn_from_one_half_of_the_subjects_and_again_the_same() -> None:
    first, again, second, other_half = (
        job_set(RESULTS / "jobs.json", half, number)
        for half, number in (("confirm", 1), ("confirm", 1), ("confirm", 2), ("choose", 1))
    )
    assert first == again
    assert {app: sum(job.app == app for job in first) for app in JOBS} == JOBS
    assert len({job.name for job in first}) == len(first) == 100
    assert [job.runtime_s for job in first] != [job.runtime_s for job in second]
    subjects, others = (
        {job.name.split("-", 1)[1] for job in jobs} for jobs in (first + second, other_half)
    )
    assert not subjects & others


def test_every_arm_requests_every_job_of_a_set_within_the_nodes() -> None:
    jobs = job_set(RESULTS / "jobs.json", "confirm", 1)
    for arm in ARMS.values():
        tasks = arm(jobs, [f"/{job.app}/{job.name}.txt" for job in jobs])
        assert len(tasks) == len(jobs)
        for task in tasks:
            assert task.requests.walltimes_s == tuple(sorted(task.requests.walltimes_s))
            assert task.requests.first.walltime_s % 60 == 0
            assert task.requests.first.walltime_s <= task.max_walltime_s


def queued(*runs: tuple[float, float], others: tuple[OtherJob, ...] = (), gb: float = 2.0) -> dict:
    """Return the figures of jobs by their runtime and request, each of a whole node's memory."""
    jobs = [Job("app", str(n), runtime_s, 1e9, {}) for n, (runtime_s, _) in enumerate(runs)]
    tasks = [
        Task(str(n), "", RequestSequence((walltime_s,), (int(gb * 1e9),), 1))
        for n, (_, walltime_s) in enumerate(runs)
    ]
    return worth.figures({"arm": "rule", "round": 1} | worth_queue.simulate(jobs, tasks, others))


OTHER = OtherJob(0.0, 1, 100, 60, 2)


def test_queues_worked_out_by_hand() -> None:
    # Four nodes, and five jobs that need a node each: the fifth waits for the first end.
    four = [(300.0, 600.0)] * 3 + [(300.0, 360.0)]
    figures = queued(*four, (100.0, 120.0), others=(OTHER,), gb=1.95)
    assert figures["makespan_s"] == 400
    assert figures["longest_wait_s"] in (0, 100, 300)
    assert figures["completed"] == 5
    # A request that is too short is used up, and 1.5 times as much is requested again.
    figures = queued((100.0, 80.0), others=(OTHER,))
    assert figures["outcomes"] == {"timeout": 1, "completed": 1}
    assert figures["held_core_h"] == pytest.approx(180 / 3600)
    assert figures["asked_core_h"] == pytest.approx((80 + 120) / 3600)


def test_later_jobs_fill_gaps_and_delay_no_earlier_one() -> None:
    # Others fill each node but for one core until 600 s; the first of ours needs four cores.
    others = tuple(OtherJob(0.0, 3, 100, 600, 10) for _ in range(4))
    short, long = OtherJob(1.0, 1, 100, 60, 9), OtherJob(1.0, 1, 100, 900, 20)
    wide = OtherJob(0.5, 4, 100, 60, 2)
    record = worth_queue.simulate(
        [Job("app", "1", 1.0, 1.0, {})],
        [Task("1", "", RequestSequence((60.0,), (10**6,), 1))],
        (*others, wide, short, long, long, long, long),
    )
    starts = [other["Start"] for other in record["others"]]
    assert len(starts) == 10
    at = [worth.seconds(start) for start in starts]
    # The short job ends before the wide one's node is free; three long ones fill the other nodes.
    assert sorted(at) == pytest.approx([0, 0, 0, 0, 1, 1, 1, 1, 600, 600])
