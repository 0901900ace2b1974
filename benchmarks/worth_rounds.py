"""The same hundred jobs asked for in three ways, on a private Slurm, in rounds.

Each round submits the jobs of ``results/worth/jobs.json`` by ``voxcast submit`` while jobs of
others come and go, and writes what became of every attempt. The order of the three is drawn anew
in each round; a round that is on record is not made again::

    python benchmarks/worth_rounds.py --out results/worth/rounds

The clock of the laboratory runs `CLOCK` times as fast as time, by Debian's ``faketime``: Slurm
counts requested time in minutes and checks limits every 30 s, too coarse for jobs of seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from private_slurm import PrivateSlurm
from worth_arms import ARMS, MEMORY_SCALE, Job, plan_of, read_jobs, write_inputs

CLOCK = 20
CLOCK_VARIABLE = "VOXCAST_WORTH_CLOCK"  # set in the process whose clock runs faster
NODES, NODE_BYTES = 4, 8e9  # of four cores each
ROUNDS, SEED = 3, 7
# Jobs of others: they are there before, and arrive while the hundred wait. They know as little.
OTHERS, OTHERS_OVER_S, OTHERS_NAME = 24, 2000.0, "others"
OTHERS_CPUS, OTHERS_GB = (1, 1, 2, 4), (1, 2, 4)
OTHERS_RUN_S, OTHERS_ASKED_OVER_USED = (60, 600), (1.2, 8.0)
ROUND_LIMIT_S = 6 * 3600.0  # by the laboratory's clock
COLUMNS = "JobID,State,Eligible,Start,End,ElapsedRaw,ReqCPUS,ReqMem,TimelimitRaw"


@dataclass(frozen=True)
class OtherJob:
    """A job of somebody else."""

    arrival_s: float
    cpus: int
    memory_mb: int
    run_s: int
    asked_minutes: int

    def command(self) -> list[str]:
        """Return the command that submits it."""
        return [
            "sbatch", "--parsable", f"--job-name={OTHERS_NAME}", f"--cpus-per-task={self.cpus}",
            f"--mem={self.memory_mb}M", f"--time={self.asked_minutes}", "--output=/dev/null",
            f"--wrap=exec sleep {self.run_s}",
        ]  # fmt: skip


def other_jobs(chance: random.Random) -> list[OtherJob]:
    """Return the jobs of others in the order of their arrival."""
    jobs = []
    for n in range(OTHERS):
        arrival_s = 0.0 if n < OTHERS // 4 else chance.uniform(0, OTHERS_OVER_S)
        run_s = round(chance.uniform(*OTHERS_RUN_S))
        minutes = max(2, round(run_s * chance.uniform(*OTHERS_ASKED_OVER_USED) / 60))
        memory_mb = round(chance.choice(OTHERS_GB) * 900 / MEMORY_SCALE)
        jobs.append(OtherJob(arrival_s, chance.choice(OTHERS_CPUS), memory_mb, run_s, minutes))
    return sorted(jobs, key=lambda job: job.arrival_s)


def submitted(arm: str, jobs: list[Job], folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start a submission for each application."""
    processes = []
    for app in sorted({job.app for job in jobs}):
        of_app = [job for job in jobs if job.app == app]
        plan = folder / f"{app}.json"
        plan.write_text(
            json.dumps(plan_of(arm, of_app, folder.parent / "inputs", NODE_BYTES).to_record())
        )
        with (folder / f"{app}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "voxcast.cli", "submit", "--requests", str(plan),
                     "--out", str(folder / f"out-{app}"), "--folder", str(folder / app),
                     "--stall", "0s"],
                    stdout=log, stderr=log,
                )
            )  # fmt: skip
    return processes


