"""Passes of workers over the cells of a submission, and cells that go in parts.

A pass is an array of workers, each job as large as most of the cells need that wait when it
begins; what needs more is left to the next. A cell that is too long for every worker runs in
parts, if its application says how it can be split, see `voxcast.records.App.split`. Parts are
cells like others, and may be split again. Their runs are kept apart in ``part_runs``: the history
gets the joined run alone, whose times are sums, and whose memory is the largest of its parts.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.files import canonical_json, json_text, sync_folder
from voxcast.jobs.draw import MARGIN_S, WORKER_BYTES
from voxcast.jobs.task import Task
from voxcast.measure.runner import LOG_FILE
from voxcast.quantities import counted
from voxcast.records import App, Request, as_fields
from voxcast.runs.series import RECORD_FILE, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.jobs.submission import Plan
    from voxcast.records import Cell, Phase, Run

MAX_PASSES = 10
MAX_JOBS = 1000
SHARE = 0.9  # of the cells that wait, for which a pass is large enough
RUNS_PER_JOB = 4  # a job is long enough for so many of its longest runs
LEAST_S = 3600.0  # starting a job for less is seldom worth it
ANNOUNCE_S = 30.0
PART_RUNS = "part_runs"
MACHINE = (
    "host_id", "host_class", "cpu_model", "sitting", "probe_cpu", "probe_membw", "probe_disk",
)  # fmt: skip


@dataclass(frozen=True)
class WorkerJobs:
    """Jobs with one worker each; `request` is of each job, with the worker's own."""

    request: Request
    count: int

    def __str__(self) -> str:
        return f"{counted(self.count, 'job')} of {self.request.label}"


@dataclass(frozen=True)
class Passes:
    """How workers are submitted, pass after pass.

    Attributes
    ----------
    next_jobs : callable
        Returns the jobs of the next pass for the requests of the cells that wait, by name; None
        if there is nothing to do.
    most : int
        Passes of one command.
    """

    next_jobs: Callable[[Mapping[str, Request]], WorkerJobs | None]
    most: int = MAX_PASSES


def jobs_for(
    plan: Plan,
    tasks: Mapping[str, Task],
    waiting: Mapping[str, Request],
    partition_of: Callable[[Request], str],
    *,
    max_jobs: int = MAX_JOBS,
    least_s: float = LEAST_S,
) -> WorkerJobs | None:
    """Return the jobs of the next pass; None if no cell waits.

    Parameters
    ----------
    waiting : mapping of str to Request
        Of the cells that wait.
    partition_of : callable
        Returns the partition of jobs with a request.
    max_jobs : int
        The most jobs of a pass.
    least_s : float
        No job is shorter, where the limits permit.
    """
    if not waiting:
        return None
    mapped = {} if plan.draw is None else plan.draw.mapped_files_bytes
    apps = {name: task.cell.app for name in waiting if (task := tasks[name]).cell is not None}
    needs_s = np.array([request.walltime_s for request in waiting.values()])
    needs_bytes = np.array([r.memory_bytes + mapped.get(apps[n], 0) for n, r in waiting.items()])
    run_s = _usual(needs_s)
    memory_bytes = _usual(needs_bytes[needs_s <= run_s])
    fits = (needs_s <= run_s) & (needs_bytes <= memory_bytes)
    expected_s = np.array([tasks[name].expected_s for name in waiting])[fits].sum()
    longest_s = plan.limits.max_walltime_s + 2 * MARGIN_S  # the limits apply to runs
    walltime_s = min(max(RUNS_PER_JOB * run_s, run_s + 2 * MARGIN_S, least_s), longest_s)
    count = max(1, min(math.ceil(expected_s / (0.8 * walltime_s)), int(fits.sum()), max_jobs))
    cpus, gpus = (max(getattr(r, name) for r in waiting.values()) for name in ("cpus", "gpus"))
    request = Request(walltime_s, int(memory_bytes) + WORKER_BYTES, cpus, gpus)
    return WorkerJobs(replace(request, partition=partition_of(request)), count)


def _usual(needs: NDArray[Any]) -> float:
    return float(np.quantile(needs, SHARE, method="inverted_cdf"))


def work_command(folder: Path, *options: str) -> list[str]:
    """Return the command of a worker, with this Python."""
    return [sys.executable, "-m", "voxcast.jobs.worker", "--pool", str(folder.resolve()), *options]


def worker_app(name: str, command: Sequence[str]) -> App:
    """Return the application that jobs run which are workers."""
    words = tuple(re.sub(r"([{}])", r"\1\1", word) for word in command)
    return App(name, "1", argv=words, input="none")


def run_local_workers(
    command: Sequence[str], count: int, on_progress: Callable[[], object]
) -> list[int]:
    """Run workers on this machine until all have ended; return their exit codes.

    They end with this process if it is interrupted, and return their cells.

    Parameters
    ----------
    command : sequence of str
        Command of each worker.
    on_progress : callable
        Called every half minute.
    """
    with contextlib.ExitStack() as at_end:
        workers = [
            at_end.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            for _ in range(count)
        ]
        for worker in workers:
            at_end.callback(worker.terminate)
        announced = time.monotonic()
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if time.monotonic() - announced >= ANNOUNCE_S:
                announced = time.monotonic()
                on_progress()
    return [worker.returncode for worker in workers]


