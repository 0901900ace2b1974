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
SLURM_JOBS = 8  # of a round
NODE_SHARE = 0.15  # of the kills that take a node


def soak_pool(folder: Path, cells: int) -> Any:
    """Return a pool of short cells."""
    from voxcast.jobs.escalate import Limits
    from voxcast.jobs.pool import PoolSettings, make_pool
    from voxcast.measure.trace import Conditions
    from voxcast.records import App

    app = App(
        "nap", "1", argv=("sleep", "{seconds}"), input="none", parameters={"seconds": RUN_S[0]}
    )
    settings = PoolSettings(
        "soak", {"nap": app}, {}, str(folder),
        conditions=Conditions(metronome=False),
        limits=Limits(max_attempts=10**6),  # a worker that dies says nothing of its cell
    )  # fmt: skip
    pool = make_pool(folder / "pool", settings)
    add_cells(pool, 0, cells)
    return pool


def add_cells(pool: Any, first: int, count: int) -> None:
    """Add short cells to a pool."""
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.escalate import RequestSequence
    from voxcast.jobs.pool import PoolCell
    from voxcast.jobs.settle import Ledger
    from voxcast.records import Cell, Configuration

    configuration, requests = Configuration("cpu", 1), RequestSequence((60.0,), (10**7,), 1)
    chance = random.Random(first)  # noqa: S311
    cells = [
        PoolCell(
            Cell("nap", "1", {"seconds": round(chance.uniform(*RUN_S), 2)}, "", "", configuration,
                 "full_scale", repeat, ""),
            requests,
            RUN_S[1],
        )
        for repeat in range(first, first + count)
    ]  # fmt: skip
    with claimed(pool.folder, patience_s=60.0) as claim:
        Ledger(pool, claim).add(cells)


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
        command = [sys.executable, "-m", "voxcast.cli", "work", "--pool", str(self.pool.folder)]
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
    from voxcast.jobs.settle import Ledger

    chance = random.Random(seed)  # noqa: S311
    pool, start = soak_pool(folder, cells), time.monotonic()
    fleet = Workers(pool)
    while True:
        recorded, killed = len(Ledger(pool).recorded), fleet.kills["processes"]
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
    fleet.start(1)  # puts right what the last kills left
    fleet.end()
    return {
        **outcome(folder, pool),
        "kills": dict(fleet.kills),
        "workers_started": fleet.started,
        "workers": workers,
        "seed": seed,
        "elapsed_s": round(time.monotonic() - start, 1),
    }


def follow_on_slurm(pool: Any) -> None:
    """Submit round after round of workers; restarted after each kill."""
    from voxcast.jobs.rounds import Rounds, following, work_command, worker_plan
    from voxcast.jobs.settle import Ledger
    from voxcast.jobs.submission import SlurmOptions

    command = work_command(pool, "--cpus", "1")
    with following(pool.folder) as claim:
        Rounds(
            Ledger(pool, claim), claim,
            lambda jobs: worker_plan(
                "soak", command, replace(jobs, count=SLURM_JOBS), "debug", SlurmOptions()
            ),
            lambda: None, 1.0, 10**6, SLURM_JOBS, 60.0,
        ).run()  # fmt: skip


def workers_alive(pool: Any) -> list[int]:
    """Return the processes of workers, by their files in the pool."""
    pids = []
    for path in pool.workers.glob("[!.]*.json"):
        content = json.loads(path.read_text() or "{}")
        with contextlib.suppress(OSError):  # a number may be that of another process by now
            words = Path(f"/proc/{content.get('pid')}/cmdline").read_bytes().split(b"\0")
            if "ended" not in content and b"voxcast.cli" in words:
                pids.append(int(content["pid"]))
    return pids


def soak_on_slurm(folder: Path, cells: int, kills: int, seed: int) -> dict[str, Any]:
    """Kill workers that are jobs of a private Slurm, and the process that follows them."""
    from private_slurm import PrivateSlurm
    from voxcast.errors import RunError
    from voxcast.jobs.settle import Ledger

    chance, killed = random.Random(seed), Counter[str]()  # noqa: S311
    with PrivateSlurm(folder / "slurm", nodes=3) as slurm:
        os.environ.update(slurm.environment)
        pool, start, follower, followers = soak_pool(folder, cells), time.monotonic(), 0, 0
        while True:
            if follower and os.waitpid(follower, os.WNOHANG)[0]:
                follower = 0
            recorded = len(Ledger(pool).recorded)
            if recorded == cells and killed.total() >= kills:
                break
            if recorded == cells and not follower:
                add_cells(pool, cells, CELLS)
                cells += CELLS
            if not follower:
                follower, followers = os.fork(), followers + 1
                if follower == 0:
                    with contextlib.suppress(RunError):
                        follow_on_slurm(pool)
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
    from voxcast.jobs.settle import Ledger
    from voxcast.jobs.submission import read_events
    from voxcast.runs.store import collect, load_history

    collect(pool.runs, folder / "history")
    history = load_history([folder / "history"])
    ledger, keys = Ledger(pool), pool.cells().keys()
    attempts = [event for event in read_events(pool.events) if event["event"] == "ended"]
    return {
        "cells": len(keys),
        "in_the_history": len(history),
        "not_in_the_history": len(set(ledger.recorded.values()) - set(history["cell_key"])),
        "more_than_once": len(history) - int(history["cell_key"].nunique()),
        "not_done": len(keys - ledger.recorded.keys()),
        "claims_left": len(pool.names("held")) + len(pool.names("ended")),
        "partial_runs_left": len(pool.names("partial")),
        "taken_back_from_dead_workers": len(attempts),
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
