"""What a margin on the predicted bound of time is worth, in simulated queues of recorded runs.

Every run is predicted by models that saw neither its subject nor its day, and knew two runs of
other subjects on that day. Half of the subjects are to choose a margin, the other half to confirm
it. Job sets are drawn from each half and meet jobs of others on four nodes of four cores; the
queue is served in order, and later jobs fill the gap before the first that waits (EASY backfill,
Lifka 1995). Retries are those of ``voxcast submit``. All figures are ratios to the usual rule on
the same set: the longest and largest run of other subjects of the application, times 1.2::

    python studies/request_margins.py --out results/worth/margins.json
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import argparse
import heapq
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from study import table_to_learn_from
from voxcast.allocation.site import stepped
from voxcast.errors import exits_cleanly
from voxcast.evaluation.contenders import VoxcastContender
from voxcast.evaluation.protocols import draws, folds
from voxcast.evaluation.recorded_table import of_app
from voxcast.features.rows import FULL, side
from voxcast.files import write_json
from voxcast.jobs.task import Attempt, Limits, RequestSequence, Task, next_request, tasks_of
from voxcast.records import Outcome, Request

JOBS = {"ants_segment": 50, "ants_register": 25, "tile_segment": 25}
FAMILIES = ("ridge",)
LOCAL_RUNS, SEED, SETS = 2, 5, 40
TIME_SCALE, STEP_S, STEP_BYTES = 15.0, 60.0, 2**20
NODES, CORES, NODE_BYTES = 4, 4, 2e9
DEFAULT_S, DEFAULT_BYTES = 7200.0, 1e9
RULE, CONFIDENCE, MEMORY_MARGIN = 1.2, 0.95, 0.1
MARGINS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
OTHERS, OTHERS_OVER_S = 24, 2000.0
FIGURES = ("makespan", "mean_wait", "asked_core_h", "held_core_h")


@exits_cleanly
def main() -> int:
    """Write the figures of all margins on both halves of the subjects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    runs = predicted_runs()
    halves = {"to choose": runs[runs["half"] == 0], "to confirm": runs[runs["half"] == 1]}
    content: dict[str, Any] = {"sets": SETS, "seed": SEED, "local_runs": LOCAL_RUNS}
    for name, part in halves.items():
        content[name] = {"runs": len(part), "arms": figures_of(part)}
    write_json(out, content)
    return 0


def predicted_runs() -> pd.DataFrame:
    """Return undisturbed runs on one CPU with their predictions, and the half of their subject."""
    table = table_to_learn_from()
    parts = []
    for app in JOBS:
        runs = of_app(table, app, FULL)
        runs = runs.assign(day=runs["started_at"].astype(str).str[:10], reserved=False)
        runs = runs.reset_index(drop=True)
        for fold in folds(runs, "new sitting", n_folds=3, seed=SEED):
            test = runs.iloc[fold.test]
            chosen = draws(fold, LOCAL_RUNS, 1, SEED)
            if not chosen:
                continue
            print(f"margins: {app}, {len(test)} runs", file=sys.stderr, flush=True)
            train = runs.iloc[fold.train]
            answers = VoxcastContender(train, FAMILIES, SEED).predict(test, runs.iloc[chosen[0]])
            parts.append(test.join(answers))
    runs = pd.concat(parts)
    runs = runs[(runs["cpus"] == 1) & ~runs["noisy"].astype(bool)]
    halves = runs["subject"].astype(str).map(lambda name: int(side(name, SEED, 0.5) == "test"))
    return runs.assign(half=halves)


@dataclass(frozen=True)
class Job:
    """A run on a laboratory's clock, and what is known of it; others' jobs have no rows."""

    app: str
    runtime_s: float
    peak_bytes: float
    row: dict[str, Any]
    submitted_s: float = 0.0
    cpus: int = 1
    is_ours: bool = True


