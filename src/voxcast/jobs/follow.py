"""Following a submission: attempts that ended are recorded, and the next ones submitted.

Each step reads states, records what ended, moves results, and submits the next requests. Recorded
attempts are never made again; a process that is killed between two lines of a step is continued by
the next one from the folder.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from voxcast.errors import VoxcastError, one_line
from voxcast.files import canonical_json
from voxcast.jobs.arrays import arrays_of
from voxcast.jobs.escalate import Attempt, Stop
from voxcast.jobs.script import array_script, task_list
from voxcast.jobs.slurm import SlurmAwayError
from voxcast.jobs.state import SubmissionState
from voxcast.jobs.status import current_states, task_rows
from voxcast.jobs.submission import private_text
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import Request, as_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.jobs.claim import Claim
    from voxcast.jobs.state import SubmittedArray, TaskId, TaskState
    from voxcast.jobs.submission import Submission

POLL_S = 30.0
LONGEST_NAP_S = 60.0  # a claim is touched at least so often

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
    current : dict of str to TaskState
        The latest state of each task with a live attempt.
    """

    submission: Submission
    executor: Executor
    state: SubmissionState = field(init=False)
    current: dict[str, TaskState] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _away: bool = False
    _is_published: bool = False

    def __post_init__(self) -> None:
        self.state = SubmissionState.of(self.submission.plan, self.submission.events())

    def step(self) -> bool:
        """Do what can be done now; return whether anything is left to wait for.

        While Slurm does not answer, which is said once, nothing is changed.
        """
        try:
            self._adopt()
            if not self._is_published:
                self._publish_recorded()
                self._is_published = True
            self._read_states()
            self._stop_stalled()
            self._submit_ready()
            if self._away:
                logger.info("Slurm answers again")
                self._away = False
        except SlurmAwayError as error:
            if not self._away:
                logger.warning("%s; trying again", one_line(error))
                self._away = True
            return True
        return bool(self.state.live)

    def _record(self, **event: Any) -> None:
        self.submission.record(event)
        self.state.apply(event)

    def _adopt(self) -> None:
        """Find the job of an array whose submitter died before it could record it."""
        for array in [a for a in self.state.arrays.values() if not a.job]:
            job = self.executor.find(array)
            if job:
                self._record(event="submitted", array=array.number, job=job)
            else:
                # A command that outlived its submitter may still submit the script, which then
                # ends at once: another array runs its tasks.
                self.submission.files(array.number).task_list.unlink(missing_ok=True)
                self._record(event="withdrawn", array=array.number)

    def _read_states(self) -> None:
        states = current_states(self.state, self.executor) if self.state.live else {}
        self.current = {}
        for name, task_state in states.items():
            if task_state.outcome is None:
                self.current[name] = task_state
            else:
                array, number = self.state.live[name]
                self._end(name, self.state.arrays[array], number, task_state)

    def _end(self, name: str, array: SubmittedArray, number: int, ended: TaskState) -> None:
        task = self.state.tasks[name]
        outcome = ended.outcome or "failed"
        if outcome != "completed":
            # A task that is stopped may look killed for memory (by root) or failed (by a shell).
            outcome = self.state.stopping.get((array.number, number), outcome)
        machine = self.executor.machine(self.submission.files(array.number).attempt_folder(number))
        usd = task.usd_per_hour * ended.runtime_s / 3600
        attempt = Attempt(array.request, outcome, ended.runtime_s, usd)
        facts = {
            "job": array.job, "state": ended.state, "cpu_s": ended.cpu_s, "node": ended.node,
            "peak_bytes": ended.peak_bytes, "submitted_at": ended.submitted_at,
            "started_at": ended.started_at, "memory_method": ended.memory_method,
            "cpu_method": ended.cpu_method, "machine": machine,
            "memory_sampling_s": self.executor.memory_sampling_s,
        }  # fmt: skip
        # On record first: results that were moved are of an attempt that is never made again.
        self._record(
            event="ended", task=name, array=array.number, number=number,
            attempt=as_fields(attempt), facts=facts,
        )  # fmt: skip
        if outcome == "completed":
            self._publish(name, array.number, number)
        else:
            self._log_end(name, attempt, array.number, number)

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

    def _log_end(self, name: str, attempt: Attempt, array: int, number: int) -> None:
        """Log what happens after an attempt that did not complete."""
        step = self.state.next_step(name, self.submission.plan)
        cause, ran = attempt.outcome.replace("_", " "), format_seconds(attempt.runtime_s)
        after = f"{name}: {cause} after {ran}"
        if isinstance(step, Request):
            self.submission.discard(array, number)
            following = f"{format_seconds(step.walltime_s)} and {format_bytes(step.memory_bytes)}"
            logger.info("%s; next: %s", after, following)
        elif isinstance(step, Stop):
            last = self.submission.log_tail(array, number).strip().splitlines()[-1:]
            last_words = f" ({last[0][:200]})" if last else ""
            log = self.submission.log(array, number)
            logger.error("%s%s; given up: %s; see %s", after, last_words, step.reason, log)

    def _stop_stalled(self) -> None:
        places = {}
        for name, task_state in self.current.items():
            if task_state.is_running:
                array, number = self.state.live[name]
                places[self.state.arrays[array].job, number] = array, task_state
        tasks = self.executor.stalled({task: state for task, (_, state) in places.items()})
        for job, number in tasks:
            array, _ = places[job, number]
            self._record(event="stopping", array=array, number=number, outcome="stalled")
        if tasks:
            self.executor.cancel(tasks)

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
        number, submission = self.state.last_array + 1, self.submission
        tasks = [self.state.tasks[name] for name in names]
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


def follow(follower: Follower, claim: Claim, poll_s: float = POLL_S) -> None:
    """Follow a submission until no task has an attempt left, with progress on stderr.

    Parameters
    ----------
    poll_s : float
        Seconds between two calls of the scheduler.
    """
    from tqdm import tqdm

    with tqdm(total=len(follower.state.tasks), unit="task", disable=None, leave=False) as bar:
        while True:
            claim.touch()
            goes_on = follower.step()
            rows = task_rows(follower.submission, follower.state, follower.current)
            counts = Counter(row["status"] for row in rows)
            bar.n = sum(counts[status] for status in ("completed", "given up", "refused"))
            bar.set_postfix({status: n for status, n in counts.items() if status != "completed"})
            if not goes_on:
                return
            nap(poll_s, claim)


def nap(seconds: float, claim: Claim) -> None:
    """Sleep, and touch the claim meanwhile."""
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(left_s, LONGEST_NAP_S))
        claim.touch()
