"""Rounds of workers over a pool, as arrays of Slurm, until no cell waits.

A round is a submission whose tasks are workers, followed as any other, see `voxcast.jobs.follow`;
its folder is ``rounds/0001`` of the folder that the workers share, such as a pool. Its jobs are as
large as most of the cells need that wait when it begins; what needs more is left to the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.jobs import slurm
from voxcast.jobs.claim import claimed
from voxcast.jobs.draw import MARGIN_S, WORKER_BYTES
from voxcast.jobs.escalate import Limits, RequestSequence
from voxcast.jobs.follow import POLL_S, Follower, nap
from voxcast.jobs.script import array_line
from voxcast.jobs.settle import Ledger
from voxcast.jobs.state import SubmissionState
from voxcast.jobs.submission import SUBMISSION_FILE, Plan, SlurmOptions, Submission
from voxcast.jobs.task import Task
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import App, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from voxcast.jobs.claim import Claim
    from voxcast.jobs.pool import Pool
    from voxcast.records import Outcome

logger = logging.getLogger(__name__)

ROUNDS, ENDED_WORKERS = "rounds", "ended"
CLOSED = "closed"  # the event of a round that is not followed any more
MAX_ROUNDS = 10
MAX_JOBS = 1000
# A worker whose node was lost, or that was preempted, is started again so often. One that was too
# small is not: the next round has larger jobs.
MAX_STARTS = 5
SHARE = 0.9  # of the cells that wait, for which a round is large enough
RUNS_PER_JOB = 4  # a job is long enough for so many of its longest runs
LEAST_S = 3600.0  # starting a job for less is seldom worth it
COLLECT_S = 600.0  # between two collections of finished runs
ANNOUNCE_S = 30.0
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


@dataclass(frozen=True)
class WorkerJobs:
    """Jobs with one worker each.

    Attributes
    ----------
    request : Request
        Request of each job, with the worker's own.
    count : int
    cells : int
        How many of the cells that wait now fit.
    """

    request: Request
    count: int
    cells: int

    def __str__(self) -> str:
        gpus = f", {self.request.gpus} GPUs" if self.request.gpus else ""
        cpus = f"{self.request.cpus} CPU{'s' if self.request.cpus != 1 else ''}"
        memory = format_bytes(self.request.memory_bytes)
        each = f"{cpus}{gpus}, {memory}, {format_seconds(self.request.walltime_s)}"
        return f"{self.count} job{'s' if self.count != 1 else ''} of {each}"


def next_jobs(
    ledger: Ledger, *, max_jobs: int = MAX_JOBS, least_s: float = LEAST_S
) -> WorkerJobs | None:
    """Return the jobs of the next round; None if no cell waits.

    Parameters
    ----------
    max_jobs : int
        The most jobs.
    least_s : float
        No job is shorter, where the limits of the pool permit.
    """
    settings = ledger.pool.settings
    requests, expected_s = [], []
    for key, request in ledger.requests().items():
        cell = ledger.cells[key]
        mapped = settings.mapped_files_bytes.get(cell.cell.app, 0)
        requests.append(dataclasses.replace(request, memory_bytes=request.memory_bytes + mapped))
        expected_s.append(cell.expected_s)
    if not requests:
        return None
    cpus, gpus = max(r.cpus for r in requests), max(r.gpus for r in requests)
    run_s = _quantile([r.walltime_s for r in requests])
    memory = _quantile([r.memory_bytes for r in requests])
    fits = [
        seconds
        for seconds, r in zip(expected_s, requests, strict=True)
        if r.walltime_s <= run_s and r.memory_bytes <= memory
    ]
    if not fits:  # none has both at its usual size
        run_s = max(r.walltime_s for r in requests)
        memory = max(r.memory_bytes for r in requests)
        fits = expected_s
    longest_s = settings.limits.max_walltime_s + 2 * MARGIN_S  # the limits apply to runs
    walltime_s = min(max(RUNS_PER_JOB * run_s, least_s), longest_s)
    walltime_s = max(walltime_s, min(run_s + 2 * MARGIN_S, longest_s))
    count = max(1, min(math.ceil(sum(fits) / (0.8 * walltime_s)), len(fits), max_jobs))
    request = Request(walltime_s, int(memory) + WORKER_BYTES, cpus, gpus)
    return WorkerJobs(request, count, len(fits))


def _quantile(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(SHARE * len(values)) - 1]


def work_command(pool: Pool, *options: str) -> list[str]:
    """Return the command of a worker, with this Python."""
    python = [sys.executable, "-m", "voxcast.cli"]
    return [*python, "work", "--pool", str(pool.folder.resolve()), *options]


def sbatch_line(
    pool: Pool, jobs: WorkerJobs, partition: str | None = None, *, per_cpu: bool = False
) -> str:
    """Return a line for a shell that starts the jobs of a round as an array of Slurm."""
    command = ["voxcast", "work", "--pool", str(pool.folder.resolve())]
    return array_line(command, jobs.request, jobs.count, partition, per_cpu=per_cpu)


def worker_plan(
    name: str,
    command: Sequence[str],
    jobs: WorkerJobs,
    partition: str,
    options: SlurmOptions,
    cluster: str = "",
) -> Plan:
    """Return the plan of a round, with one worker a task.

    Parameters
    ----------
    name : str
        Name of the jobs.
    command : sequence of str
        Command of a worker.
    options : SlurmOptions
        Account and the like of the jobs.
    cluster : str
        Its name, for the record.
    """
    words = [re.sub(r"([{}])", r"\1\1", word) for word in command]
    request = jobs.request
    requests = RequestSequence(
        (request.walltime_s,), (request.memory_bytes,), request.cpus, request.gpus, partition,
        "gpu" if request.gpus else "cpu",
    )  # fmt: skip
    limits_s, limits_bytes = request.walltime_s, request.memory_bytes
    tasks = tuple(
        Task(f"worker-{n:04}", "", requests, 0.0, limits_s, limits_bytes)
        for n in range(1, jobs.count + 1)
    )
    app = App(_UNSAFE.sub("_", name), "1", argv=tuple(words), input="none")
    return Plan(app, tasks, {}, "none", cluster, Limits(max_attempts=MAX_STARTS), options)


def create_round(shared: Path, plan: Plan) -> Submission:
    """Make the folder of the next round in the folder that its workers share."""
    folder = shared / ROUNDS
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    folder /= f"{max(numbers, default=0) + 1:04}"
    return Submission.create(plan, folder / ENDED_WORKERS, "slurm", folder)


def open_round(shared: Path) -> Submission | None:
    """Return the round whose jobs are queued or running, if any."""
    for path in sorted((shared / ROUNDS).glob(f"[0-9]*/{SUBMISSION_FILE}"), reverse=True):
        submission = Submission.open(path.parent)
        events = list(submission.events())
        is_closed = any(event.get("event") == CLOSED for event in events)
        if not is_closed and SubmissionState.of(submission.plan, events).live:
            return submission
    return None


def check_accepted(follower: Follower) -> None:
    """Check that the jobs of a round were not refused.

    Raises
    ------
    RunError
        With the reason of the first.
    """
    if follower.state.problems and not follower.state.ended:
        reason = next(iter(follower.state.problems.values()))
        problem = f"the jobs of a round were refused ({reason})"
        raise RunError(problem, follower.submission.folder)


@contextlib.contextmanager
def following(shared: Path) -> Iterator[Claim]:
    """Hold the right to follow a folder that workers share, which may not be made yet.

    Raises
    ------
    RunError
        If another process that lives holds it.
    """
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    with claimed(shared) as claim:
        yield claim


@dataclass
class Rounds:
    """Submits round after round until no cell waits.

    Attributes
    ----------
    plan_of : callable
        Returns the plan of a round, see `worker_plan`.
    collect : callable
        Puts finished runs on record; called at intervals and after each round.
    poll_s : float
        Seconds between two calls of the scheduler.
    least_s : float
        No job is shorter, where the partition permits.
    """

    ledger: Ledger
    claim: Claim
    plan_of: Callable[[WorkerJobs], Plan]
    collect: Callable[[], object]
    poll_s: float = POLL_S
    max_rounds: int = MAX_ROUNDS
    max_jobs: int = MAX_JOBS
    least_s: float = LEAST_S

    def run(self) -> int:
        """Follow the round that is under way, and all that are needed; return how many are new.

        Raises
        ------
        RunError
            If a round is refused, or changes nothing: the next would not either.
        """
        pool = self.ledger.pool
        submission, submitted = open_round(pool.folder), 0
        if submission is not None:
            logger.info("a round is under way: %s", submission.folder)
        while True:
            before = self._standing()
            if submission is not None:
                self._follow(submission)
            self._wait_for_workers()
            jobs = next_jobs(self.ledger, max_jobs=self.max_jobs, least_s=self.least_s)
            if jobs is None:
                return submitted
            if submission is not None and submitted and self._standing() == before:
                problem = "the workers of the last round ended without having run any cell"
                raise RunError(problem, submission.folder / "logs", "see what they say there")
            if submitted == self.max_rounds:
                logger.warning("%d rounds were made, and cells still wait", submitted)
                return submitted
            submission = create_round(pool.folder, self.plan_of(jobs))
            submitted += 1
            logger.info("round %d: %s", submitted, jobs)

    def _standing(self) -> object:
        """Return what changes whenever a worker has run a cell."""
        ledger = self.ledger
        attempts = sum(map(len, ledger.attempts.values()))
        return len(ledger.recorded), attempts, len(ledger.given_up), len(ledger.parts)

    def _follow(self, submission: Submission) -> None:
        """Follow a round until its last job has ended, or no cell is left for jobs that wait."""
        from tqdm import tqdm

        follower = Follower(submission, slurm.SlurmExecutor(submission))
        collected_at = time.monotonic()
        try:
            with tqdm(total=len(self.ledger.cells), unit="cell", disable=None, leave=False) as bar:
                while True:
                    self.claim.touch()
                    goes_on = follower.step()
                    self.ledger.settle(_ended_jobs(follower))
                    state = self.ledger.state()
                    bar.n = state.recorded
                    workers = sum(task.is_running for task in follower.current.values())
                    bar.set_postfix(workers=workers, waiting=state.waiting)
                    if not goes_on:
                        break
                    if not state.left:
                        _close(follower)
                        break
                    if time.monotonic() - collected_at >= COLLECT_S:
                        self.collect()
                        collected_at = time.monotonic()
                    nap(self.poll_s, self.claim)
        finally:
            self.collect()
        check_accepted(follower)

    def _wait_for_workers(self) -> None:
        """Wait while no cell waits and workers, of this round or others, still hold some."""
        is_noted = False
        while True:
            self.ledger.settle()
            state = self.ledger.state()
            if state.waiting or not state.running:
                break
            if not is_noted:
                logger.info("other workers, or workers that are gone, still hold cells; waiting")
                is_noted = True
            nap(self.poll_s, self.claim)
        self.collect()


def _ended_jobs(follower: Follower) -> dict[str, Outcome]:
    """Return how the jobs of a round have ended, by their number."""
    state = follower.state
    return {
        f"{ended.facts['job']}_{ended.number}": ended.attempt.outcome
        for attempts in state.ended.values()
        for ended in attempts
    }


def _close(follower: Follower) -> None:
    """Take jobs out of the queue for which no cell is left, and follow the round no more."""
    live, current = follower.state.live, follower.current
    waiting = [
        (follower.state.arrays[array].job, number)
        for name, (array, number) in live.items()
        if name in current and not current[name].is_running
    ]
    if waiting:
        try:
            follower.executor.cancel(waiting)
        except (slurm.SlurmAwayError, slurm.SlurmRefusedError) as error:
            logger.warning("%d jobs with nothing to do stay queued: %s", len(waiting), error)
    follower.submission.record({"event": CLOSED})


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
    workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
    announced = time.monotonic()
    try:
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if time.monotonic() - announced >= ANNOUNCE_S:
                announced = time.monotonic()
                on_progress()
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in workers:
            worker.wait()
    return [worker.returncode for worker in workers]
