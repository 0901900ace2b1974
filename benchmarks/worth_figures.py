"""What came of the rounds of `worth_rounds`: waiting, failures, what was asked for and used.

Reads ``results/worth/rounds`` and writes ``results/worth/rounds.json``::

    python benchmarks/worth_figures.py

Ratios are of a round against the same round of the site's default, which met the same jobs of
others; their interval is that of a mean of logarithms, by Student's law over the rounds.
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

from voxcast.files import write_json
from worth_arms import ARMS, MEMORY_SCALE, TIME_SCALE
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
    }  # fmt: skip


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