def job_set(runs: pd.DataFrame, rng: np.random.Generator) -> list[Job]:
    """Draw the jobs of a set, by application, and the jobs of others."""
    jobs = []
    for app, count in JOBS.items():
        of = runs[runs["app"] == app]
        for run in of.iloc[rng.integers(0, len(of), count)].to_dict("records"):
            row = {
                name: TIME_SCALE * run[name] if "runtime" in name else run[name]
                for name in ("runtime_s_median", "runtime_s_upper", "peak_rss_bytes_median",
                             "peak_rss_bytes_upper")
            }  # fmt: skip
            others = of[of["subject"] != run["subject"]]
            row["longest_s"] = TIME_SCALE * float(others["runtime_s"].max())
            row["quantile_s"] = TIME_SCALE * float(others["runtime_s"].quantile(0.95))
            row["largest_bytes"] = float(others["peak_rss_bytes"].max())
            jobs.append(Job(app, TIME_SCALE * run["runtime_s"], run["peak_rss_bytes"] / 4, row))
    rng.shuffle(jobs)
    for n in range(OTHERS):
        run_s = float(rng.uniform(60, 600))
        row = {"asked_s": run_s * float(rng.uniform(1.2, 8))}
        arrival_s = 0.0 if n < OTHERS // 4 else float(rng.uniform(0, OTHERS_OVER_S))
        memory = float(rng.choice((0.25, 0.5, 1.0))) * 9e8
        cpus = int(rng.choice((1, 1, 2, 4)))
        jobs.append(Job("others", run_s, memory, row, arrival_s, cpus, is_ours=False))
    return jobs


Arm = Callable[[Job], Task]


def by_rule(walltime_s: float, memory_bytes: float) -> Task:
    """Return a task with one request for all."""
    walltime_s = min(float(stepped(walltime_s, STEP_S)), DEFAULT_S)
    sequence = RequestSequence((walltime_s,), (int(memory_bytes),), 1)
    return Task("job", "image", sequence, max_walltime_s=DEFAULT_S, max_memory_bytes=NODE_BYTES)


def with_margin(margin: float) -> Arm:
    """Return how voxcast requests with a margin on the bound of time."""

    def task(job: Job) -> Task:
        bound_s = max(job.row["runtime_s_upper"], job.row["runtime_s_median"])
        memory = (1 + MEMORY_MARGIN) * job.row["peak_rss_bytes_upper"] / 4
        row = job.row | {
            "walltime_s": min(float(stepped((1 + margin) * bound_s, STEP_S)), DEFAULT_S),
            "memory_bytes": int(stepped(memory, STEP_BYTES)), "partition": "", "device": "cpu",
            "cpus": 1, "gpus": 0, "usd_bound": 0.0, "risk": 0.1,
        }  # fmt: skip
        return tasks_of(["image"], [row], CONFIDENCE, [(DEFAULT_S, NODE_BYTES)], STEP_S)[0]

    return task


ARMS: dict[str, Arm] = {
    "rule": lambda job: by_rule(RULE * job.row["longest_s"], RULE * job.row["largest_bytes"] / 4),
    "default": lambda job: by_rule(DEFAULT_S, DEFAULT_BYTES),
    "95th percentile": lambda job: by_rule(
        job.row["quantile_s"], RULE * job.row["largest_bytes"] / 4
    ),
    **{f"bound + {100 * margin:.0f} %": with_margin(margin) for margin in MARGINS},
    "clairvoyant": lambda job: by_rule(job.runtime_s + 1, job.peak_bytes + 1),
}


@dataclass
class Node:
    """Free cores and memory, and what runs: the time by which it ends at the latest."""

    cores: int = CORES
    memory: float = NODE_BYTES


@dataclass
class Waiting:
    """A job in the queue, with its attempts so far."""

    job: Job
    task: Task
    request: Request
    attempts: tuple[Attempt, ...]
    since_s: float


