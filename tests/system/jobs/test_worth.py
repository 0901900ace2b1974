"""The trial of what asking for less is worth: its jobs, its three ways, and its figures."""

import json
from pathlib import Path

import pytest

import worth
from worth import (
    read_jobs,
)  # fmt: skip

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
