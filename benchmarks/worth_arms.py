"""The jobs of `worth_rounds`, and the three ways in which they are asked for.

A job is a recorded run: it waits as long, half of the time with its recorded peak of memory. Its
seconds last `TIME_SCALE` seconds of the laboratory's clock, and its memory is divided by
`MEMORY_SCALE`, so that a hundred of them run on one small machine in minutes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.allocation.site import stepped
from voxcast.jobs.submission import Plan
from voxcast.jobs.task import Limits, RequestSequence, Task, task_names, tasks_of
from voxcast.records import App

ARMS = ("default", "rule", "voxcast")
TIME_SCALE, MEMORY_SCALE = 15.0, 4.0
STEP_S, STEP_BYTES = 60.0, 2**20
# What a user of the site asks for who does not think about it: of a node of four cores and 8 GB,
# half the memory, for the longest time.
DEFAULT_S, DEFAULT_BYTES = 7200.0, 4e9
RULE_FACTOR = 1.2  # of the largest run of the application on record
CONFIDENCE, MEMORY_MARGIN = 0.95, 0.1  # conf/policy/balanced.yaml
PARTITION = "debug"
SHELL_MB = 9.0  # of perl and the script's shell, which count as well
# Holds the memory in the second half of the run, as long as its image says.
PROGRAM = """my ($image, $out) = @ARGV;
open my $file, '<', $image or die; my ($seconds, $megabytes) = split ' ', <$file>;
my $half = int($seconds / 2); sleep $half;
my $held = 'x' x int($megabytes * 1e6); sleep $seconds - $half;
open my $done, '>', "$out/done" or die; print $done length $held;
"""


@dataclass(frozen=True)
class Job:
    """A recorded run and its predictions, in seconds of the laboratory and recorded bytes."""

    app: str
    name: str
    runtime_s: float
    peak_bytes: float
    predicted: dict[str, float]

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Job:
        """Return the job of a record of ``jobs.json``."""
        predicted = {
            f"{name}{end}": TIME_SCALE * record[f"runtime_s{end}"] if name == "runtime_s"
            else record[f"peak_rss_bytes{end}"]
            for name in ("runtime_s", "peak_rss_bytes")
            for end in ("_median", "_upper", "_largest")
        }  # fmt: skip
        return cls(
            record["app"], record["subject"], TIME_SCALE * record["runtime_s"],
            record["peak_rss_bytes"], predicted,
        )  # fmt: skip


def read_jobs(path: Path) -> list[Job]:
    """Read the jobs that ``studies/worth_jobs.py`` drew."""
    return [Job.from_record(record) for record in json.loads(path.read_text())["jobs"]]


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


def plan_of(arm: str, jobs: list[Job], folder: Path, node_bytes: float) -> Plan:
    """Return the plan of the jobs of one application."""
    program = folder / "job.pl"
    app = App(jobs[0].app, "1", argv=("perl", str(program), "{image}", "{out}"))
    images = [str(input_path(folder, job)) for job in jobs]
    limits = (DEFAULT_S, node_bytes / MEMORY_SCALE)
    if arm == "voxcast":
        tasks = _by_image(jobs, images, limits)
    else:
        names = task_names(images)
        tasks = [
            Task(name, image, _common(arm, job), max_walltime_s=limits[0],
                 max_memory_bytes=limits[1])
            for name, image, job in zip(names, images, jobs, strict=True)
        ]  # fmt: skip
    return Plan(app, tuple(tasks), cluster="lab", limits=Limits())


def _common(arm: str, job: Job) -> RequestSequence:
    """Return the request that all jobs of an application share."""
    if arm == "default":
        walltime_s, memory_bytes = DEFAULT_S, DEFAULT_BYTES
    else:
        walltime_s = RULE_FACTOR * job.predicted["runtime_s_largest"]
        memory_bytes = RULE_FACTOR * job.predicted["peak_rss_bytes_largest"]
    return RequestSequence((min(_up(walltime_s, STEP_S), DEFAULT_S),), (_scaled(memory_bytes),), 1,
                           partition=PARTITION)  # fmt: skip


def _by_image(jobs: list[Job], images: list[str], limits: tuple[float, float]) -> list[Task]:
    """Return the tasks as ``voxcast submit`` makes them from a recommendation."""
    rows = [
        {
            "walltime_s": _up(max(job.predicted["runtime_s_upper"],
                                  job.predicted["runtime_s_median"]), STEP_S),
            "memory_bytes": _scaled((1 + MEMORY_MARGIN) * job.predicted["peak_rss_bytes_upper"]),
            "runtime_s_median": job.predicted["runtime_s_median"],
            "runtime_s_upper": job.predicted["runtime_s_upper"],
            "peak_rss_bytes_median": job.predicted["peak_rss_bytes_median"],
            "partition": PARTITION, "device": "cpu", "cpus": 1, "gpus": 0, "usd_bound": 0.0,
            "risk": 2 * (1 - CONFIDENCE),
        }
        for job in jobs
    ]  # fmt: skip
    return tasks_of(images, rows, CONFIDENCE, [limits] * len(jobs), STEP_S)


def _scaled(memory_bytes: float) -> int:
    return int(_up(memory_bytes / MEMORY_SCALE, STEP_BYTES))


def _up(value: float, step: float) -> float:
    return float(stepped(value, step))