def items(app: App, parameters: Mapping[str, Any]) -> range:
    """Return the items that a run goes through; one where it cannot be split.

    Examples
    --------
    >>> from voxcast.records import App
    >>> app = App("a", "1", split={"count": "folds", "range": "some"})
    >>> items(app, {"folds": 5, "some": ""}), items(app, {"folds": 5, "some": "2:4"})
    (range(0, 5), range(2, 4))
    """
    try:
        chosen = str(parameters.get(app.split["range"]) or "")
        first, sign, end = chosen.partition(":")
        return range(int(first), int(end)) if sign else range(int(parameters[app.split["count"]]))
    except (KeyError, TypeError, ValueError):
        return range(1)


def parts_of(task: Task, app: App, walltime_s: float, max_walltime_s: float) -> list[Task]:
    """Return the parts of a cell that are short enough; empty if it cannot be split.

    Parameters
    ----------
    walltime_s : float
        The request of the cell.
    max_walltime_s : float
        The longest request.
    """
    cell = task.cell
    all_items = range(1) if cell is None else items(app, cell.parameters)
    longer = walltime_s / max_walltime_s if max_walltime_s < math.inf else 0.0
    pieces = min(max(2, math.ceil(longer)), len(all_items))
    if cell is None or pieces < 2:
        return []
    edges = [round(n * len(all_items) / pieces) + all_items.start for n in range(pieces + 1)]
    parts = []
    for first, end in itertools.pairwise(edges):
        share = (end - first) / len(all_items)
        parameters = {**cell.parameters, app.split["range"]: f"{first}:{end}"}
        times_s = {
            min(share * s, max_walltime_s) for s in (*task.requests.walltimes_s, walltime_s)
        }
        part = Task.of_cell(
            replace(cell, parameters=parameters),
            replace(task.requests, walltimes_s=tuple(sorted(times_s))),
            share * task.expected_s,
        )
        parts.append(replace(part, part_of=task.name))
    return parts


def join(cell: Cell, folders: Sequence[Path], into: Path) -> str:
    """Make the record of a cell, in a new folder, of its parts; return its key."""
    shutil.rmtree(into, ignore_errors=True)
    (into / "out").mkdir(parents=True)
    with (into / LOG_FILE).open("wb") as log:
        for number, folder in enumerate(folders, 1):
            shutil.copytree(folder / "out", into / "out" / f"part-{number:03d}")
            log.write((folder / LOG_FILE).read_bytes())
    records = [read_record(folder) for folder in folders]
    longest = max(records, key=lambda record: record.run.runtime_s or 0.0)
    joined = replace(cell, host_class=longest.cell.host_class)
    merged, phases = joined_run(
        [(record.run, record.phases) for record in records], records.index(longest)
    )
    machines = {record.cell.host_class for record in records}
    merged = replace(
        merged, cell_key=joined.key, parameters_json=canonical_json(joined.parameters),
        noisy=merged.noisy or len(machines) > 1,
    )  # fmt: skip
    content = longest.content | {
        "run": as_fields(merged), "cell": as_fields(joined),
        "phases": [as_fields(phase) for phase in phases],
        "parts": [folder.name for folder in folders],
    }  # fmt: skip
    (into / RECORD_FILE).write_text(json_text(content), encoding="utf-8")
    sync_folder(into)
    return joined.key


def joined_run(
    parts: Sequence[tuple[Run, Sequence[Phase]]], longest: int = 0
) -> tuple[Run, list[Phase]]:
    """Return the run and phases of parts that ran one after the other.

    Times and traffic are sums, so that the start of the application counts once for each part;
    memory, threads and use of a GPU are the largest. A value that is unknown in one part is
    unknown in the whole. The machine and its speed are taken from the part ``longest``.
    """
    runs, joined, start_s = [run for run, _ in parts], [], 0.0
    for run, phases in parts:
        joined += [
            replace(p, start_s=p.start_s + start_s, end_s=p.end_s + start_s) for p in phases
        ]
        start_s += run.runtime_s or 0.0
    first = min(runs, key=lambda run: run.started_at)
    changes: dict[str, Any] = {
        "outcome": next((r.outcome for r in runs if r.outcome != "completed"), "completed"),
        "noisy": any(run.noisy for run in runs),
        "limit_s": None,
    }
    for name in MACHINE:
        changes[name] = getattr(runs[longest], name)
    sums = ("runtime_s", "cpu_s", "io_read_bytes", "io_write_bytes", "metronome_ticks")
    largest_of = ("peak_rss_bytes", "peak_cgroup_bytes", "peak_threads", "peak_gpu_bytes")
    for name in (*sums, *largest_of):
        values = [getattr(run, name) for run in runs]
        changes[name] = None if None in values else (sum if name in sums else max)(values)
    return replace(first, **changes), joined
