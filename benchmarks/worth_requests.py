"""Sets of a hundred jobs, the jobs of others that they meet, and the ways to request them.

A job is a recorded run: it takes as long, and half of that time its recorded peak of memory. Its
seconds last `TIME_SCALE` seconds of the laboratory's clock, and its memory is divided by
`MEMORY_SCALE`, so that a hundred of them run on one small machine in minutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast import config
from voxcast.allocation.site import stepped
from voxcast.files import read_json
from voxcast.jobs.task import RequestSequence, Task, task_names, tasks_of

JOBS = {"ants_segment": 50, "ants_register": 25, "tile_segment": 25}
TIME_SCALE, MEMORY_SCALE = 15.0, 4.0
STEP_S, STEP_BYTES = 60.0, 2**20
NODES, CORES, NODE_BYTES = 4, 4, 8e9
# What a user of the site asks for who does not think about it: of a node of four cores and 8 GB,
# half the memory, for the longest time.
DEFAULT_S, DEFAULT_BYTES = 7200.0, 4e9
RULE_FACTOR = 1.2  # of the largest run of the application on record
POLICY = config.current_site(Path(__file__).parents[1] / "conf").policy
PARTITION = "debug"
SEED = 7
# Jobs of others: they are there before, and arrive while the hundred wait. They know as little.
OTHERS, OTHERS_OVER_S, OTHERS_NAME = 24, 2000.0, "others"
OTHERS_CPUS, OTHERS_GB = (1, 1, 2, 4), (1, 2, 4)
OTHERS_RUN_S, OTHERS_ASKED_OVER_USED = (60, 600), (1.2, 8.0)


@dataclass(frozen=True)
class Job:
    """A recorded run, in seconds of the laboratory and recorded bytes.

    ``foreseen`` has predictions and the amounts of rules, such as ``runtime_s_upper``.
    """

    app: str
    name: str
    runtime_s: float
    peak_bytes: float
    foreseen: dict[str, float]

    @classmethod
    def from_record(cls, record: Mapping[str, Any], name: str) -> Job:
        """Return the job of a record of ``jobs.json``."""
        foreseen = {
            key: value * (TIME_SCALE if key.startswith("runtime_s") else 1.0)
            for key, value in record.items()
            if key.startswith(("runtime_s_", "peak_rss_bytes_"))
        }
        runtime_s, peak_bytes = TIME_SCALE * record["runtime_s"], record["peak_rss_bytes"]
        return cls(record["app"], name, runtime_s, peak_bytes, foreseen)


def job_set(path: Path, half: str, number: int) -> list[Job]:
    """Draw a set from the runs of half of the subjects in ``jobs.json``."""
    records = [record for record in read_json(path)["jobs"] if record["half"] == half]
    chance = random.Random(f"{SEED}-{half}-{number}")  # noqa: S311
    return [
        Job.from_record(record, f"{n:02}-{record['subject']}")
        for app, count in JOBS.items()
        for n, record in enumerate(
            chance.sample([record for record in records if record["app"] == app], count)
        )
    ]


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


def other_jobs(number: int) -> list[OtherJob]:
    """Return the jobs of others that a set meets, in the order of their arrival."""
    chance = random.Random(f"{SEED}-{number}")  # noqa: S311
    jobs = []
    for n in range(OTHERS):
        arrival_s = 0.0 if n < OTHERS // 4 else chance.uniform(0, OTHERS_OVER_S)
        run_s = round(chance.uniform(*OTHERS_RUN_S))
        minutes = max(2, round(run_s * chance.uniform(*OTHERS_ASKED_OVER_USED) / 60))
        memory_mb = round(chance.choice(OTHERS_GB) * 900 / MEMORY_SCALE)
        jobs.append(OtherJob(arrival_s, chance.choice(OTHERS_CPUS), memory_mb, run_s, minutes))
    return sorted(jobs, key=lambda job: job.arrival_s)


Arm = Callable[[Sequence[Job], Sequence[str]], list[Task]]


Amounts = tuple[Sequence[float], Sequence[float]]


def requesting(amounts: Callable[[Job], Amounts]) -> Arm:
    """Return the arm that asks for times and memories, the next one after each failure."""

    def tasks(jobs: Sequence[Job], images: Sequence[str]) -> list[Task]:
        sequences = (_sequence(*amounts(job)) for job in jobs)
        named = zip(task_names(images), images, sequences, strict=True)
        return [
            Task(name, image, requests, max_walltime_s=DEFAULT_S,
                 max_memory_bytes=NODE_BYTES / MEMORY_SCALE)
            for name, image, requests in named
        ]  # fmt: skip

    return tasks


def _sequence(times_s: Sequence[float], memories: Sequence[float]) -> RequestSequence:
    rounded_s = sorted({min(_up(time_s, STEP_S), DEFAULT_S) for time_s in times_s})
    scaled = sorted({_scaled(memory) for memory in memories})
    return RequestSequence(tuple(rounded_s), tuple(scaled), 1, partition=PARTITION)


def by_rule(*rules: str, factor: float = 1.0) -> Arm:
    """Return the arm of rules of ``jobs.json``, times a factor, one after the other."""
    return requesting(
        lambda job: (
            [factor * job.foreseen[f"runtime_s_{rule}"] for rule in rules],
            [factor * job.foreseen[f"peak_rss_bytes_{rule}"] for rule in rules],
        )
    )


def by_image(time_margin: float) -> Arm:
    """Return the arm of ``voxcast submit``, with a margin on the bound of time."""

    def tasks(jobs: Sequence[Job], images: Sequence[str]) -> list[Task]:
        rows = [_recommended(job.foreseen, time_margin) for job in jobs]
        limits = [(DEFAULT_S, NODE_BYTES / MEMORY_SCALE)] * len(jobs)
        return tasks_of(images, rows, POLICY.confidence, limits, STEP_S)

    return tasks


def _recommended(foreseen: Mapping[str, float], time_margin: float) -> dict[str, Any]:
    """Return the request as ``voxcast recommend --json`` writes it."""
    bound_s = max(foreseen["runtime_s_upper"], foreseen["runtime_s_median"])
    needed = (1 + POLICY.memory_margin) * foreseen["peak_rss_bytes_upper"]
    return {
        "walltime_s": min(_up((1 + time_margin) * bound_s, STEP_S), DEFAULT_S),
        "memory_bytes": _scaled(needed),
        "runtime_s_median": foreseen["runtime_s_median"],
        "runtime_s_upper": foreseen["runtime_s_upper"],
        "peak_rss_bytes_median": foreseen["peak_rss_bytes_median"],
        "partition": PARTITION, "device": "cpu", "cpus": 1, "gpus": 0, "usd_bound": 0.0,
        "risk": POLICY.risk,
    }  # fmt: skip


def _scaled(memory_bytes: float) -> int:
    return int(_up(memory_bytes / MEMORY_SCALE, STEP_BYTES))


def _up(value: float, step: float) -> float:
    return float(stepped(value, step))


ARMS: dict[str, Arm] = {
    "default": requesting(lambda _: ([DEFAULT_S], [DEFAULT_BYTES])),
    "rule": by_rule("largest", factor=RULE_FACTOR),
    "voxcast": by_image(POLICY.time_margin),
    "95th percentile": by_rule("percentile"),
    "first allocation": by_rule("first", "largest"),
    "line": by_rule("line"),
    "line × 1.5": by_rule("line", factor=1.5),
    "clairvoyant": requesting(lambda job: ([job.runtime_s + 1], [1.01 * job.peak_bytes])),
}