def run_round(slurm: PrivateSlurm, arm: str, number: int, jobs: list[Job], folder: Path) -> Any:
    """Make one round and return its record."""
    folder.mkdir(parents=True)
    others = other_jobs(random.Random(f"{SEED}-{number}"))  # noqa: S311
    began = time.time()
    for other in others:
        if other.arrival_s == 0:
            slurm.command(*other.command())
    processes = submitted(arm, jobs, folder)
    for other in others:
        if other.arrival_s > 0:
            time.sleep(max(0.0, began + other.arrival_s - time.time()))
            slurm.command(*other.command())
    codes = [process.wait(ROUND_LIMIT_S) for process in processes]
    slurm.wait(lambda: not slurm.command("squeue", "-h").stdout.strip(), "the queue", 300)
    return {
        "arm": arm,
        "round": number,
        "began_s": began,
        "exit_codes": codes,
        "jobs": list(_attempts(jobs, folder)),
        "others": _others(slurm, began),
    }


def _attempts(jobs: list[Job], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each job with its attempts, as the record of its submission tells them."""
    from voxcast.jobs.state import SubmissionState
    from voxcast.jobs.submission import Submission
    from voxcast.jobs.task import task_names

    for app in sorted({job.app for job in jobs}):
        submission = Submission.open(folder / app)
        state = SubmissionState.of(submission.plan, submission.events())
        of_app = {
            name: job
            for job in jobs if job.app == app
            for name in task_names([f"{app}-{job.name}.txt"])
        }  # fmt: skip
        for name, job in of_app.items():
            yield {
                "app": app, "name": job.name, "runtime_s": job.runtime_s,
                "peak_bytes": job.peak_bytes, "problem": state.problems.get(name, ""),
                "attempts": [
                    {
                        "array": ended.array,
                        "outcome": ended.attempt.outcome,
                        "walltime_s": ended.attempt.request.walltime_s,
                        "memory_bytes": ended.attempt.request.memory_bytes * MEMORY_SCALE,
                        "ran_s": ended.attempt.runtime_s,
                        **{k: ended.facts[k] for k in ("state", "submitted_at", "started_at")},
                    }
                    for ended in state.ended.get(name, [])
                ],
            }  # fmt: skip


def _others(slurm: PrivateSlurm, began: float) -> list[dict[str, str]]:
    """Return what the accounting tells of the jobs of others of this round."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began - 1))
    text = slurm.command(
        "sacct", "-X", "-P", "-n", f"--name={OTHERS_NAME}", "-S", since, "-o", COLUMNS
    ).stdout
    return [
        dict(zip(COLUMNS.split(","), line.split("|"), strict=True)) for line in text.splitlines()
    ]


def main() -> int:
    """Make the rounds that are not on record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=Path, default=Path("results/worth/jobs.json"))
    parser.add_argument("--out", type=Path, default=Path("results/worth/rounds"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", type=int, metavar="N", help="round N alone")
    parser.add_argument("--first", type=int, help="only so many of the jobs, for a trial")
    args = parser.parse_args()
    if CLOCK_VARIABLE not in os.environ:
        if shutil.which("faketime") is None:
            print("faketime is not installed: apt-get install faketime", file=sys.stderr)
            return 2
        os.environ[CLOCK_VARIABLE] = str(CLOCK)
        command = ["faketime", "-f", f"+0 x{CLOCK}", sys.executable, *sys.argv]
        os.execvp(command[0], command)  # noqa: S606
    jobs = read_jobs(args.jobs)[: args.first]
    chance = random.Random(SEED)  # noqa: S311
    todo = []
    for number in range(1, args.rounds + 1):
        order = chance.sample(ARMS, len(ARMS))
        todo += [(number, arm) for arm in order if args.only in (None, number)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(jobs, folder / "inputs")
        slurm = PrivateSlurm(
            folder / "slurm", NODES, "cgroup", clock=CLOCK,
            node_memory_mb=round(NODE_BYTES / MEMORY_SCALE / 1e6),
        )  # fmt: skip
        with slurm:
            os.environ |= slurm.environment
            for number, arm in todo:
                if _path(args.out, number, arm).exists():
                    continue
                print(f"round {number}: {arm}", file=sys.stderr, flush=True)
                record = run_round(slurm, arm, number, jobs, folder / f"{number}-{arm}")
                path = _path(args.out, number, arm)
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(".partial")
                partial.write_text(json.dumps(record, indent=1) + "\n")
                partial.replace(path)
    return 0


def _path(out: Path, number: int, arm: str) -> Path:
    return out / f"{number}-{arm}.json"


if __name__ == "__main__":
    sys.exit(main())
