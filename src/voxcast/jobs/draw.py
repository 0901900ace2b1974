"""A worker of a pool: draws cells that fit its job, and leaves their runs to the follower.

Any number of workers run on any machines that see the folder of the pool. A worker draws at random
among the longest tickets that fit, measures the run as a campaign does, and moves its folder to
``ended``. The follower decides how it goes on, see `voxcast.jobs.rounds`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from voxcast.apps.app import app_version, choose
from voxcast.apps.checks import check_startable
from voxcast.errors import RunError, VoxcastError
from voxcast.files import read_json, write_json
from voxcast.jobs.claim import KeptAlive, file_system_time, registered
from voxcast.jobs.escalate import Attempt
from voxcast.jobs.pool import ENDED, HELD, MIB, PARTIAL, RESULT_FILE, TODO, Pool, Ticket
from voxcast.measure.host import Probes, host_class
from voxcast.measure.leftovers import sweep_abandoned
from voxcast.measure.metronome import Metronome
from voxcast.measure.record import Failures, Recorder, cause, log_tail, open_sitting
from voxcast.measure.runner import KILLED
from voxcast.quantities import format_bytes, format_seconds, slurm_seconds
from voxcast.records import Request, as_fields
from voxcast.runs.series import runs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from voxcast.jobs.pool import PoolCell, PoolSettings
    from voxcast.measure.host import HostFacts
    from voxcast.measure.record import Sitting
    from voxcast.measure.trace import Conditions
    from voxcast.records import Cell, Configuration, Outcome, Run

logger = logging.getLogger(__name__)

CANDIDATES = 64  # of the longest tickets that fit, among which a worker draws
# The worker and its metronome beside a run: 204 MB; before the first run on a node, while its
# speed is probed: 299 MB.
WORKER_BYTES = 320 * MIB
MARGIN_S = 30.0  # from the end of a run that is stopped to the end of the allocation
SQUEUE_S = 20.0
MAX_MISSING = 5  # volumes; then a folder is not there, rather than a file
PROBES_AGE_S = 6 * 3600.0  # older probes are of another time of the machine
ALIVE_S = 20.0  # between two signs that a worker lives
TAIL_CHARACTERS = 4000
TERMINATED = (-15, 143)  # by SIGTERM; the latter seen through a shell
SAME_SIGNAL_S = 1.0  # in which a signal to all processes of a job reaches us too
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")


@dataclass(frozen=True)
class WorkerAllocation:
    """The resources that a worker may use.

    Attributes
    ----------
    cpus, gpus : int
    memory_bytes : int
        For runs, without the worker's own.
    deadline : float
        Time of the monotonic clock at which a run must have ended; infinity for no limit.
    """

    cpus: int
    gpus: int
    memory_bytes: int
    deadline: float = float("inf")

    @property
    def left_s(self) -> float:
        """Seconds left for a run that starts now."""
        return self.deadline - time.monotonic()

    def shortfall(self, request: Request, mapped_files_bytes: int = 0) -> str:
        """Return the resource that a run would lack here; empty if it fits."""
        if request.gpus > self.gpus or (request.device == "gpu" and not self.gpus):
            return "GPUs"
        if request.cpus > self.cpus:
            return "CPUs"
        if request.memory_bytes + mapped_files_bytes > self.memory_bytes:
            return "memory"
        return "time" if request.walltime_s > self.left_s else ""

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        left_s = self.left_s
        left = "no time limit" if left_s == float("inf") else format_seconds(max(0.0, left_s))
        cpus = f"{self.cpus} CPU{'s' if self.cpus != 1 else ''}"
        return f"{cpus}{gpus}, {format_bytes(self.memory_bytes)}, {left}"


def worker_allocation(
    facts: HostFacts,
    environment: Mapping[str, str],
    *,
    cpus: int | None = None,
    memory_bytes: int | None = None,
    time_budget_s: float | None = None,
) -> WorkerAllocation:
    """Return the allocation of this process.

    Variables of Slurm are read as in ``man sbatch`` (22.05 and later), where memory is in MiB.

    Parameters
    ----------
    facts : HostFacts
        Facts of this machine.
    environment : mapping
        Variables of the process.
    cpus, memory_bytes, time_budget_s : optional
        From the worker's options; they override the job.
    """

    def number(name: str) -> int:
        text = environment.get(name, "")
        return int(text) if text.isdigit() else 0

    job_cpus = number("SLURM_CPUS_PER_TASK") or number("SLURM_CPUS_ON_NODE")
    chosen_cpus = cpus or min(job_cpus or facts.cores, facts.cores)
    per_cpu = number("SLURM_MEM_PER_CPU") * (job_cpus or chosen_cpus)
    job_bytes = (number("SLURM_MEM_PER_NODE") or per_cpu) * MIB  # 0 stands for all of the node
    total = memory_bytes or min(job_bytes or facts.memory_bytes, facts.memory_bytes)
    gpus = len(facts.gpu_models)
    if "SLURM_JOB_ID" in environment:
        gpus = min(gpus, number("SLURM_GPUS_ON_NODE"))
    times_s = [job_left_s(environment), time_budget_s]
    left_s = min((t for t in times_s if t is not None), default=float("inf"))
    margin_s = min(MARGIN_S, left_s / 20) if left_s < float("inf") else 0.0
    deadline = time.monotonic() + left_s - margin_s
    return WorkerAllocation(chosen_cpus, gpus, max(total - WORKER_BYTES, total // 2), deadline)


def job_left_s(environment: Mapping[str, str], now: float | None = None) -> float | None:
    """Return how long the job still has; None outside a job, or if it has no limit.

    It is taken from ``SLURM_JOB_END_TIME``, or else from ``squeue``.
    """
    if (end := environment.get("SLURM_JOB_END_TIME", "")).isdigit() and int(end):
        return max(0.0, int(end) - (time.time() if now is None else now))
    if not (job := environment.get("SLURM_JOB_ID")):
        return None
    if "SLURM_ARRAY_TASK_ID" in environment:  # one task has the id of the array
        job = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=SQUEUE_S, check=True
        ).stdout.strip()
        return None if answer == "UNLIMITED" else slurm_seconds(answer)
    except (OSError, subprocess.SubprocessError, VoxcastError) as error:
        logger.warning("the time that the job has left is unknown (%s); give --time-budget", error)
        return None


def usable_cores(cpus: int, cores: list[int], seed: int) -> list[int]:
    """Return the cores that a worker's runs are pinned to.

    Where the site does not confine jobs to their cores, all workers of a node see all of its
    cores: each then takes others, as far as chance goes.

    Examples
    --------
    >>> usable_cores(2, [4, 5, 6, 7], seed=7)
    [4, 7]
    """
    start = seed % len(cores) if len(cores) > cpus else 0
    return sorted((cores[start:] + cores[:start])[:cpus])


@dataclass
class WorkSummary:
    """The work of a worker, and the cells that it left.

    Attributes
    ----------
    recorded, failed : int
        Runs for the record; attempts that failed.
    left : int
        Cells that wait at its end.
    lacking : dict
        What cells that wait lack on this worker, with their number.
    stopped : bool
        Whether it was asked to end.
    """

    worker: str
    recorded: int = 0
    failed: int = 0
    left: int = 0
    lacking: dict[str, int] = field(default_factory=dict)
    stopped: bool = False


def work(
    pool: Pool,
    allocation: WorkerAllocation,
    facts: HostFacts,
    *,
    wanted: Callable[[PoolCell], bool] = lambda _: True,
    probes: Probes | None = None,
    stopped: Callable[[], bool] = lambda: False,
    settle: Callable[[], bool] = lambda: False,
) -> WorkSummary:
    """Run cells of ``pool`` until none that remains fits, or the time is up.

    Parameters
    ----------
    facts : HostFacts
        Facts of this machine.
    wanted : callable
        Which cells this worker may take.
    probes : Probes, optional
        Speeds of the machine, if known.
    stopped : callable
        Called several times a second: once it is true the cell at hand is returned.
    settle : callable
        Called when nothing fits; returns whether more may wait now, see
        `voxcast.jobs.rounds.settle_unfollowed`.

    Raises
    ------
    RunError
        If the pool cannot be written to, its disk is full, volumes are missing, or an application
        fails on image after image. The cell at hand is returned.
    """
    pool.check_writable()
    sweep_abandoned()
    sitting, path = _sitting(pool, facts, probes)
    worker = _Worker(pool, allocation, sitting, host_class(facts), wanted, stopped)
    with KeptAlive(path, ALIVE_S):
        try:
            worker.run(settle)
        finally:
            with contextlib.suppress(OSError, ValueError):
                write_json(path, read_json(path) | {"ended": dataclasses.asdict(worker.summary)})
    return worker.summary


def _sitting(pool: Pool, facts: HostFacts, probes: Probes | None) -> tuple[Sitting, Path]:
    """Register a worker; return the sitting that its records name, and the worker's file.

    The probes of a machine are kept for the workers that come after.
    """
    probes_path = pool.workers / f".probes-{facts.host_id}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        if file_system_time(pool.workers) - probes_path.stat().st_mtime < PROBES_AGE_S:
            probes = probes or Probes(**read_json(probes_path))
    sitting = open_sitting(pool.folder / PARTIAL, (), probes, facts)
    if probes is None:
        write_json(probes_path, sitting.probes)
    job = {name: os.environ[name] for name in JOB_VARIABLES if name in os.environ}
    stem = sitting.name.rpartition("-")[0]
    for number in itertools.count(1):
        path = pool.workers / f"{stem}-{number}.json"
        if registered(path, {"machine": sitting.host, "job": job}):
            break
    return dataclasses.replace(sitting, name=path.stem, number=number), path


class _Worker:
    def __init__(
        self,
        pool: Pool,
        allocation: WorkerAllocation,
        sitting: Sitting,
        machine: str,
        wanted: Callable[[PoolCell], bool],
        stopped: Callable[[], bool],
    ) -> None:
        self.summary = WorkSummary(sitting.name)
        self._pool, self._allocation, self._sitting = pool, allocation, sitting
        self._machine, self._wanted, self._stopped = machine, wanted, stopped
        self._fit = _Fit(pool.settings, allocation)
        self._random = random.Random()  # noqa: S311  # workers shall differ
        self._waiting: list[Ticket] = []  # the longest last
        self._lacking: dict[str, str] = {}  # by name of a ticket that will never fit
        self._failed: list[Cell] = []
        self._numbers = itertools.count(1)
        seed = int.from_bytes(os.urandom(4))
        self._cores = usable_cores(allocation.cpus, sorted(os.sched_getaffinity(0)), seed)

    def run(self, settle: Callable[[], bool]) -> None:
        """Run cell after cell."""
        with Metronome(enabled=self._pool.settings.conditions.metronome) as metronome:
            while not self._stopped():
                drawn = self._draw()
                if drawn is not None:
                    self._run(*drawn, metronome)
                elif not self._look() and not (settle() and self._look()):
                    break
        waiting = self._pool.names(TODO)
        self.summary.stopped, self.summary.left = self._stopped(), len(waiting)
        lacks = (self._lacking.get(name, "") for name in waiting)
        self.summary.lacking = dict(Counter(lack for lack in lacks if lack))
        if not self.summary.stopped:
            self._fit.check(self.summary.recorded)

    def _look(self) -> bool:
        """Look which tickets wait; return whether one of them may fit."""
        self._waiting = []
        for name in self._pool.names(TODO):
            if name not in self._lacking:
                with contextlib.suppress(ValueError):
                    self._waiting.append(Ticket.from_name(name))
        self._waiting.sort(key=lambda ticket: ticket.walltime_s)
        return bool(self._waiting)

    def _draw(self) -> tuple[str, PoolCell, Request] | None:
        """Take a ticket that fits, at random among the longest; None if none is left."""
        while self._waiting:
            place = self._random.randint(1, min(CANDIDATES, len(self._waiting)))
            ticket = self._waiting.pop(-place).name
            content = self._pool.read(self._pool.place(TODO, ticket))
            if content is None:
                continue
            lack = self._fit.shortfall(*content) if self._wanted(content[0]) else "-"
            if lack:
                self._lacking[ticket] = lack.strip("-")  # time only gets shorter
                continue
            run = self._pool.draw(ticket, f"{self.summary.worker}~{next(self._numbers)}")
            if run:
                return run, *content
        return None

    def _run(self, run: str, pool_cell: PoolCell, request: Request, metronome: Metronome) -> None:
        pool, settings = self._pool, self._pool.settings
        cell = dataclasses.replace(pool_cell.cell, host_class=self._machine)
        conditions = self._conditions(cell.app)
        paths = {name: Path(path) for name, path in settings.paths.items()}
        recorder = Recorder(
            pool.runs, settings.apps, paths, settings.recipes, conditions, self._sitting,
            self._stopped,
        )  # fmt: skip
        has_ended = False
        try:
            with recorder.run_folder(pool.place(PARTIAL, run)) as partial:
                measured, phases = recorder.measure(
                    cell, partial, conditions, self._cores, metronome
                )
                if measured.outcome == "preempted" or self._ended_with_us(measured):
                    return
                is_record = self._is_record(cell, measured, conditions)
                recorder.write_record(cell, measured, phases, partial, pool.runs / cell.key)
                result = {
                    "record": cell.key if is_record else "",
                    "attempt": as_fields(_attempt(request, measured, conditions)),
                    "worker": self.summary.worker,
                    "cause": cause(measured.outcome, partial),
                    "log_tail": log_tail(partial)[-TAIL_CHARACTERS:],
                }
                (partial / RESULT_FILE).write_text(json.dumps(result), encoding="utf-8")
                pool.end(run)
                has_ended = True
        except (OSError, RunError):
            if pool.place(HELD, run).exists():
                raise
            # The follower gave this worker up, as after a long suspension, and removed the folder.
            logger.warning("%s: another worker had taken it over; discarded", cell.key[:12])
            return
        finally:
            if not has_ended:
                pool.give_back(run)
        self.summary.recorded += is_record
        self.summary.failed += not is_record
        if measured.outcome == "failed":
            self._check_able(cell)

    def _check_able(self, cell: Cell) -> None:
        """Check that the application can run here, once several of its runs have failed."""
        self._failed.append(cell)
        failures = Failures(runs_in(self._pool.runs).values())
        for failed in self._failed:
            failures.count(failed, "failed", self._pool.folder / ENDED)

    def _ended_with_us(self, run: Run) -> bool:
        """Return whether a run failed as the system ends the job: all its processes at once."""
        if run.outcome != "failed":
            return False
        end = time.monotonic() + (SAME_SIGNAL_S if run.exit_status in TERMINATED else 0.0)
        while time.monotonic() < end and not self._stopped():
            time.sleep(0.1)
        return self._stopped()

    def _conditions(self, app: str) -> Conditions:
        """Return how a run is measured, within the rest of the allocation."""
        conditions = self._pool.settings.conditions
        limit_s = min(conditions.time_limit_s or float("inf"), max(0.0, self._allocation.left_s))
        return dataclasses.replace(
            conditions,
            time_limit_s=None if limit_s == float("inf") else limit_s,
            mem_limit_bytes=self._fit.memory_bytes(app),
        )

    def _is_record(self, cell: Cell, run: Run, conditions: Conditions) -> bool:
        """Return whether a run is a record, and not an attempt that a larger worker may better.

        A run that reached a limit of the pool, or of its configuration, is a lower bound.
        """
        if run.outcome == "timeout":
            return conditions.time_limit_s == self._pool.settings.conditions.time_limit_s
        if run.outcome == "out_of_memory":
            configured = cell.configuration.mem_limit_bytes or float("inf")
            return configured <= (conditions.mem_limit_bytes or float("inf"))
        return run.outcome == "completed"


def _attempt(request: Request, run: Run, conditions: Conditions) -> Attempt:
    """Return the attempt of a run: with the limit that it reached, if it reached one."""
    outcome = cast("Outcome", run.outcome)
    if outcome == "failed" and run.exit_status in KILLED:
        outcome = "out_of_memory"
    if outcome == "timeout" and conditions.time_limit_s is not None:
        request = dataclasses.replace(request, walltime_s=conditions.time_limit_s)
    if outcome == "out_of_memory" and conditions.mem_limit_bytes is not None:
        request = dataclasses.replace(request, memory_bytes=conditions.mem_limit_bytes)
    return Attempt(request, outcome, run.runtime_s or 0.0)


class _Fit:
    """Whether a worker can run a cell: its allocation, its software and its files."""

    def __init__(self, settings: PoolSettings, allocation: WorkerAllocation) -> None:
        self._settings, self._allocation = settings, allocation
        self._problems: dict[tuple[str, str, Configuration], VoxcastError | None] = {}
        self._missing: dict[Path, RunError] = {}

    def memory_bytes(self, app: str) -> int:
        """Return the memory for a run of an application, whose mapped files count too."""
        mapped = self._settings.mapped_files_bytes.get(app, 0)
        return max(0, self._allocation.memory_bytes - mapped)

    def shortfall(self, pool_cell: PoolCell, request: Request) -> str:
        """Return the lack, in a word; empty if the cell can be run.

        Raises
        ------
        RunError
            If too many volumes are missing.
        """
        cell = pool_cell.cell
        mapped = self._settings.mapped_files_bytes.get(cell.app, 0)
        if lack := self._allocation.shortfall(request, mapped):
            return lack
        name = (cell.app, cell.app_version, cell.configuration)
        if name not in self._problems:
            self._problems[name] = problem = self._problem(cell)
            if problem is not None:
                logger.warning("%s", problem)
        if self._problems[name] is not None:
            return "the application"
        return "its volume" if self._lacks_volume(cell) else ""

    def check(self, recorded: int) -> None:
        """Check at the end that a lack here has not kept the worker from all its work.

        Raises
        ------
        VoxcastError
            The first of the problems, if nothing was recorded.
        """
        problems = [*self._missing.values(), *filter(None, self._problems.values())]
        if problems and not recorded:
            raise problems[0]

    def _problem(self, cell: Cell) -> VoxcastError | None:
        try:
            app = choose(self._settings.apps, cell.app)
            check_startable(app, cell.configuration)
            version = app_version(app, cell.configuration)
        except VoxcastError as error:
            return error
        if version == cell.app_version:
            return None
        then = f"install {cell.app_version} here, or make the pool with the version of its workers"
        return RunError(f"is version {version} here", cell.app, then)

    def _lacks_volume(self, cell: Cell) -> bool:
        path = Path(self._settings.paths[cell.volume_id]) if cell.volume_id else None
        if path is None or path.is_file():
            return False
        problem = RunError("no such volume", path, "is its folder mounted on this machine?")
        if path not in self._missing:
            logger.warning("%s", problem)
        self._missing[path] = problem
        if len(self._missing) >= MAX_MISSING:
            raise problem
        return True
