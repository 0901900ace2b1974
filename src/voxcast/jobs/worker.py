"""``python -m voxcast.jobs.worker --pool DIR``: take cells of a pool that fit here, and run them.

Start as many as you like, on any machine that sees the folder, in jobs of any size. Each takes
random cells that its own job is large enough for, until none is left or its time is up.

A cell that waits or is run has one ticket in the folder ``draw`` of the submission, a small file::

    todo/KEY.ATTEMPT.SECONDS     waits
    held/TICKET~WORKER~JOB~N     is run by a worker, in the folder partial/TICKET~...
    ended/TICKET~WORKER~JOB~N/   the folder of the run, for the follower

A ticket moves by a rename, which is atomic and succeeds for one process on local disks, NFS and
parallel file systems. A worker draws at random among the longest tickets that fit, measures the
run as a campaign does, touches its ticket meanwhile, and moves the folder to ``ended``. The
follower alone decides how it goes on, see `voxcast.jobs.follow`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import logging
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from voxcast.apps.app import app_version, choose
from voxcast.apps.checks import check_startable
from voxcast.errors import ConfigError, RunError, VoxcastError, exits_cleanly, one_line
from voxcast.files import read_json, sync_folder
from voxcast.jobs import slurm
from voxcast.jobs.claim import kept_alive
from voxcast.jobs.submission import Submission
from voxcast.jobs.task import Attempt, Task
from voxcast.measure.host import HostFacts, host_class, host_facts
from voxcast.measure.metronome import Metronome
from voxcast.measure.processes import new_run_id, sweep_abandoned
from voxcast.measure.record import Failures, Recorder, cause, log_tail, open_sitting
from voxcast.quantities import parse_bytes, parse_seconds, slurm_seconds
from voxcast.records import Cell, Outcome, Request, Run, as_fields, of_fields
from voxcast.runs.series import runs_in

if TYPE_CHECKING:
    from voxcast.measure.trace import Conditions

logger = logging.getLogger(__name__)

DRAW = "draw"  # in the folder of a submission
TODO, HELD, PARTIAL, ENDED = "todo", "held", "partial", "ended"
RESULT_FILE = "attempt.json"
MIB = 2**20
CANDIDATES = 64  # of the longest tickets that fit, among which a worker draws
# The worker and its metronome take 204 MB beside a run; the rest is a margin.
WORKER_BYTES = 320 * MIB
MARGIN_S = 30.0  # from the end of a run that is stopped to the end of the allocation
TAIL_CHARACTERS = 4000
TERMINATED = (-15, 143)  # by SIGTERM; the latter seen through a shell
SAME_SIGNAL_S = 1.0  # in which a signal to all processes of a job reaches us too


def key_of(name: str) -> str:
    """Return the cell of a ticket, or of a run."""
    return name.partition(".")[0]


@dataclass(frozen=True)
class Tickets:
    """The folders of tickets and runs."""

    folder: Path

    @classmethod
    def of(cls, submission: Submission) -> Tickets:
        """Return the tickets of a submission."""
        return cls(submission.folder / DRAW)

    def make_folders(self) -> None:
        """Make the folders; for the process that follows."""
        for kind in (TODO, HELD, PARTIAL, ENDED):
            (self.folder / kind).mkdir(mode=0o700, parents=True, exist_ok=True)

    def place(self, kind: str, name: str) -> Path:
        """Return the path of a ticket or run in one of the folders."""
        return self.folder / kind / name

    def names(self, kind: str) -> list[str]:
        """Return the names in a folder of tickets or runs."""
        # A file that is open on NFS leaves `.nfs…` when it is removed.
        return [name for name in os.listdir(self.folder / kind) if name[0] != "."]  # noqa: PTH208

    def put(self, task: Task, attempt: int, request: Request) -> None:
        """Let a cell wait for a worker; for the process that follows."""
        content = json.dumps({"task": as_fields(task), "request": as_fields(request)})
        partial = self.place(PARTIAL, f".{task.name}")
        partial.write_text(content, encoding="utf-8")
        ticket = f"{task.name}.{attempt}.{math.ceil(request.walltime_s)}"
        partial.rename(self.place(TODO, ticket))

    def read(self, ticket: str) -> tuple[Task, Request] | None:
        """Return the cell and the request of a ticket that waits; None if it has gone.

        A ticket that a crashed machine left empty is removed, as the follower makes it again.
        """
        path = self.place(TODO, ticket)
        try:
            fields = read_json(path)
            return of_fields(Task, fields["task"]), of_fields(Request, fields["request"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            path.unlink(missing_ok=True)
            return None

    def draw(self, ticket: str, holder: str) -> str:
        """Take a ticket; return the name of the run, or an empty text if another worker did."""
        name = f"{ticket}~{holder}"
        with contextlib.suppress(OSError):
            os.utime(self.place(TODO, ticket))  # a sign of life
        return name if _moved(self.place(TODO, ticket), self.place(HELD, name)) else ""

    def give_back(self, run: str) -> None:
        """Let the cell of a run wait again."""
        _moved(self.place(HELD, run), self.place(TODO, run.partition("~")[0]))

    def end(self, run: str) -> None:
        """Leave a run that has ended to the follower."""
        sync_folder(self.place(PARTIAL, run))
        self.place(PARTIAL, run).rename(self.place(ENDED, run))
        self.place(HELD, run).unlink(missing_ok=True)


def _moved(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except FileNotFoundError:
        # NFS repeats a request whose answer was lost, and then fails though it had succeeded.
        return target.exists()
    return True


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
    deadline: float = math.inf

    @property
    def left_s(self) -> float:
        """Seconds left for a run that starts now."""
        return max(0.0, self.deadline - time.monotonic())

    def shortfall(self, request: Request, mapped_files_bytes: int = 0) -> str:
        """Return the resource that a run would lack here; empty if it fits."""
        lacks = {
            "GPUs": request.gpus > self.gpus or (request.device == "gpu" and not self.gpus),
            "CPUs": request.cpus > self.cpus,
            "memory": request.memory_bytes + mapped_files_bytes > self.memory_bytes,
            "time": request.walltime_s > self.left_s,
        }
        return next((name for name, is_lacking in lacks.items() if is_lacking), "")


def worker_allocation(
    facts: HostFacts,
    environment: Mapping[str, str],
    *,
    cpus: int | None = None,
    memory_bytes: float | None = None,
    time_budget_s: float | None = None,
) -> WorkerAllocation:
    """Return the allocation of this process.

    Variables of Slurm are read as in ``man sbatch``, where memory is in MiB.

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
    total = int(memory_bytes or min(job_bytes or facts.memory_bytes, facts.memory_bytes))
    gpus = len(facts.gpu_models)
    if "SLURM_JOB_ID" in environment:
        gpus = min(gpus, number("SLURM_GPUS_ON_NODE"))
    times_s = [job_left_s(environment), time_budget_s]
    left_s = min((t for t in times_s if t is not None), default=math.inf)
    margin_s = min(MARGIN_S, left_s / 20) if left_s < math.inf else 0.0
    deadline = time.monotonic() + left_s - margin_s
    return WorkerAllocation(chosen_cpus, gpus, max(total - WORKER_BYTES, total // 2), deadline)


def job_left_s(environment: Mapping[str, str]) -> float | None:
    """Return how long the job still has; None outside a job, or if it has no limit.

    It is taken from ``SLURM_JOB_END_TIME``, or from ``squeue`` where Slurm does not set that.
    """
    if (end := environment.get("SLURM_JOB_END_TIME", "")).isdigit() and int(end):
        return max(0.0, int(end) - time.time())
    if not (job := job_number(environment)):
        return None
    try:
        answer = slurm.call(["squeue", "--noheader", "--jobs", job, "--format", "%L"]).strip()
        return None if answer == "UNLIMITED" else slurm_seconds(answer)
    except VoxcastError as error:
        logger.warning("the time that the job has left is unknown (%s); give --time-budget", error)
        return None


def job_number(environment: Mapping[str, str]) -> str:
    """Return the number of a job, such as ``12_3`` in an array; empty outside of one."""
    if "SLURM_ARRAY_TASK_ID" in environment:  # one task has the id of the array
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment.get("SLURM_JOB_ID", "")


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
    sitting : str
        In its records.
    recorded, failed : int
        Runs for the record; attempts that failed.
    left : int
        Cells that wait at its end.
    lacking : dict
        What cells that wait lack on this worker, with their number.
    stopped : bool
        Whether it was asked to end.
    """

    sitting: str
    recorded: int = 0
    failed: int = 0
    left: int = 0
    lacking: dict[str, int] = field(default_factory=dict)
    stopped: bool = False


def work(
    submission: Submission,
    allocation: WorkerAllocation,
    facts: HostFacts,
    stopped: Callable[[], bool] = lambda: False,
) -> WorkSummary:
    """Run cells that workers draw until none that waits fits, or the time is up.

    Parameters
    ----------
    facts : HostFacts
        Facts of this machine.
    stopped : callable
        Called several times a second: once it is true the cell at hand is returned.

    Raises
    ------
    RunError
        If it is not a submission of workers, cannot be written to, or its disk is full; if volumes
        are missing, or an application fails on image after image. The cell at hand is returned.
    """
    if submission.plan.draw is None:
        then = "`voxcast measure --campaign NAME --cluster CLUSTER` makes one"
        raise RunError("has no cells that workers draw", submission.folder, then)
    if not os.access(held := Tickets.of(submission).folder / HELD, os.W_OK | os.X_OK):
        raise RunError("cannot be written to", held, "a worker needs to write there")
    sweep_abandoned()
    worker = _Worker(submission, allocation, facts, stopped)
    worker.run()
    return worker.summary


class _Worker:
    def __init__(
        self,
        submission: Submission,
        allocation: WorkerAllocation,
        facts: HostFacts,
        stopped: Callable[[], bool],
    ) -> None:
        self.submission, self.allocation, self.stopped = submission, allocation, stopped
        assert submission.plan.draw is not None  # noqa: S101  # as `work` has checked
        self.settings, self.tickets = submission.plan.draw, Tickets.of(submission)
        process, sitting = new_run_id(), open_sitting(facts=facts)
        self.name, self.machine = f"{process}~{job_number(os.environ)}", host_class(facts)
        # The records name the sitting by the digits of the process.
        name = f"{sitting.name.rpartition('-')[0]}-{process.rpartition('-')[2]}"
        self.sitting = dataclasses.replace(sitting, name=name)
        self.summary = WorkSummary(name)
        self._random = random.Random()  # noqa: S311  # workers shall differ
        self._waiting: list[str] = []  # the longest last
        self._lacking: dict[str, str] = {}  # by name of a ticket that will never fit
        self._problems: dict[object, VoxcastError | None] = {}  # of applications and volumes
        self._is_given_up = False
        self._failed: list[Cell] = []
        self._numbers = itertools.count(1)
        seed = int.from_bytes(os.urandom(4))
        self._cores = usable_cores(allocation.cpus, sorted(os.sched_getaffinity(0)), seed)

    def run(self) -> None:
        """Run cell after cell."""
        with Metronome(enabled=self.settings.conditions.metronome) as metronome:
            while not (self.stopped() or self._is_given_up):
                drawn = self._draw()
                if drawn is not None:
                    self._run(*drawn, metronome)
                elif not self._look():
                    break
        waiting = self.tickets.names(TODO)
        self.summary.stopped, self.summary.left = self.stopped(), len(waiting)
        self.summary.lacking = Counter(self._lacking[n] for n in waiting if n in self._lacking)
        problems = list(filter(None, self._problems.values()))
        if problems and not (self.summary.recorded or self.summary.stopped):
            raise problems[0]  # it kept the worker from all its work

    def _look(self) -> bool:
        """Look which tickets wait; return whether one of them may fit."""
        new = [name for name in self.tickets.names(TODO) if name not in self._lacking]
        self._waiting = sorted(new, key=lambda name: int(name.rpartition(".")[2]))
        return bool(new)

    def _draw(self) -> tuple[str, Cell, Request] | None:
        """Take a ticket that fits, at random among the longest; None if none is left."""
        while self._waiting:
            place = self._random.randint(1, min(CANDIDATES, len(self._waiting)))
            ticket = self._waiting.pop(-place)
            content = self.tickets.read(ticket)
            if content is None or (cell := content[0].cell) is None:
                continue
            if lack := self._shortfall(cell, content[1]):
                self._lacking[ticket] = lack  # time only gets shorter
            elif run := self.tickets.draw(ticket, f"{self.name}~{next(self._numbers)}"):
                return run, cell, content[1]
        return None

    def _run(self, run: str, cell: Cell, request: Request, metronome: Metronome) -> None:
        tickets, settings, out = self.tickets, self.settings, self.submission.out
        cell = dataclasses.replace(cell, host_class=self.machine)
        conditions = self._conditions(cell.app)
        paths = {name: Path(path) for name, path in settings.paths.items()}
        recorder = Recorder(
            out, settings.apps, paths, settings.recipes, conditions, self.sitting, self.stopped
        )
        has_ended = False
        try:
            with (
                kept_alive(tickets.place(HELD, run)),
                recorder.run_folder(tickets.place(PARTIAL, run)) as partial,
            ):
                measured, phases = recorder.measure(
                    cell, partial, conditions, self._cores, metronome
                )
                if measured.outcome == "preempted" or self._ended_with_us(measured):
                    return
                is_record = self._is_record(cell, measured, conditions)
                recorder.write_record(cell, measured, phases, partial, out / cell.key)
                failure = {
                    "cause": cause(measured.outcome, partial), "worker": self.name,
                    "log_tail": log_tail(partial)[-TAIL_CHARACTERS:],
                }  # fmt: skip
                result = {
                    "record": cell.key if is_record else "",
                    "attempt": as_fields(_attempt(request, measured, conditions)),
                    "facts": {} if is_record else failure,
                }
                (partial / RESULT_FILE).write_text(json.dumps(result), encoding="utf-8")
                tickets.end(run)
                has_ended = True
        except (OSError, RunError):
            if tickets.place(HELD, run).exists():
                raise
            # The follower gave this worker up, as after a long suspension, and removed the folder.
            # What it drew next might be lost as well: Slurm may take its node for dead.
            logger.warning("%s: this worker was given up; its run is discarded", cell.key[:12])
            self._is_given_up = True
            return
        finally:
            if not has_ended:
                tickets.give_back(run)
        self.summary.recorded += is_record
        self.summary.failed += not is_record
        if measured.outcome == "failed":
            self._check_able(cell)

    def _check_able(self, cell: Cell) -> None:
        """Check that the application can run here, once several of its runs have failed."""
        self._failed.append(cell)
        failures = Failures(runs_in(self.submission.out).values())
        for failed in self._failed:
            failures.count(failed, "failed", self.tickets.folder / ENDED)

    def _ended_with_us(self, run: Run) -> bool:
        """Return whether a run failed as the system ends the job: all its processes at once."""
        if run.outcome != "failed":
            return False
        end = time.monotonic() + (SAME_SIGNAL_S if run.exit_status in TERMINATED else 0.0)
        while time.monotonic() < end and not self.stopped():
            time.sleep(0.1)
        return self.stopped()

    def _conditions(self, app: str) -> Conditions:
        """Return how a run is measured, within the rest of the allocation."""
        conditions, mapped = self.settings.conditions, self.settings.mapped_files_bytes.get(app, 0)
        limit_s = min(conditions.time_limit_s or math.inf, self.allocation.left_s)
        return dataclasses.replace(
            conditions,
            time_limit_s=None if limit_s == math.inf else limit_s,
            mem_limit_bytes=max(0, self.allocation.memory_bytes - mapped),
        )

    def _is_record(self, cell: Cell, run: Run, conditions: Conditions) -> bool:
        """Return whether a run is a record, and not an attempt that a larger worker may better.

        A run that reached a limit of the campaign, or of its configuration, is a lower bound.
        """
        if run.outcome == "timeout":
            return conditions.time_limit_s == self.settings.conditions.time_limit_s
        if run.outcome == "out_of_memory":
            configured = cell.configuration.mem_limit_bytes or math.inf
            return configured <= (conditions.mem_limit_bytes or math.inf)
        return run.outcome == "completed"

    def _shortfall(self, cell: Cell, request: Request) -> str:
        """Return what a cell lacks here; empty if it can be run."""
        mapped = self.settings.mapped_files_bytes.get(cell.app, 0)
        if lack := self.allocation.shortfall(request, mapped):
            return lack
        app = cell.app, cell.app_version, cell.configuration
        for lack, needed, check in (
            ("the application", app, self._check_app),
            ("its volume", cell.volume_id, self._check_volume),
        ):
            if needed not in self._problems:
                self._problems[needed] = None
                try:
                    check(cell)
                except VoxcastError as error:
                    logger.warning("%s", error)
                    self._problems[needed] = error
            if self._problems[needed] is not None:
                return lack
        return ""

    def _check_app(self, cell: Cell) -> None:
        app = choose(self.settings.apps, cell.app)
        check_startable(app, cell.configuration)
        if (version := app_version(app, cell.configuration)) != cell.app_version:
            then = f"install {cell.app_version} here, or make the cells with this version"
            raise RunError(f"is version {version} here", cell.app, then)

    def _check_volume(self, cell: Cell) -> None:
        if cell.volume_id and not Path(path := self.settings.paths[cell.volume_id]).is_file():
            raise RunError("no such volume", path, "is its folder mounted on this machine?")


def _attempt(request: Request, run: Run, conditions: Conditions) -> Attempt:
    """Return the attempt of a run: with the limit that it reached, if it reached one."""
    outcome = cast("Outcome", run.outcome)
    if outcome == "timeout" and conditions.time_limit_s is not None:
        request = dataclasses.replace(request, walltime_s=conditions.time_limit_s)
    if outcome == "out_of_memory" and conditions.mem_limit_bytes is not None:
        request = dataclasses.replace(request, memory_bytes=conditions.mem_limit_bytes)
    return Attempt(request, outcome, run.runtime_s or 0.0)


class _Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, self.prog, "see --help")


def _amount(parse: Callable[[str], float], option: str) -> Callable[[str], float]:
    """Return a reader of amounts above zero."""

    def read(text: str) -> float:
        try:
            amount = parse(text)
        except ConfigError as error:
            raise ConfigError(one_line(error), option) from None
        if amount <= 0:
            raise ConfigError("must be above zero", option)
        return amount

    return read


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Work until nothing that fits is left."""
    parser = _Parser(
        prog="python -m voxcast.jobs.worker", description=(__doc__ or "").partition("\n\nA ")[0],
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--pool", type=Path, required=True, metavar="DIR", help="folder of a pool")
    parser.add_argument(
        "--time-budget", type=_amount(parse_seconds, "--time-budget"), metavar="2h",
        help="no longer than this (default: the time that the job has left)",
    )  # fmt: skip
    parser.add_argument("--cpus", type=int, metavar="N", help="default: those of the job")
    parser.add_argument(
        "--memory", type=_amount(parse_bytes, "--memory"), metavar="SIZE",
        help="e.g. 8GB (default: that of the job)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    facts = host_facts()
    if args.cpus is not None and not 1 <= args.cpus <= facts.cores:
        raise ConfigError(f"must be 1 to {facts.cores} here, not {args.cpus}", "--cpus")
    if (args.memory or 0) > facts.memory_bytes:
        raise ConfigError("must be at most the memory of the machine", "--memory")
    allocation = worker_allocation(
        facts, os.environ, cpus=args.cpus, memory_bytes=args.memory, time_budget_s=args.time_budget
    )
    submission = Submission.open(args.pool.resolve(), with_tasks=False)
    draw = submission.plan.draw
    try:  # relative paths of the cells begin there
        os.chdir(submission.folder if draw is None else draw.project)
    except OSError as error:
        reason = f"the project of the pool cannot be entered ({error.strerror})"
        then = "is its file system mounted here?"
        raise RunError(reason, error.filename, then) from None
    # Batch systems send SIGTERM some time before they kill a job, terminals SIGHUP when they
    # close. They raise no exception: Python loses one that comes while it starts a process.
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda received_number, _: received.append(received_number))
    summary = work(submission, allocation, facts, lambda: bool(received))
    if summary.stopped:
        logger.warning("asked to stop; the cell at hand was returned")
    left = f"{summary.recorded} runs recorded, {summary.failed} attempts failed, "
    print(f"{left}{summary.left} cells wait")
    for lack, count in sorted(summary.lacking.items()):
        print(f"  {count} need more here: {lack}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