def simulate(jobs: Sequence[Job], arm: Arm) -> dict[str, float]:
    """Return the figures of a set, when requests are those of an arm."""
    counter = itertools.count()
    arrivals = sorted(jobs, key=lambda job: job.submitted_s)
    nodes = [Node() for _ in range(NODES)]
    queue: list[Waiting] = []
    running: list[tuple[float, int, float, int, Waiting, Outcome]] = []
    waits, ends = [], []
    requested_h = held = kills = 0.0
    now = 0.0
    while arrivals or queue or running:
        while arrivals and arrivals[0].submitted_s <= now:
            job = arrivals.pop(0)
            task = arm(job) if job.is_ours else by_rule(job.row["asked_s"], job.peak_bytes)
            request = replace(task.requests.first, cpus=job.cpus)
            queue.append(Waiting(job, task, request, (), now))
        for waiting, place in started(queue, nodes, running, now):
            request, job = waiting.request, waiting.job
            is_small = job.peak_bytes > request.memory_bytes
            outcome: Outcome = "completed"
            lasted_s = job.runtime_s
            if is_small and job.runtime_s / 2 < request.walltime_s:
                outcome, lasted_s = "out_of_memory", job.runtime_s / 2
            elif job.runtime_s > request.walltime_s:
                outcome, lasted_s = "timeout", request.walltime_s
            nodes[place].cores -= request.cpus
            nodes[place].memory -= request.memory_bytes
            heapq.heappush(
                running,
                (now + lasted_s, next(counter), now + request.walltime_s, place, waiting, outcome),
            )
            if job.is_ours:
                waits.append(now - waiting.since_s)
                requested_h += request.walltime_s / 3600
                held += lasted_s / 3600
                kills += outcome != "completed"
        times = [job.submitted_s for job in arrivals[:1]] + [entry[0] for entry in running[:1]]
        now = min(times)
        while running and running[0][0] <= now:
            _, _, _, place, waiting, outcome = heapq.heappop(running)
            nodes[place].cores += waiting.request.cpus
            nodes[place].memory += waiting.request.memory_bytes
            if outcome == "completed":
                ends += [now] if waiting.job.is_ours else []
                continue
            attempts = (*waiting.attempts, Attempt(waiting.request, outcome))
            step = next_request(waiting.task.requests, attempts, waiting.task.limits(Limits()))
            if isinstance(step, Request):
                queue.append(Waiting(waiting.job, waiting.task, step, attempts, now))
    return {
        "makespan": max(ends), "mean_wait": sum(waits) / sum(job.is_ours for job in jobs) + 1.0,
        "asked_core_h": requested_h, "held_core_h": held, "kills": kills,
        "unfinished": sum(job.is_ours for job in jobs) - len(ends),
    }  # fmt: skip


def started(
    queue: list[Waiting], nodes: list[Node], running: Sequence[tuple[Any, ...]], now: float
) -> list[tuple[Waiting, int]]:
    """Take the jobs that start now out of the queue; they are given their node."""
    free = [[node.cores, node.memory] for node in nodes]
    chosen: list[tuple[Waiting, int]] = []
    blocked: tuple[int, float] | None = None  # the node and the time that the first is given
    for waiting in list(queue):
        request = waiting.request
        for place, (cores, memory) in enumerate(free):
            fits = cores >= request.cpus and memory >= request.memory_bytes
            if fits and blocked is not None and place == blocked[0]:
                fits = now + request.walltime_s <= blocked[1]
            if fits:
                free[place][0] -= request.cpus
                free[place][1] -= request.memory_bytes
                chosen.append((waiting, place))
                queue.remove(waiting)
                break
        else:
            if blocked is None:
                blocked = reserved(request, free, running, chosen, now)
    return chosen


def reserved(
    request: Request,
    free: Sequence[Sequence[float]],
    running: Sequence[tuple[Any, ...]],
    chosen: Sequence[tuple[Waiting, int]],
    now: float,
) -> tuple[int, float]:
    """Return the node on which a job can start first, and when, by what others requested."""
    first = (0, np.inf)
    for place in range(NODES):
        cores, memory = free[place]
        latest = [(entry[2], entry[4].request) for entry in running if entry[3] == place]
        latest += [(now + w.request.walltime_s, w.request) for w, at in chosen if at == place]
        for end_s, other in sorted(latest, key=lambda pair: pair[0]):
            cores, memory = cores + other.cpus, memory + other.memory_bytes
            if cores >= request.cpus and memory >= request.memory_bytes:
                if end_s < first[1]:
                    first = (place, end_s)
                break
    return first


def figures_of(runs: pd.DataFrame) -> dict[str, Any]:
    """Return by arm the ratios to the rule with their intervals over job sets, and kills a set."""
    by_arm: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    for number in range(SETS):
        jobs = job_set(runs, np.random.default_rng([SEED, number]))
        for name, arm in ARMS.items():
            by_arm[name].append(simulate(jobs, arm))
    tables = {name: pd.DataFrame(rows) for name, rows in by_arm.items()}
    arms: dict[str, Any] = {}
    for name, table in tables.items():
        arms[name] = {"kills": float(table["kills"].mean()),
                      "unfinished": float(table["unfinished"].sum())}  # fmt: skip
        for figure in FIGURES:
            logs = np.log((table[figure] / tables["rule"][figure]).to_numpy(dtype=float))
            low, high = np.exp(np.quantile(logs, [0.025, 0.975]))
            arms[name][figure] = [float(np.exp(logs.mean())), float(low), float(high)]
    return arms


if __name__ == "__main__":
    sys.exit(main())
