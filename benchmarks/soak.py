"""A pool whose workers are killed at random until its cells are done; counts what was lost.

Each worker is a process of ``voxcast work``. Four of them are a node: some kills are of a single
worker, some of a node with all its workers and their runs. Killed workers are started again. At
the end every cell must be in the history exactly once, no ticket may be held, and no record lost.
With ``--slurm`` the workers are jobs of a private Slurm, and their follower is killed as well.
Writes JSON with kills and outcome; the exit status is 1 if anything was lost or made twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

CELLS, WORKERS, WORKERS_PER_NODE = 300, 16, 4
RUN_S = (0.1, 0.6)
SLURM_JOBS = 8  # of a pass
NODE_SHARE = 0.15  # of the kills that take a node
PLACES = ("held", "ended", "partial")


def soak_pool(folder: Path, cells: int) -> Any:
    """Return a pool of short cells."""
    from voxcast.jobs.campaign import work_command, worker_app
    from voxcast.jobs.submission import Draw, Plan, Submission
    from voxcast.jobs.task import Limits
    from voxcast.measure.trace import Conditions
    from voxcast.records import App

    app = App(
        "nap", "1", argv=("sleep", "{seconds}"), input="none", parameters={"seconds": RUN_S[0]}
    )
    draw = Draw({"nap": app}, {}, str(folder), conditions=Conditions(metronome=False))
    limits = Limits(max_attempts=10**6)  # a worker that dies says nothing of its cell
    worker = worker_app("soak", work_command(folder / "pool", "--cpus", "1"))
    pool = Submission.of_workers(folder / "pool", Plan(worker, limits=limits, draw=draw))
    add_cells(pool, 0, cells)
    return pool


def add_cells(pool: Any, first: int, count: int) -> None:
    """Add short cells to a pool."""
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.submission import Submission
    from voxcast.jobs.task import RequestSequence, Task
    from voxcast.records import Cell, Configuration

    configuration, requests = Configuration("cpu", 1), RequestSequence((60.0,), (10**7,), 1)
    chance = random.Random(first)  # noqa: S311
    cells = [
        Task.of_cell(
            Cell("nap", "1", {"seconds": round(chance.uniform(*RUN_S), 2)}, "", "", configuration,
                 "full_scale", repeat, ""),
            requests,
            60.0,  # so that a pass has all its jobs
        )
        for repeat in range(first, first + count)
    ]  # fmt: skip
    with claimed(pool.folder, patience_s=60.0):
        Submission.of_workers(pool.folder, replace(pool.plan, tasks=tuple(cells)))
    settle(pool)


def settle(pool: Any) -> Any:
    """Settle what workers left; return the state of all cells."""
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower
    from voxcast.jobs.submission import Submission

    with claimed(pool.folder, patience_s=60.0) as claim:
        follower = Follower(Submission.open(pool.folder), claim=claim)
        follower.settle()
    return follower.state


@dataclass
class Workers:
    """The workers of the soak, by place; four places are a node."""

    pool: Any
    places: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    exits: Counter[int] = field(default_factory=Counter)

    def start(self, count: int) -> None:
        """Start a worker at each place that has none."""
        command = [sys.executable, "-m", "voxcast.jobs.worker", "--pool", str(self.pool.folder)]
        options = ["--cpus", "1", "--memory", "1GB"]
        for place in range(count):
            worker = self.places.get(place)
            if worker is not None and worker.poll() is not None:
                self.exits[worker.returncode] += 1
                del self.places[place]
            if place not in self.places:
                self.places[place] = subprocess.Popen(
                    [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                self.started += 1

    def kill(self, chance: random.Random) -> None:
        """Kill a worker, or all of a node."""
        place = chance.choice(sorted(self.places))
        is_node = chance.random() < NODE_SHARE
        node = place // WORKERS_PER_NODE
        victims = [p for p in self.places if p // WORKERS_PER_NODE == node] if is_node else [place]
        self.kills["nodes" if is_node else "workers"] += 1
        for victim in victims:
            worker = self.places.pop(victim)
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            if worker.wait() == -signal.SIGKILL:
                self.kills["processes"] += 1

    def end(self) -> None:
        """Wait for the workers that are left."""
        for worker in self.places.values():
            worker.wait()


def soak(folder: Path, cells: int, workers: int, kills: int | None, seed: int) -> dict[str, Any]:
    """Run it until the cells are done, and as many workers killed, on more cells if need be."""
    chance = random.Random(seed)  # noqa: S311
    pool, start = soak_pool(folder, cells), time.monotonic()
    fleet = Workers(pool)
    while True:
        recorded, killed = len(settle(pool).records), fleet.kills["processes"]
        if recorded == cells and killed >= (kills or 0):
            break
        if recorded == cells:
            add_cells(pool, cells, CELLS)
            cells += CELLS
        fleet.start(workers)
        time.sleep(chance.uniform(0.2, 1.5))
        if kills is None or killed < kills:
            fleet.kill(chance)
        counts = f"{recorded} of {cells} cells on record, {killed} workers killed"
        print(f"\r{counts}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    fleet.end()
    fleet.places.clear()
    settle(pool)  # puts right what the last kills left
    return {
        **outcome(folder, pool),
        "kills": dict(fleet.kills),
        "workers_started": fleet.started,
        "workers": workers,
        "seed": seed,
        "elapsed_s": round(time.monotonic() - start, 1),
    }


def follow_on_slurm(folder: Path) -> None:
    """Submit pass after pass of workers; restarted after each kill."""
    from voxcast.jobs.campaign import jobs_for
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.slurm import SlurmExecutor
    from voxcast.jobs.submission import Submission

    with claimed(folder) as claim:
        pool = Submission.open(folder)
        follower = Follower(pool, SlurmExecutor(pool), claim)

        def next_jobs(waiting: Any) -> Any:
            tasks = follower.state.tasks
            return jobs_for(
                pool.plan, tasks, waiting, lambda _: "debug", max_jobs=SLURM_JOBS, least_s=60.0
            )

        follower.next_jobs, follower.most_passes = next_jobs, 10**6
        follow(follower, 1.0)


def workers_alive(pool: Any) -> list[int]:
    """Return the processes of workers, by the names of what they hold."""
    pids = []
    for path in (pool.folder / "draw" / "held").glob("[!.]*"):
        pid = path.name.split("~")[1].split("-")[1]
        with contextlib.suppress(OSError):  # a number may be that of another process by now
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"voxcast.cli" in words:
                pids.append(int(pid))
    return pids


def recorded_cells(pool: Any) -> int:
    """Return how many cells are on record."""
    from voxcast.jobs.state import SubmissionState

    return len(SubmissionState.of(pool.plan, pool.events()).records)


def soak_on_slurm(folder: Path, cells: int, kills: int, seed: int) -> dict[str, Any]:
    """Kill workers that are jobs of a private Slurm, and the process that follows them."""
    from private_slurm import PrivateSlurm
    from voxcast.errors import RunError

    chance, killed = random.Random(seed), Counter[str]()  # noqa: S311
    with PrivateSlurm(folder / "slurm", nodes=3) as slurm:
        os.environ.update(slurm.environment)
        pool, start, follower, followers = soak_pool(folder, cells), time.monotonic(), 0, 0
        while True:
            if follower and os.waitpid(follower, os.WNOHANG)[0]:
                follower = 0
            recorded = recorded_cells(pool)
            if recorded == cells and killed.total() >= kills:
                break
            if recorded == cells and not follower:
                add_cells(pool, cells, CELLS)
                cells += CELLS
            if not follower:
                follower, followers = os.fork(), followers + 1
                if follower == 0:
                    with contextlib.suppress(RunError):
                        follow_on_slurm(pool.folder)
                    os._exit(0)
            time.sleep(chance.uniform(0.1, 0.6))
            alive = workers_alive(pool)
            if killed.total() < kills and alive and chance.random() < 0.9:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(alive), signal.SIGKILL)
                    killed["workers"] += 1
            elif killed.total() < kills and alive:
                os.kill(follower, signal.SIGKILL)
                killed["followers"] += 1
            counts = f"{recorded} of {cells} cells on record, {dict(killed)} killed"
            print(f"\r{counts}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        if follower:
            os.waitpid(follower, 0)
        return {
            **outcome(folder, pool), "kills": dict(killed), "followers_started": followers,
            "seed": seed, "elapsed_s": round(time.monotonic() - start, 1),
        }  # fmt: skip


def outcome(folder: Path, pool: Any) -> dict[str, Any]:
    """Return what is on record, and what is not as it should be."""
    from voxcast.runs.store import collect, load_history

    collect(pool.out, folder / "history")
    history = load_history([folder / "history"])
    state, places = settle(pool), pool.folder / "draw"
    attempts = [a for name in state.tasks for a in state.attempts(name)]
    keys, left = state.tasks.keys(), {p: len(list((places / p).glob("[!.]*"))) for p in PLACES}
    return {
        "cells": len(keys),
        "in_the_history": len(history),
        "not_in_the_history": len(set(state.records.values()) - set(history["cell_key"])),
        "more_than_once": len(history) - int(history["cell_key"].nunique()),
        "not_done": len(keys - state.records.keys()),
        "claims_left": left["held"] + left["ended"],
        "partial_runs_left": left["partial"],
        "taken_back_from_dead_workers": sum(a.outcome != "completed" for a in attempts),
    }


def main() -> int:
    """Run the soak and write its outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=CELLS, help="at first")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--kills", type=int, help="go on until so many workers were killed")
    parser.add_argument("--slurm", action="store_true", help="workers are jobs of a private Slurm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file to write; default: print only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if args.slurm:
            figures = soak_on_slurm(Path(name), args.cells, args.kills or CELLS, args.seed)
        else:
            figures = soak(Path(name), args.cells, args.workers, args.kills, args.seed)
    figures["lost_or_twice"] = (
        figures["not_in_the_history"] + figures["more_than_once"] + figures["not_done"]
        + abs(figures["cells"] - figures["in_the_history"])
    )  # fmt: skip
    text = json.dumps(figures, indent=2, sort_keys=True) + "\n"
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
    print(text, end="")
    return int(figures["lost_or_twice"] + figures["claims_left"] > 0)


if __name__ == "__main__":
    sys.exit(main())
