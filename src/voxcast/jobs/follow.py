"""Following a submission: attempts that ended are recorded, and the next ones submitted.

Each step reads states, records what ended, moves results, and submits the next requests. Cells
that workers draw get a ticket each, with more time or memory after a failure, or parts; their jobs
are passes of workers, see `voxcast.jobs.passes`. Only the process that follows writes events, and
runs on record. An event is written before the step that it describes, and each step may be
repeated: recorded attempts are never made again, and a process that is killed between two lines is
continued by the next one from the folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from voxcast.errors import RunError, TableError, VoxcastError, one_line
from voxcast.files import canonical_json, read_json, remove_folder, sync
from voxcast.jobs.arrays import arrays_of
from voxcast.jobs.claim import is_silent
from voxcast.jobs.draw import ENDED, HELD, PARTIAL, RESULT_FILE, TODO, Ticket, Tickets
from voxcast.jobs.escalate import Attempt, RequestSequence, Stop
from voxcast.jobs.parts import PART_RUNS, join, parts_of
from voxcast.jobs.passes import next_jobs
from voxcast.jobs.script import array_script, task_list
from voxcast.jobs.slurm import SlurmAwayError, SlurmRefusedError
from voxcast.jobs.state import SubmissionState, TaskState
from voxcast.jobs.status import current_states, task_rows
from voxcast.jobs.submission import private_text
from voxcast.jobs.task import Task
from voxcast.measure import tree
from voxcast.measure.leftovers import sweep
from voxcast.measure.runner import lacked_memory
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import Request, as_fields
from voxcast.runs.series import read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from voxcast.jobs.claim import Claim
    from voxcast.jobs.passes import Passes
    from voxcast.jobs.state import SubmittedArray, TaskId
    from voxcast.jobs.submission import Submission

POLL_S = 30.0
LONGEST_NAP_S = 60.0  # a claim is touched at least so often
COLLECT_S = 600.0  # between two collections of finished runs
LOST = "its worker has gone"

logger = logging.getLogger(__name__)


class Executor(Protocol):
    """Runs the arrays of a submission: Slurm, or this machine."""

    def submit(self, array: SubmittedArray) -> str:
        """Start an array, whose script is written, and return the number of its job."""

    def find(self, array: SubmittedArray) -> str:
        """Return the job of an array that is not on record; empty if not found."""

    def states(
        self, arrays: Sequence[SubmittedArray], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states of the tasks of arrays; unknown ones are left out.

        The peak of memory, and whether it ended a task, are in the steps of its job. They may be
        left out where it takes long to look them up.
        """

    def stalled(self, running: Mapping[TaskId, TaskState]) -> list[TaskId]:
        """Return the running tasks that have used no CPU for too long."""

    def machine(self, folder: Path) -> dict[str, str]:
        """Return `voxcast.jobs.script.machine_of` an attempt, given its folder."""

    @property
    def memory_sampling_s(self) -> float | None:
        """The time between two samples of memory; None if it is only read at the end."""

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Stop tasks of arrays."""


@dataclass
class Follower:
    """Takes a submission to its end, step by step.

    Attributes
    ----------
    executor : Executor or None
        None where workers are started by others.
    claim : Claim or None
        The right to follow, which is shown to be held before each event.
    passes : Passes or None
        How workers are submitted; None where they are not.
    current : dict of str to TaskState
        The latest state of each task or worker with a live attempt.
    """

    submission: Submission
    executor: Executor | None = None
    claim: Claim | None = None
    passes: Passes | None = None
    state: SubmissionState = field(init=False)
    current: dict[str, TaskState] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _away: bool = False
    _is_published: bool = False
    _passes_made: int = 0
    _progress_before: int = 0

    def __post_init__(self) -> None:
        self.state = SubmissionState.of(self.submission.plan, self.submission.events())
        if self.submission.plan.draw is not None:
            for kind in (TODO, HELD, PARTIAL, ENDED):
                self.tickets.place(kind, "").mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.submission.folder / PART_RUNS).mkdir(mode=0o700, exist_ok=True)

    @property
    def tickets(self) -> Tickets:
        """The tickets of cells that workers draw."""
        return Tickets.of(self.submission)

    def step(self) -> bool:
        """Do what can be done now; return whether anything is left to wait for.

        While Slurm does not answer, which is said once, nothing is changed.

        Raises
        ------
        RunError
            If workers are refused, or have changed nothing: the next would not either.
        """
        is_drawn = self.submission.plan.draw is not None
        if self.claim is not None:
            self.claim.touch()
        try:
            if self.executor is not None:
                self._adopt(self.executor)
                if not (self._is_published or is_drawn):
                    self._publish_recorded()
                    self._is_published = True
                self._read_states(self.executor)
                self._stop_stalled(self.executor)
            if is_drawn:
                self.settle()
                self._start_pass()
            else:
                self._submit_ready()
            if self._away:
                logger.info("Slurm answers again")
                self._away = False
        except SlurmAwayError as error:
            if not self._away:
                logger.warning("%s; trying again", one_line(error))
                self._away = True
            return True
        return bool(self.state.live or self.current)

    def settle(self) -> bool:
        """Take in the runs that workers left; return whether there were any.

        Each cell that neither waits nor is run gets what follows: a ticket, parts, or an end.
        """
        tickets, before = self.tickets, self._progress()
        tasks = self.state.tasks
        self.current = {name: state for name, state in self.current.items() if name not in tasks}
        # In the order in which tickets move, and those returned last: none is overlooked.
        todo, held = set(tickets.names(TODO)), tickets.names(HELD)
        ended = tickets.names(ENDED)
        todo |= set(tickets.names(TODO))
        waiting = {Ticket.from_name(name).key: name for name in todo}
        for run in sorted(ended):
            self._take_in(run, waiting)
        for run in held:
            if not self._is_lost(run):
                self.current[Ticket.from_name(run).key] = TaskState("RUNNING", None)
        for run in tickets.names(PARTIAL):
            if not tickets.place(HELD, run).exists():  # its worker was given up
                with contextlib.suppress(OSError):
                    sweep(tickets.place(PARTIAL, run))
        idle = self.state.tasks.keys() - waiting.keys() - self.current.keys()
        placed = [name for name in list(self.state.tasks) if name in idle and self._place(name)]
        for name, parts in self.state.parts.items():
            if name not in self.state.records and all(p in self.state.records for p in parts):
                self._take_in(self._join(name), {})
        return bool(placed) or self._progress() != before

    def waiting(self) -> dict[str, Request]:
        """Return the requests of the cells that wait for a worker."""
        steps = {
            name: self.state.next_step(name, self.submission.plan)
            for name in self.state.tasks.keys() - self.current.keys()
        }
        return {name: step for name, step in steps.items() if isinstance(step, Request)}

    def retry(self) -> int:
        """Let the cells wait again that were given up; their attempts count no more."""
        given_up = [name for name in self.state.ended if name in self.state.tasks]
        given_up = [name for name in given_up if name not in self.state.parts]
        steps = {name: self.state.next_step(name, self.submission.plan) for name in given_up}
        again = [n for n, step in steps.items() if isinstance(step, Stop) and not step.completed]
        for name in again:
            self._record(event="retried", task=name)
        return len(again)

    def start_workers(self, request: Request, count: int) -> None:
        """Submit an array of workers.

        Raises
        ------
        RunError
            If Slurm refuses it.
        """
        number = self.state.last_array + 1
        names = [f"worker-{number:04}-{n}" for n in range(1, count + 1)]
        self._submit(names, replace(request, device="gpu" if request.gpus else "cpu"))
        if reason := self.state.problems.get(names[0]):
            raise RunError(f"the jobs of workers were refused ({reason})", self.submission.folder)

    def _record(self, **event: Any) -> None:
        if self.claim is not None:
            self.claim.touch()
        self.submission.record(event)
        self.state.apply(event)

    def _adopt(self, executor: Executor) -> None:
        """Find the job of an array whose submitter died before it could record it."""
        for array in [a for a in self.state.arrays.values() if not a.job]:
            job = executor.find(array)
            if job:
                self._record(event="submitted", array=array.number, job=job)
            else:
                # A command that outlived its submitter may still submit the script, which then
                # ends at once: another array runs its tasks.
                self.submission.files(array.number).task_list.unlink(missing_ok=True)
                self._record(event="withdrawn", array=array.number)

    def _read_states(self, executor: Executor) -> None:
        states = current_states(self.state, executor) if self.state.live else {}
        self.current = {}
        for name, task_state in states.items():
            if task_state.outcome is None:
                self.current[name] = task_state
            else:
                array, number = self.state.live[name]
                self._end(executor, name, self.state.arrays[array], number, task_state)

    def _end(
        self, executor: Executor, name: str, array: SubmittedArray, number: int, ended: TaskState
    ) -> None:
        task, outcome = self.state.tasks.get(name), ended.outcome or "failed"
        if outcome != "completed":
            # A task that is stopped may look killed for memory (by root) or failed (by a shell).
            outcome = self.state.stopping.get((array.number, number), outcome)
        if task is not None and outcome == "failed":
            log = self.submission.log_tail(array.number, number)
            outcome = "out_of_memory" if lacked_memory(log, None) else outcome
        machine = executor.machine(self.submission.files(array.number).attempt_folder(number))
        usd = 0.0 if task is None else task.usd_per_hour * ended.runtime_s / 3600
        attempt = Attempt(array.request, outcome, ended.runtime_s, usd)
        facts = {
            "job": array.job, "state": ended.state, "cpu_s": ended.cpu_s, "node": ended.node,
            "peak_bytes": ended.peak_bytes, "submitted_at": ended.submitted_at,
            "started_at": ended.started_at, "memory_method": ended.memory_method,
            "cpu_method": ended.cpu_method, "machine": machine,
            "memory_sampling_s": executor.memory_sampling_s,
        }  # fmt: skip
        # On record first: results that were moved are of an attempt that is never made again.
        self._record(
            event="ended", task=name, array=array.number, number=number,
            attempt=as_fields(attempt), facts=facts,
        )  # fmt: skip
        if task is not None and outcome == "completed":
            self._publish(name, array.number, number)
        elif outcome != "completed":
            self._log_end(name)

    def _publish(self, name: str, array: int, number: int) -> None:
        problem = self.submission.publish(name, array, number)
        if problem:
            self._record(event="unpublished", task=name, reason=problem)
            logger.error("%s: %s", name, problem)

    def _publish_recorded(self) -> None:
        """Move results of attempts whose process died between their record and this."""
        for name, attempts in self.state.ended.items():
            last = attempts[-1]
            work = self.submission.files(last.array).attempt_folder(last.number)
            is_done = last.attempt.outcome == "completed" and name not in self.state.problems
            if is_done and work.is_dir():
                self._publish(name, last.array, last.number)

    def _log_end(self, name: str) -> None:
        """Log what happens after an attempt that did not complete."""
        ended, task, submission = (
            self.state.ended[name][-1],
            self.state.tasks.get(name),
            self.submission,
        )
        if task is not None and (cell := task.cell) is not None:
            subject = f" sub-{cell.subject}" if cell.subject else ""
            after = f"{cell.app}{subject}, {cell.configuration.label}: {ended.facts['cause']}"
        else:
            cause = ended.attempt.outcome.replace("_", " ")
            after = f"{name}: {cause} after {format_seconds(ended.attempt.runtime_s)}"
        step = None if task is None else self.state.next_step(name, submission.plan)
        if isinstance(step, Request):
            if ended.array:
                submission.discard(ended.array, ended.number)
            following = f"{format_seconds(step.walltime_s)} and {format_bytes(step.memory_bytes)}"
            logger.info("%s; next: %s", after, following)
        elif not isinstance(step, Stop):
            logger.warning("%s", after)
        elif ended.array:
            last = submission.log_tail(ended.array, ended.number).strip().splitlines()[-1:]
            last_words = f" ({last[0][:200]})" if last else ""
            log = submission.log(ended.array, ended.number)
            logger.error("%s%s; given up: %s; see %s", after, last_words, step.reason, log)
        else:
            logger.warning("%s; no more attempts: %s", after, step.reason)

    def _stop_stalled(self, executor: Executor) -> None:
        places = {}
        for name, task_state in self.current.items():
            if task_state.is_running:
                array, number = self.state.live[name]
                places[self.state.arrays[array].job, number] = array, task_state
        tasks = executor.stalled({task: state for task, (_, state) in places.items()})
        for job, number in tasks:
            array, _ = places[job, number]
            self._record(event="stopping", array=array, number=number, outcome="stalled")
        if tasks:
            executor.cancel(tasks)

    def _submit_ready(self) -> None:
        plan, state = self.submission.plan, self.state
        ready: dict[str, Request] = {}
        for name in state.tasks:
            step = None if name in self._refused else state.next_step(name, plan)
            if isinstance(step, Request):
                ready[name] = step
        for array in arrays_of(ready):
            self._submit(array.names, array.request)

    def _submit(self, names: Sequence[str], request: Request) -> None:
        if self.executor is None:
            return
        number, submission = self.state.last_array + 1, self.submission
        tasks = [self.state.tasks.get(name) or _worker(name, request) for name in names]
        files, job_name = submission.files(number), submission.job_name(number)
        listed = task_list(submission.plan, tasks, request, files)
        private_text(files.task_list, listed)
        script = array_script(submission.plan, tasks, request, job_name, files)
        private_text(submission.script(number), script)
        fields = as_fields(request)
        self._record(event="prepared", array=number, request=fields, tasks=list(names))
        try:
            job = self.executor.submit(self.state.arrays[number])
        except SlurmAwayError:
            raise  # it may have arrived: `_adopt` looks for it
        except VoxcastError as error:
            reason = one_line(error)
            self._record(event="refused", array=number, reason=reason)
            self._refused |= set(names)
            logger.error(
                "%s refused: %s (requested %s)",
                counted(len(names), "task"), reason, canonical_json(fields),
            )  # fmt: skip
            return
        self._record(event="submitted", array=number, job=job)

    def _start_pass(self) -> None:
        """Submit workers if none is left and cells wait; take them out of the queue if none do."""
        if workers := self.state.workers():
            if self.executor is not None and not self._is_open():
                queued = [
                    (self.state.arrays[self.state.live[name][0]].job, self.state.live[name][1])
                    for name in workers if name in self.current
                    and not self.current[name].is_running
                ]  # fmt: skip
                with contextlib.suppress(SlurmRefusedError):  # they have just ended
                    self.executor.cancel(queued)
            return
        waiting, passes = self.waiting(), self.passes
        if passes is None or not waiting:
            return
        if self._passes_made and self._progress() == self._progress_before:
            last = self.state.arrays[self.state.last_array].names
            ends = {self.state.ended[name][-1].attempt.outcome for name in last}
            if not ends & {"preempted", "node_failure"}:
                problem = "the workers of the last pass ended without having run any cell"
                where = self.submission.folder / "logs"
                raise RunError(problem, where, "see what they say there")
        if self._passes_made == passes.most:
            logger.warning("%d passes were made, and cells still wait", self._passes_made)
            self.passes = None
            return
        self._passes_made, self._progress_before = self._passes_made + 1, self._progress()
        jobs = next_jobs(self.submission.plan, self.state.tasks, waiting, passes)
        logger.info("pass %d: %s", self._passes_made, jobs)
        partition = passes.partition_of(jobs.request)
        self.start_workers(replace(jobs.request, partition=partition), jobs.count)

    def _progress(self) -> int:
        """Return what changes whenever a worker has run a cell."""
        return len(self.state.runs) + len(self.state.parts)

    def _is_open(self) -> bool:
        """Return whether a cell waits or is run."""
        steps = (self.state.next_step(n, self.submission.plan) for n in self.state.tasks)
        return any(not isinstance(step, Stop) for step in steps)

    def _take_in(self, run: str, waiting: dict[str, str]) -> None:
        """Record a run that a worker has ended, and move it to its place, or remove it."""
        tickets, state, name = self.tickets, self.state, Ticket.from_name(run).key
        folder = tickets.place(ENDED, run)
        task = state.tasks.get(name)
        if run not in state.runs and task is not None and name not in state.records:
            try:
                result = read_json(folder / RESULT_FILE)
                self._record(event="ended", task=name, run=run, **result)
                if not result["record"]:
                    self._log_end(name)
            except (OSError, ValueError):  # the machine crashed before it was on disk
                self._lose(run, "node_failure")
        record = state.runs.get(run)
        if record and task is not None:
            place = self.submission.folder / PART_RUNS if task.part_of else self.submission.out
            _move(folder, place / record)
        else:
            remove_folder(folder)
        tickets.place(HELD, run).unlink(missing_ok=True)
        if name in state.records and name in waiting:  # it was given up too early
            tickets.place(TODO, waiting.pop(name)).unlink(missing_ok=True)

    def _lose(self, run: str, outcome: str) -> None:
        """Record the attempt of a worker that said nothing of its end."""
        name, worker = Ticket.from_name(run).key, run.split("~")[1]
        step = self.state.next_step(name, self.submission.plan)
        if not isinstance(step, Request):
            step = self.state.ended[name][-1].attempt.request
        self._record(
            event="ended", task=name, run=run, record="",
            attempt={"request": as_fields(step), "outcome": outcome},
            facts={"cause": LOST, "worker": worker},
        )  # fmt: skip
        self._log_end(name)

    def _is_lost(self, run: str) -> bool:
        """Return whether a ticket is held by no worker that lives; then it is returned."""
        tickets, state = self.tickets, self.state
        worker, job = run.split("~")[1:3]
        held = tickets.place(HELD, run)
        outcome = self._job_outcome(job)
        if not outcome and not tree.is_abandoned(worker) and not is_silent(held):
            return False
        if tickets.place(ENDED, run).exists() or not held.exists():
            return True  # it ended, or was returned, since the folders were listed
        if Ticket.from_name(run).key not in state.records and run not in state.runs:
            # The worker ends its runs before the time of its job: only memory is the run's.
            self._lose(run, outcome if outcome == "out_of_memory" else "node_failure")
        held.unlink(missing_ok=True)
        return True

    def _job_outcome(self, job: str) -> str:
        """Return how the job of a worker has ended; empty if that is not known."""
        for name, attempts in self.state.ended.items():
            last = attempts[-1]
            if name not in self.state.tasks and f"{last.facts['job']}_{last.number}" == job:
                return last.attempt.outcome
        return ""

    def _place(self, name: str) -> bool:
        """Give a cell without a ticket what follows, a ticket or parts; return whether it did."""
        task, plan = self.state.tasks[name], self.submission.plan
        step, attempts = self.state.next_step(name, plan), self.state.attempts(name)
        if isinstance(step, Request):
            self.tickets.put(task, len(attempts), step)
            return True
        is_late = bool(attempts) and attempts[-1].outcome == "timeout"
        if (
            isinstance(step, Stop)
            and not step.completed
            and is_late
            and name not in self.state.parts
        ):
            return self._split(task, attempts[-1].request.walltime_s)
        return False

    def _split(self, task: Task, took_s: float) -> bool:
        plan = self.submission.plan
        assert task.cell is not None  # noqa: S101  # as it was drawn
        assert plan.draw is not None  # noqa: S101
        longest_s = min(plan.limits.max_walltime_s, took_s)
        parts = parts_of(task, plan.draw.apps[task.cell.app], took_s, longest_s)
        if parts:
            fields = [as_fields(part) for part in parts]
            self._record(event="split", task=task.name, parts=fields)
            label = task.cell.configuration.label
            logger.warning("%s, %s; split into %d parts", task.cell.app, label, len(parts))
            for part in parts:
                self._place(part.name)
        return bool(parts)

    def _join(self, name: str) -> str:
        """Make one run of the runs of all parts, as if it had just ended; return its name."""
        tickets, task = self.tickets, self.state.tasks[name]
        assert task.cell is not None  # noqa: S101  # as it was split
        request = task.requests.first
        ticket = Ticket(name, len(self.state.attempts(name)), int(request.walltime_s))
        run = f"{ticket.name}~joined~~0"
        records = [self.state.records[part] for part in self.state.parts[name]]
        folders = [self.submission.folder / PART_RUNS / record for record in records]
        with contextlib.suppress(OSError):
            remove_folder(tickets.place(ENDED, run))
        record = join(task.cell, folders, tickets.place(PARTIAL, run))
        attempt = as_fields(Attempt(request, "completed"))
        result = {"record": record, "attempt": attempt, "facts": {"parts": len(records)}}
        (tickets.place(PARTIAL, run) / RESULT_FILE).write_text(json.dumps(result))
        tickets.end(run)
        return run


def _worker(name: str, request: Request) -> Task:
    """Return the task that is a worker."""
    sequence = RequestSequence((request.walltime_s,), (request.memory_bytes,), request.cpus)
    return Task(name, "", sequence)


def _move(folder: Path, final: Path) -> None:
    """Move a run to its place, unless a complete record is there, which is not replaced."""
    try:
        folder.rename(final)
    except OSError:
        try:
            read_record(final)
            remove_folder(folder)
        except TableError:
            remove_folder(final)
            folder.rename(final)
    sync(final.parent)


def follow(
    follower: Follower, poll_s: float = POLL_S, collect: Callable[[], object] = lambda: None
) -> None:
    """Follow a submission until no task has an attempt left, with progress on stderr.

    Parameters
    ----------
    poll_s : float
        Seconds between two calls of the scheduler.
    collect : callable
        Puts finished runs on record; called at intervals and at the end.
    """
    from tqdm import tqdm

    collected_at = time.monotonic()
    try:
        with tqdm(unit="task", disable=None, leave=False) as bar:
            while True:
                goes_on = follower.step()
                rows = task_rows(follower.submission, follower.state, follower.current)
                counts = Counter(row["status"] for row in rows)
                bar.total = len(rows)
                bar.n = sum(counts[status] for status in ("completed", "given up", "refused"))
                bar.set_postfix(
                    {status: n for status, n in counts.items() if status != "completed"}
                )
                if not goes_on:
                    return
                if time.monotonic() - collected_at >= COLLECT_S:
                    collect()
                    collected_at = time.monotonic()
                _nap(poll_s, follower)
    finally:
        collect()


def _nap(seconds: float, follower: Follower) -> None:
    """Sleep, and touch the claim meanwhile."""
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(left_s, LONGEST_NAP_S))
        if follower.claim is not None:
            follower.claim.touch()
