"""Following a submission: attempts that ended are recorded, and the next ones submitted.

Each step reads states, records what ended, moves results, and submits the next requests. Cells
that workers draw get a ticket each, with more time or memory after a failure, or parts; their jobs
are passes of workers, see `voxcast.jobs.campaign`. Only the process that follows writes events and
records. An event is written before the step that it describes, and each step may be
repeated: recorded attempts are never made again, and a process that is killed between two lines is
continued by the next one from the folder.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voxcast.errors import RunError, VoxcastError, one_line
from voxcast.files import read_json, remove_folder, sync, write_text
from voxcast.jobs.campaign import PART_RUNS, WorkerJobs, join, parts_of
from voxcast.jobs.claim import Claim, is_abandoned
from voxcast.jobs.learned import LearnedRequests
from voxcast.jobs.script import array_script, arrays_of, task_list
from voxcast.jobs.slurm import SlurmAwayError, SlurmRefusedError
from voxcast.jobs.state import (
    FINAL,
    NOT_STARTED,
    Executor,
    SubmissionState,
    TaskState,
    counts,
    current_states,
)
from voxcast.jobs.submission import Submission
from voxcast.jobs.task import Array, Attempt, RequestSequence, Stop, Task
from voxcast.jobs.worker import ENDED, HELD, PARTIAL, RESULT_FILE, TODO, Tickets, key_of
from voxcast.measure.processes import sweep
from voxcast.measure.runner import lacked_memory
from voxcast.quantities import counted, format_seconds
from voxcast.records import Request, as_fields

POLL_S = 30.0
COLLECT_S = 600.0  # between two collections of finished runs
LOST = "its worker has gone"

logger = logging.getLogger(__name__)


@dataclass
class Follower:
    """Takes a submission to its end, step by step.

    Attributes
    ----------
    executor : Executor or None
        None where workers are started by others.
    claim : Claim or None
        The right to follow, which is shown to be held before each event.
    next_jobs : callable or None
        Returns the jobs of the next pass of workers for the requests of the cells that wait, by
        name; None if there is nothing to do. None where workers are started by others.
    most_passes : int
        Passes of one command.
    current : dict of str to TaskState
        The latest state of each task or worker with a live attempt.
    """

    submission: Submission
    executor: Executor | None = None
    claim: Claim | None = None
    next_jobs: Callable[[Mapping[str, Request]], WorkerJobs | None] | None = None
    most_passes: int = 10
    state: SubmissionState = field(init=False)
    learner: LearnedRequests = field(init=False)
    current: dict[str, TaskState] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _not_raised: set[str] = field(default_factory=set)  # reasons that were logged
    _away: bool = False
    _passes_made: int = 0
    _progress_before: int = 0

    def __post_init__(self) -> None:
        self.state = SubmissionState.of(self.submission.plan, self.submission.events())
        self.tickets = Tickets.of(self.submission)
        self.learner = LearnedRequests(self.submission.predicted)
        if self._is_drawn:
            self.tickets.make_folders()
            (self.submission.folder / PART_RUNS).mkdir(mode=0o700, exist_ok=True)
        else:
            for name, ends in self.state.ended.items():
                for ended in ends:
                    self.learner.add(self.state.tasks[name], ended)
            self._publish_recorded()

    @property
    def _is_drawn(self) -> bool:
        return self.submission.plan.draw is not None

    def step(self) -> bool:
        """Do what can be done now; return whether anything is left to wait for.

        While Slurm does not answer, which is said once, nothing is changed.

        Raises
        ------
        RunError
            If workers are refused, or have changed nothing: the next would not either.
        """
        if self.claim is not None:
            self.claim.check()
        try:
            if self.executor is not None:
                self._adopt(self.executor)
                self._read_states(self.executor)
                self._raise_queued(self.executor)
            if self._is_drawn:
                self.settle()
            if self.executor is not None and self._is_drawn:
                self._start_pass(self.executor)
            elif self.executor is not None:
                for array in arrays_of(self.waiting()):
                    self._submit(self.executor, array.names, array.request)
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
        tickets, state, before = self.tickets, self.state, self._progress()
        self.current = {n: current for n, current in self.current.items() if n not in state.tasks}
        # In the order in which tickets move, and those returned last: none is overlooked.
        todo, held = set(tickets.names(TODO)), tickets.names(HELD)
        ended = tickets.names(ENDED)
        todo |= set(tickets.names(TODO))
        waiting = {key_of(name): name for name in todo}
        for run in sorted(ended):
            self._take_in(run, waiting)
        ended_jobs = {
            f"{end.facts['job']}_{end.number}": end.attempt.outcome
            for name, ends in state.ended.items() if name not in state.tasks for end in ends
        }  # fmt: skip
        for run in held:
            if not self._is_lost(run, ended_jobs):
                self.current[key_of(run)] = TaskState("RUNNING", None)
        for run in tickets.names(PARTIAL):
            if not tickets.place(HELD, run).exists():  # its worker was given up
                with contextlib.suppress(OSError):
                    sweep(tickets.place(PARTIAL, run))
        idle = state.tasks.keys() - waiting.keys() - self.current.keys()
        placed = [name for name in list(state.tasks) if name in idle and self._place(name)]
        for name, parts in state.parts.items():
            if name not in state.records and all(part in state.records for part in parts):
                self._join(name, parts)
        return bool(placed) or self._progress() != before

    def waiting(self) -> dict[str, Request]:
        """Return the requests of the tasks that wait for a job or a worker."""
        is_busy = self.current.keys() | self._refused
        waiting = self.state.waiting().items()
        return {name: self._raised(name, r) for name, r in waiting if name not in is_busy}

    def _raised(self, name: str, request: Request) -> Request:
        """Return a request of a task, raised by what other tasks needed."""
        return request.at_least(self.learner.first(self.state.tasks[name]))

    def retry(self) -> int:
        """Let the cells wait again that were given up; their attempts count no more."""
        state = self.state
        steps = {name: state.next_step(name) for name in state.tasks if name not in state.parts}
        again = [n for n, step in steps.items() if isinstance(step, Stop) and not step.completed]
        for name in again:
            self._record(event="retried", task=name)
        return len(again)

    def _record(self, **event: Any) -> None:
        if self.claim is not None:
            self.claim.check()
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
        self.current = current_states(self.state, executor)
        for name, task_state in list(self.current.items()):
            if task_state.outcome is None:
                continue
            del self.current[name]
            if task_state == NOT_STARTED:
                self._record(event="withdrawn", task=name, array=self.state.live[name][0])
            else:
                self._end(executor, name, task_state)

    def _raise_queued(self, executor: Executor) -> None:
        """Raise the requests of first attempts in the queue; tasks of an array share theirs."""
        state = self.state
        queued: dict[int, list[str]] = {}
        for name, task_state in self.current.items():
            is_first = name in state.tasks and name in state.live and not state.attempts(name)
            if is_first and task_state.state == "PENDING":
                queued.setdefault(state.live[name][0], []).append(name)
        for number, names in queued.items():
            before = state.request_of(*state.live[names[0]])
            request = before.at_least(*(self._raised(name, before) for name in names))
            if request == before:
                continue
            places = [state.live[name][1] for name in names]
            try:
                raised = executor.raise_requests(state.arrays[number], places, request)
            except SlurmAwayError:
                raise
            except VoxcastError as error:  # the next step tries again
                if error.problem not in self._not_raised:
                    logger.info("not raised in the queue: %s", one_line(error))
                self._not_raised.add(error.problem)
                continue
            if not raised:
                continue
            # On record later: a request that was smaller by the record is raised again.
            self._record(event="raised", array=number, numbers=raised, request=as_fields(request))
            waiting = counted(len(raised), "waiting task")
            text = "%s now requested with %s, not %s, as others needed more than planned"
            logger.info(text, waiting, request.label, before.label)

    def _end(self, executor: Executor, name: str, ended: TaskState) -> None:
        (array, number), task = self.state.live[name], self.state.tasks.get(name)
        outcome = ended.outcome or "failed"
        log = self.submission.log_tail(array, number)
        if task is not None and outcome == "failed" and lacked_memory(log, None):
            outcome = "out_of_memory"
        usd = 0.0 if task is None else task.usd_per_hour * ended.runtime_s / 3600
        request = self.state.request_of(array, number)
        attempt = Attempt(request, outcome, ended.runtime_s, usd)
        facts = ended.facts | {
            "job": self.state.arrays[array].job, "state": ended.state,
            "machine": executor.machine(self.submission.files(array).attempt_folder(number)),
            "memory_sampling_s": executor.memory_sampling_s,
        }  # fmt: skip
        # On record first: results that were moved are of an attempt that is never made again.
        self._record(
            event="ended", task=name, array=array, number=number, attempt=as_fields(attempt),
            facts=facts,
        )  # fmt: skip
        if task is not None:
            self.learner.add(task, self.state.ended[name][-1])
        if outcome != "completed":
            self._log_end(name)
        elif task is not None:
            self._publish(name, array, number)

    def _publish(self, name: str, array: int, number: int) -> None:
        if problem := self.submission.publish(name, array, number):
            self._record(event="unpublished", task=name, reason=problem)
            logger.error("%s: %s", name, problem)

    def _publish_recorded(self) -> None:
        """Move results of attempts whose process died between their record and this."""
        tasks, problems = self.state.tasks, self.state.problems
        for name, last in [(n, ends[-1]) for n, ends in self.state.ended.items() if n in tasks]:
            work = self.submission.files(last.array).attempt_folder(last.number)
            if last.attempt.outcome == "completed" and name not in problems and work.is_dir():
                self._publish(name, last.array, last.number)

    def _log_end(self, name: str) -> None:
        """Log what happens after an attempt that did not complete."""
        submission, task = self.submission, self.state.tasks.get(name)
        ended = self.state.ended[name][-1]
        outcome = ended.attempt.outcome.replace("_", " ")
        after = f"{outcome} after {format_seconds(ended.attempt.runtime_s)}"
        text = f"{name if task is None else task.label}: {ended.facts.get('cause', after)}"
        step = None if task is None else self.state.next_step(name)
        if isinstance(step, Request):
            logger.info("%s; next: %s", text, self._raised(name, step).label)
        elif step is None:
            logger.warning("%s", text)
        elif ended.array:
            last = submission.log_tail(ended.array, ended.number).strip().splitlines()[-1:]
            last_words = f" ({last[0][:200]})" if last else ""
            log = submission.log(ended.array, ended.number)
            logger.error("%s%s; given up: %s; see %s", text, last_words, step.reason, log)
        else:
            logger.error("%s; given up: %s", text, step.reason)
        if isinstance(step, Request) and ended.array:  # it is made again, in another folder
            work = submission.files(ended.array).attempt_folder(ended.number)
            shutil.rmtree(work, ignore_errors=True)

    def _submit(self, executor: Executor, names: Iterable[str], request: Request) -> None:
        submission = self.submission
        array = Array(request, tuple(names), self.state.last_array + 1)
        tasks = [self.state.tasks.get(name) or _worker(name, request) for name in array.names]
        files, job_name = submission.files(array.number), submission.job_name(array.number)
        write_text(files.task_list, task_list(submission.plan, tasks, request, files))
        script = array_script(submission.plan, tasks, request, job_name, files)
        write_text(submission.script(array.number), script)
        fields = as_fields(request)
        self._record(event="prepared", array=array.number, request=fields, tasks=list(array.names))
        try:
            job = executor.submit(array)
        except SlurmAwayError:
            raise  # it may have arrived: `_adopt` looks for it
        except VoxcastError as error:
            reason = one_line(error)
            self._record(event="refused", array=array.number, reason=reason)
            self._refused |= set(names)
            refused = counted(len(array.names), "task")
            logger.error("%s refused: %s (requested %s)", refused, reason, request.label)
        else:
            self._record(event="submitted", array=array.number, job=job)

    def _start_pass(self, executor: Executor) -> None:
        """Submit workers if none is left and cells wait; take them out of the queue if none do."""
        state, waiting = self.state, self.waiting()
        if workers := state.workers():
            is_open = waiting or self.current.keys() & state.tasks.keys()
            queued = [
                (state.arrays[state.live[name][0]].job, state.live[name][1])
                for name in workers if name in self.current and not self.current[name].is_running
            ]  # fmt: skip
            if queued and not is_open:
                with contextlib.suppress(SlurmRefusedError):  # they have just ended
                    executor.cancel(queued)
            return
        if self.next_jobs is None or (jobs := self.next_jobs(waiting)) is None:
            return
        progress, logs = self._progress(), self.submission.folder / "logs"
        if self._passes_made and progress == self._progress_before:
            last = state.arrays[state.last_array].names
            ends = {state.ended[name][-1].attempt.outcome for name in last}
            if not ends & {"preempted", "node_failure"}:
                problem = "the workers of the last pass ended without having done anything"
                raise RunError(problem, logs, "see what they say there")
        if self._passes_made == self.most_passes:
            logger.warning("%d passes were made, and work is left", self._passes_made)
            self.next_jobs = None
            return
        self._passes_made, self._progress_before = self._passes_made + 1, progress
        logger.info("pass %d: %s", self._passes_made, jobs)
        names = [f"worker-{state.last_array + 1:04}-{n}" for n in range(1, jobs.count + 1)]
        self._submit(executor, names, jobs.request)
        if reason := state.problems.get(names[0]):
            raise RunError(f"the jobs of workers were refused ({reason})", logs.parent)

    def _progress(self) -> int:
        """Return what changes whenever a worker has run a cell."""
        return len(self.state.runs) + len(self.state.parts)

    def _take_in(self, run: str, waiting: dict[str, str]) -> None:
        """Record a run that a worker has ended, and move it to its place, or remove it."""
        tickets, state, name = self.tickets, self.state, key_of(run)
        folder = tickets.place(ENDED, run)
        if run not in state.runs and name not in state.records:
            try:
                result = read_json(folder / RESULT_FILE)
                self._record(event="ended", task=name, run=run, **result)
                if not result["record"]:
                    self._log_end(name)
            except (OSError, ValueError):  # the machine crashed before it was on disk
                self._lose(run, "node_failure")
        if record := state.runs.get(run):
            self._move(folder, name, record)
        else:
            remove_folder(folder)
        tickets.place(HELD, run).unlink(missing_ok=True)
        if name in state.records and name in waiting:  # it was given up too early
            tickets.place(TODO, waiting.pop(name)).unlink(missing_ok=True)

    def _move(self, folder: Path, name: str, record: str) -> None:
        """Move the run of a cell to its place, unless a record is there, which is not replaced."""
        is_part = self.state.tasks[name].part_of
        final = (self.submission.folder / PART_RUNS if is_part else self.submission.out) / record
        if final.exists():
            remove_folder(folder)
        else:
            folder.rename(final)
        sync(final.parent)

    def _lose(self, run: str, outcome: str) -> None:
        """Record the attempt of a worker that said nothing of its end."""
        name, worker = key_of(run), run.split("~")[1]
        request = self.state.next_step(name)
        if run not in self.state.runs and isinstance(request, Request):
            self._record(
                event="ended", task=name, run=run, record="",
                attempt={"request": as_fields(request), "outcome": outcome},
                facts={"cause": LOST, "worker": worker},
            )  # fmt: skip
            self._log_end(name)

    def _is_lost(self, run: str, ended_jobs: Mapping[str, str]) -> bool:
        """Return whether a ticket is held by no worker that lives; then it is returned."""
        worker, job = run.split("~")[1:3]
        held, outcome = self.tickets.place(HELD, run), ended_jobs.get(job, "")
        if not outcome and not is_abandoned(held, worker):
            return False
        if held.exists() and not self.tickets.place(ENDED, run).exists():  # as they were listed
            # The worker ends its runs before the time of its job: only memory is the run's.
            self._lose(run, outcome if outcome == "out_of_memory" else "node_failure")
            held.unlink(missing_ok=True)
        return True

    def _place(self, name: str) -> bool:
        """Give a cell without a ticket what follows, a ticket or parts; return whether it did."""
        task, draw = self.state.tasks[name], self.submission.plan.draw
        step, attempts = self.state.next_step(name), self.state.attempts(name)
        if isinstance(step, Request):
            self.tickets.put(task, len(attempts), step)
            return True
        is_late = bool(attempts) and attempts[-1].outcome == "timeout"
        if not is_late or name in self.state.parts or task.cell is None or draw is None:
            return False
        took_s = attempts[-1].request.walltime_s
        longest_s = min(self.state.limits.max_walltime_s, took_s)
        parts = parts_of(task, draw.apps[task.cell.app], took_s, longest_s)
        if parts:
            self._record(event="split", task=name, parts=[as_fields(part) for part in parts])
            logger.warning("%s; split into %d parts", task.label, len(parts))
            for part in parts:
                self._place(part.name)
        return bool(parts)

    def _join(self, name: str, parts: list[str]) -> None:
        """Make one run of the runs of all parts."""
        partial, task = self.tickets.place(PARTIAL, name), self.state.tasks[name]
        records = [self.state.records[part] for part in parts]
        assert task.cell is not None  # noqa: S101  # as it was split
        folders = [self.submission.folder / PART_RUNS / record for record in records]
        record = join(task.cell, folders, partial)
        self._move(partial, name, record)
        self._record(
            event="ended", task=name, run=f"{name}~joined", record=record,
            attempt=as_fields(Attempt(task.requests.first, "completed")),
            facts={"parts": len(records)},
        )  # fmt: skip


def _worker(name: str, request: Request) -> Task:
    """Return the task that is a worker."""
    sequence = RequestSequence((request.walltime_s,), (request.memory_bytes,), request.cpus)
    return Task(name, "", sequence)


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
            while follower.step():
                by_status = counts(follower.state, follower.current)
                bar.total = by_status.total()
                bar.n = sum(by_status[status] for status in FINAL)
                bar.set_postfix(by_status)
                if time.monotonic() - collected_at >= COLLECT_S:
                    collect()
                    collected_at = time.monotonic()
                time.sleep(poll_s)
    finally:
        collect()
