"""A hundred jobs requested by a rule and by voxcast, on a private Slurm, in rounds of other jobs.

Each round submits a set of `worth_requests` by ``voxcast submit``, of subjects by which no margin
was chosen, while jobs of others come and go, and writes what became of every attempt to
``results/worth/rounds``. The order of the two is drawn anew in each round; a round that is on
record is not made again. Their figures are in ``results/worth/rounds.json``::

    python benchmarks/worth.py

A job waits as long as its recorded run took. The clock of the laboratory runs `CLOCK` times as
fast as time, by Debian's ``faketime``: Slurm counts requested time in minutes and checks limits
every 30 s, too coarse for jobs of seconds.

Ratios are of a round against the same round of the rule, with the same jobs and jobs of others;
their interval is that of a mean of logarithms, by Student's law over the rounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from private_slurm import PrivateSlurm
from voxcast.files import read_json, write_json
from voxcast.jobs.state import SubmissionState
from voxcast.jobs.submission import Plan, Submission
from voxcast.jobs.task import Limits, task_names
from voxcast.records import App
from worth_requests import (
    ARMS,
    MEMORY_SCALE,
    NODE_BYTES,
    NODES,
    OTHERS_NAME,
    SEED,
    Job,
    job_set,
    other_jobs,
)

FOLDER = Path("results/worth")
ROUND_ARMS = ("rule", "voxcast")
SHELL_MB = 9.0  # of perl and the script's shell, which count as well
# Holds the memory in the second half of the run, as long as its image says.
PROGRAM = """my ($image, $out) = @ARGV;
open my $file, '<', $image or die; my ($seconds, $megabytes) = split ' ', <$file>;
my $half = int($seconds / 2); sleep $half;
my $held = 'x' x int($megabytes * 1e6); sleep $seconds - $half;
open my $done, '>', "$out/done" or die; print $done length $held;
"""
CLOCK = 20
CLOCK_VARIABLE = "VOXCAST_WORTH_CLOCK"  # set in the process whose clock runs faster
ROUNDS = 3
ROUND_LIMIT_S = 6 * 3600.0  # by the laboratory's clock
COLUMNS = "JobID,State,Eligible,Start,End,ElapsedRaw,ReqCPUS,ReqMem,TimelimitRaw"
RATIOS = (
    "makespan_s", "mean_wait_s", "mean_turnaround_s", "asked_core_h", "held_core_h", "asked_gb_h",
    "held_gb_h", "others_mean_wait_s",
)  # fmt: skip
HOUR_S, GB = 3600.0, 1e9


def write_inputs(jobs: list[Job], folder: Path) -> Path:
    """Write the program and an input for each job; return the program."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "job.pl"
    program.write_text(PROGRAM)
    for job in jobs:
        held_mb = max(job.peak_bytes / MEMORY_SCALE / 1e6 - SHELL_MB, 1.0)
        input_path(folder, job).write_text(f"{round(job.runtime_s)} {held_mb:.1f}\n")
    return program


def input_path(folder: Path, job: Job) -> Path:
    """Return the input of a job."""
    return folder / f"{job.app}-{job.name}.txt"


def plan_of(arm: str, jobs: list[Job], folder: Path) -> Plan:
    """Return the plan of the jobs of one application."""
    program = folder / "job.pl"
    app = App(jobs[0].app, "1", argv=("perl", str(program), "{image}", "{out}"))
    tasks = ARMS[arm](jobs, [str(input_path(folder, job)) for job in jobs])
    return Plan(app, tuple(tasks), cluster="lab", limits=Limits())


def submitted(arm: str, jobs: list[Job], folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start a submission for each application."""
    processes = []
    for app in sorted({job.app for job in jobs}):
        of_app = [job for job in jobs if job.app == app]
        plan = folder / f"{app}.json"
        plan.write_text(json.dumps(plan_of(arm, of_app, folder.parent / "inputs").to_record()))
        with (folder / f"{app}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "voxcast.cli", "submit", str(plan),
                     "--out", str(folder / app)],
                    stdout=log, stderr=log,
                )
            )  # fmt: skip
    return processes


def run_round(slurm: PrivateSlurm, arm: str, number: int, folder: Path) -> Any:
    """Make one round and return its record."""
    jobs, others = job_set(FOLDER / "jobs.json", "confirm", number), other_jobs(number)
    write_inputs(jobs, folder.parent / "inputs")
    folder.mkdir(parents=True)
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


def main() -> int:
    """Make the rounds that are not on record, and write the figures of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    chance = random.Random(SEED)  # noqa: S311
    todo = {
        FOLDER / "rounds" / f"{number}-{arm}.json": (number, arm)
        for number in range(1, args.rounds + 1)
        for arm in chance.sample(ROUND_ARMS, len(ROUND_ARMS))
    }
    todo = {path: place for path, place in todo.items() if not path.exists()}
    if todo and CLOCK_VARIABLE not in os.environ:
        if shutil.which("faketime") is None:
            print("faketime is not installed: apt-get install faketime", file=sys.stderr)
            return 2
        os.environ[CLOCK_VARIABLE] = str(CLOCK)
        command = ["faketime", "-f", f"+0 x{CLOCK}", sys.executable, *sys.argv]
        os.execvp(command[0], command)  # noqa: S606
    if todo:
        make_rounds(todo)
    write_json(FOLDER / "rounds.json", summary([read_json(p) for p in round_files(FOLDER)]))
    return 0


def make_rounds(todo: dict[Path, tuple[int, str]]) -> None:
    """Make rounds on a private Slurm, each with its record in a file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory_mb = round(NODE_BYTES / MEMORY_SCALE / 1e6)
        slurm = PrivateSlurm(
            folder / "slurm", NODES, "cgroup", clock=CLOCK, node_memory_mb=memory_mb
        )
        with slurm:
            os.environ |= slurm.environment
            for path, (number, arm) in todo.items():
                print(f"round {number}: {arm}", file=sys.stderr, flush=True)
                write_json(path, run_round(slurm, arm, number, folder / path.stem))


def round_files(folder: Path) -> list[Path]:
    """Return the records of the rounds."""
    return sorted((folder / "rounds").glob("*.json"))


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of rounds, and the ratios of their ways of asking."""
    rounds = sorted(map(figures, records), key=lambda r: (ROUND_ARMS.index(r["arm"]), r["round"]))
    return {"rounds": rounds, "ratios": ratios(rounds, *reversed(ROUND_ARMS))}


if __name__ == "__main__":
    sys.exit(main())
