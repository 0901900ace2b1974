"""The queue replay on traces made here: jobs as asked, by rules, and by predictions.

Writes ``results/worth/replay.json``, with one trace in Standard Workload Format that ``voxcast
queue`` reads::

    python benchmarks/worth_replay.py

Predictions are as far off as those of ``results/worth/jobs.json``, the out-of-fold errors of the
recorded applications. Rules see only jobs of the application that had ended before.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from voxcast.allocation.node_room import Machine
from voxcast.allocation.queue_report import report
from voxcast.allocation.queueing import simulate
from voxcast.allocation.resubmission import Resubmission
from voxcast.files import write_json
from worth_trace import MadeTrace, made_trace, write_swf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.workload import Workload

    Requests = tuple[NDArray[np.float64], NDArray[np.float64]]  # seconds, bytes of each processor

MACHINE = Machine(16, 32, 128e9)
LOADS = {"quiet": 0.35, "busy": 0.6}  # of the cores; memory as asked is scarcer
JOBS, SEEDS, LONG_JOBS = 8000, 20, 100_000
CONFIDENCE, MEMORY_MARGIN, STEP_S = 0.95, 0.1, 60.0
LARGEST_FACTOR, MASI_RUNS, MASI_FACTOR = 1.2, 5, 1.5
POLICIES = ("as_asked", "largest", "last_five", "predicted")
COMPARED = (
    "mean_wait_s", "mean_turnaround_s", "makespan_s", "asked_core_h", "held_core_h", "lost_core_h",
    "asked_gb_h", "held_gb_h",
)  # fmt: skip


def residual_spread(path: Path) -> dict[str, float]:
    """Return the standard deviation of log errors of out-of-fold predictions, by target."""
    jobs = json.loads(path.read_text())["jobs"]
    return {
        name: float(np.std([np.log(job[name] / job[f"{name}_median"]) for job in jobs]))
        for name in ("runtime_s", "peak_rss_bytes")
    }


def requests(trace: MadeTrace, policy: str, spread: float, limit_s: float) -> Requests:
    """Return what the jobs of a trace ask for by a policy."""
    jobs = trace.workload
    asked_s, asked_bytes = jobs.requested_s, jobs.packed_bytes()
    if policy == "as_asked":
        return asked_s, asked_bytes
    if policy == "predicted":
        score = stats.norm.ppf(CONFIDENCE)
        time_s = trace.median_s * np.exp(score * spread)
        memory = (1 + MEMORY_MARGIN) * trace.median_bytes * np.exp(score * spread / 3)
        memory = memory / jobs.processors
    else:
        time_s, memory = _by_rule(trace, policy)
    most = np.array([MACHINE.memory_limit(int(wide)) for wide in jobs.processors])
    time_s = np.minimum(np.ceil(time_s / STEP_S) * STEP_S, limit_s)
    return time_s, np.minimum(memory, most)


def _by_rule(trace: MadeTrace, policy: str) -> Requests:
    """Return requests from the jobs of the same application that had ended by then.

    Before any has, a job asks as its user did. Whether one had ended is judged by its runtime
    alone, as if it had started at once.
    """
    jobs = trace.workload
    requested = jobs.requested_s.copy(), jobs.packed_bytes().copy()
    used = jobs.runtime_s, jobs.used_memory()
    ended_s = jobs.submit_s + jobs.runtime_s
    for app in np.unique(trace.application):
        members = np.flatnonzero(trace.application == app)
        by_end = members[np.argsort(ended_s[members], kind="stable")]
        count = np.searchsorted(ended_s[by_end], jobs.submit_s[members], side="right")
        has_any = count > 0
        for request, amounts in zip(requested, used, strict=True):
            largest = np.maximum.accumulate(amounts[by_end])
            if policy == "last_five" and amounts is used[0]:
                sums = np.concatenate([[0.0], np.cumsum(amounts[by_end])])
                first = np.maximum(count - MASI_RUNS, 0)
                mean = (sums[count] - sums[first]) / np.maximum(count - first, 1)
                request[members[has_any]] = mean[has_any]
            else:  # the published rule is of time; its memory is that of the other rule
                values = LARGEST_FACTOR * largest[np.maximum(count - 1, 0)]
                request[members[has_any]] = values[has_any]
    return requested


def replayed(jobs: Workload, requested: Requests) -> dict[str, Any]:
    """Return the report of a replay, with the CPU time that it took."""
    workload = replace(jobs, requested_s=requested[0], requested_bytes=requested[1])
    began_s = time.process_time()
    schedule = simulate(workload, MACHINE, resubmission=Resubmission(factor=MASI_FACTOR))
    taken_s = time.process_time() - began_s
    return asdict(report(workload, schedule, MACHINE.processors)) | {"simulation_cpu_s": taken_s}


def ratios(replays: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return by policy and figure the ratio to the jobs as asked, with its interval over seeds."""
    result: dict[str, Any] = {}
    for policy in POLICIES[1:]:
        for name in COMPARED:
            values = [(r[policy][name], r["as_asked"][name]) for r in replays]
            if any(value <= 0 for pair in values for value in pair):
                continue
            logs = np.log([mine / theirs for mine, theirs in values])
            half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
            result.setdefault(policy, {})[name] = {
                "ratio": float(np.exp(logs.mean())),
                "interval": [float(np.exp(logs.mean() + s * half)) for s in (-1, 1)],
            }
    return result


def main() -> int:
    """Make traces, replay each by every policy, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs-file", type=Path, default=Path("results/worth/jobs.json"))
    parser.add_argument("--jobs", type=int, default=JOBS, help="of a trace")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="traces")
    parser.add_argument("--long", type=int, default=LONG_JOBS, help="jobs of one long trace")
    parser.add_argument("--swf", type=Path, help="write the first trace here")
    parser.add_argument("--out", type=Path, default=Path("results/worth/replay.json"))
    args = parser.parse_args()
    spread = residual_spread(args.jobs_file)["runtime_s"]
    by_load: dict[str, Any] = {}
    for name, load in LOADS.items():
        replays = []
        for seed in range(args.seeds):
            trace = made_trace(args.jobs, MACHINE, load, seed, spread)
            if args.swf is not None and seed == 0 and name == "busy":
                write_swf(trace.workload, args.swf, "made by benchmarks/worth_trace.py, no site's")
            replays.append(_by_policy(trace, spread, f"{name}, trace {seed + 1}"))
        by_load[name] = {"load": load, "replays": replays, "ratios": ratios(replays)}
    trace = made_trace(args.long, MACHINE, LOADS["busy"], args.seeds, spread)
    content = {
        "machine": asdict(MACHINE),
        "jobs": args.jobs,
        "spread": spread,
        "by_load": by_load,
        "long": {"jobs": args.long, "replays": _by_policy(trace, spread, "long trace")},
    }
    write_json(args.out, content)
    return 0


def _by_policy(trace: MadeTrace, spread: float, label: str) -> dict[str, dict[str, Any]]:
    limit_s = float(trace.workload.requested_s.max())
    results = {}
    for policy in POLICIES:
        requested = requests(trace, policy, spread, limit_s)
        results[policy] = replayed(trace.workload, requested)
        taken_s = results[policy]["simulation_cpu_s"]
        print(f"{label}: {policy}, {taken_s:.1f} s", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
