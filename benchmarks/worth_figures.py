"""What came of the rounds of `worth_rounds`: waiting, failures, what was asked for and used.

Reads ``results/worth/rounds`` and writes ``results/worth/rounds.json``::

    python benchmarks/worth_figures.py

Ratios are of a round against the same round of the site's default, which met the same jobs of
others; their interval is that of a mean of logarithms, by Student's law over the rounds. Each
record is also replayed by `voxcast.allocation.queueing`, to see how far the simulator is from
Slurm.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from voxcast.allocation.node_room import Machine
from voxcast.allocation.queueing import simulate
from voxcast.allocation.workload import Workload
from voxcast.files import write_json
from voxcast.quantities import slurm_bytes
from worth_arms import ARMS, MEMORY_SCALE, TIME_SCALE, plan_of, read_jobs
from worth_rounds import CLOCK, NODE_BYTES, NODES

CORES = 4
RATIOS = (
    "makespan_s", "mean_wait_s", "mean_turnaround_s", "asked_core_h", "held_core_h", "asked_gb_h",
    "held_gb_h", "others_mean_wait_s",
)  # fmt: skip
HOUR_S, GB = 3600.0, 1e9


def seconds(text: str) -> float:
    """Return the seconds of a time that Slurm writes."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()


def figures(record: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one round."""
    waits, turnarounds, overheads, outcomes = [], [], [], Counter[str]()
    asked_h = held = lost = asked_gb = held_gb = used = used_gb = 0.0
    begin, end = np.inf, -np.inf
    for job in record["jobs"]:
        attempts = job["attempts"]
        submit = seconds(attempts[0]["submitted_at"])
        end_s = max(seconds(a["started_at"]) + a["ran_s"] for a in attempts)
        begin, end = min(begin, submit), max(end, end_s)
        turnarounds.append(end_s - submit)
        waits.append(sum(seconds(a["started_at"]) - seconds(a["submitted_at"]) for a in attempts))
        for a in attempts:
            gigabytes = a["memory_bytes"] / GB
            outcomes[a["outcome"]] += 1
            asked_h += a["walltime_s"] / HOUR_S
            held += a["ran_s"] / HOUR_S
            asked_gb += gigabytes * a["walltime_s"] / HOUR_S
            held_gb += gigabytes * a["ran_s"] / HOUR_S
            if a["outcome"] != "completed":
                lost += a["ran_s"] / HOUR_S
            else:
                overheads.append(a["ran_s"] - job["runtime_s"])
                used += a["ran_s"] / HOUR_S
                used_gb += job["peak_bytes"] / GB * a["ran_s"] / HOUR_S
    others = [o for o in record["others"] if o["State"] == "COMPLETED"]
    return {
        "arm": record["arm"], "round": record["round"], "jobs": len(record["jobs"]),
        "attempts": sum(outcomes.values()), "outcomes": dict(outcomes),
        "completed": outcomes["completed"], "makespan_s": end - begin,
        "mean_wait_s": float(np.mean(waits)), "longest_wait_s": float(np.max(waits)),
        "mean_turnaround_s": float(np.mean(turnarounds)), "asked_core_h": asked_h,
        "held_core_h": held, "lost_core_h": lost, "used_core_h": used, "asked_gb_h": asked_gb,
        "held_gb_h": held_gb, "used_gb_h": used_gb,
        "others_mean_wait_s": float(
            np.mean([seconds(o["Start"]) - seconds(o["Eligible"]) for o in others])
        ),
        "others_completed": len(others), "others": len(record["others"]),
        "mean_overhead_s": float(np.mean(overheads)),
        "simulator": replayed(record),
    }  # fmt: skip


def replayed(record: dict[str, Any]) -> dict[str, float]:
    """Return how far starts in the simulator are from those in Slurm, for the same attempts."""
    rows = sorted(_rows(record))
    table = np.array([row[:1] + row[4:] for row in rows], dtype=np.float64)
    submit_s, start_s, ran_s, asked_s, cpus, memory = table.T
    jobs = Workload(
        np.arange(len(rows)), submit_s, ran_s, np.maximum(asked_s, ran_s),
        cpus.astype(np.int64), np.full(len(rows), np.nan), requested_bytes=memory / cpus,
    )  # fmt: skip
    schedule = simulate(jobs, Machine(NODES, CORES, node_bytes()))
    difference_s = schedule.start_s - start_s
    return {
        "attempts": len(rows),
        "mean_wait_slurm_s": float((start_s - submit_s).mean()),
        "mean_wait_simulated_s": float((schedule.start_s - submit_s).mean()),
        "mean_absolute_difference_s": float(np.abs(difference_s).mean()),
        "median_absolute_difference_s": float(np.median(np.abs(difference_s))),
        "order_kendall_tau": float(stats.kendalltau(start_s, schedule.start_s).statistic),
        "makespan_slurm_s": float((start_s + ran_s).max() - submit_s.min()),
        "makespan_simulated_s": float(schedule.end_s.max() - submit_s.min()),
    }


def node_bytes() -> float:
    """Return the memory of a node, as recorded runs count it."""
    return round(NODE_BYTES / MEMORY_SCALE / 1e6) * 2.0**20 * MEMORY_SCALE


def _rows(record: dict[str, Any]) -> list[tuple[float, ...]]:
    """Return submission, place in the queue, start, run, request, CPUs, memory of all attempts."""
    order = _order(record)
    rows: list[tuple[float, ...]] = []
    for job in record["jobs"]:
        for n, a in enumerate(job["attempts"]):
            submit, start = seconds(a["submitted_at"]), seconds(a["started_at"])
            if n:  # it is in the queue from the moment of its own submission
                submit = max(submit, seconds(job["attempts"][n - 1]["started_at"]))
            place = (1.0, float(a["array"]), order[job["app"], job["name"]])
            rows.append((submit, *place, start, a["ran_s"], a["walltime_s"], 1.0,
                         a["memory_bytes"]))  # fmt: skip
    for n, o in enumerate(record["others"]):
        submit, start = seconds(o["Eligible"]), seconds(o["Start"])
        memory = float(slurm_bytes(o["ReqMem"]) or 0) * MEMORY_SCALE
        rows.append((submit, 0.0, 0.0, float(n), start, float(o["ElapsedRaw"]),
                     60.0 * float(o["TimelimitRaw"]), float(o["ReqCPUS"]), memory))  # fmt: skip
    return rows


def _order(record: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Return the order of the tasks within arrays, which is that of their requests."""
    order = {}
    jobs = read_jobs(JOBS)
    for app in {job.app for job in jobs}:
        of_app = [job for job in jobs if job.app == app]
        plan = plan_of(record["arm"], of_app, Path("inputs"), NODE_BYTES)
        first = [task.requests.first for task in plan.tasks]
        ranked = sorted(
            range(len(first)), key=lambda n: (first[n].walltime_s, first[n].memory_bytes, n)
        )
        for place, n in enumerate(ranked):
            order[app, of_app[n].name] = float(place)
    return order


def ratios(rounds: list[dict[str, Any]], arm: str, to: str) -> dict[str, Any]:
    """Return by figure the ratio of an arm to another in the same rounds, with its interval."""
    by_round = {(r["arm"], r["round"]): r for r in rounds}
    numbers = [n for a, n in by_round if a == arm and (to, n) in by_round]
    result: dict[str, Any] = {}
    for name in RATIOS if numbers else ():
        logs = np.log([by_round[arm, n][name] / by_round[to, n][name] for n in numbers])
        ratio: dict[str, Any] = {
            "ratio": float(np.exp(logs.mean())),
            "rounds": len(logs),
            "interval": None,
        }
        if len(logs) > 1:
            half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
            ratio["interval"] = [float(np.exp(logs.mean() + s * half)) for s in (-1, 1)]
        result[name] = ratio
    return result


JOBS = Path("results/worth/jobs.json")


def main() -> int:
    """Write the figures of the rounds on record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=Path, default=Path("results/worth/rounds"))
    parser.add_argument("--out", type=Path, default=Path("results/worth/rounds.json"))
    args = parser.parse_args()
    rounds = [figures(json.loads(p.read_text())) for p in sorted(args.rounds.glob("*.json"))]
    pairs = [("rule", "default"), ("voxcast", "default"), ("voxcast", "rule")]
    write_json(
        args.out,
        {
            "setting": {
                "nodes": NODES, "cores": CORES, "node_bytes": NODE_BYTES, "clock": CLOCK,
                "time_scale": TIME_SCALE, "memory_scale": MEMORY_SCALE,
            },
            "rounds": sorted(rounds, key=lambda r: (ARMS.index(r["arm"]), r["round"])),
            "ratios": {f"{a} to {b}": ratios(rounds, a, b) for a, b in pairs},
        },
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
