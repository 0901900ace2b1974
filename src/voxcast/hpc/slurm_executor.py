"""Arrays of a submission as jobs of Slurm."""

from __future__ import annotations

import logging
import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxcast.hpc import slurm
from voxcast.hpc.job_states import TaskState, cpu_seconds, from_sacct, from_scontrol
from voxcast.hpc.machine_facts import read_machine
from voxcast.hpc.slurm import SlurmAwayError, SlurmRefusedError
from voxcast.measure.trace import IDLE_CORES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.hpc.job_states import TaskId
    from voxcast.hpc.machine_facts import Machine
    from voxcast.hpc.submission import Submission
    from voxcast.hpc.submission_state import SubmittedArray

# Several daemons on a machine name their node.
_NOTE = re.compile(r"slurmstepd(-[\w.-]+)?: ")

logger = logging.getLogger(__name__)

FORGOTTEN_S = 600.0  # a job that neither accounting nor controller has is lost after this
LOOKS_PER_STALL = 5


@dataclass
class SlurmExecutor:
    """Submits the scripts of a submission, and asks for all its jobs in one call."""

    submission: Submission
    _accounting_away: bool = False
    _unseen_since: dict[str, float] = field(default_factory=dict)
    # CPU time of a task when it last grew by more than an idle program uses, and when that was.
    _used: dict[TaskId, tuple[float, float]] = field(default_factory=dict)
    _next_look: float = 0.0
    _sampling: list[float | None] = field(default_factory=list)

    def submit(self, array: SubmittedArray) -> str:
        """Submit the script of an array; errors as `voxcast.hpc.slurm.call`."""
        files = self.submission.files(array.number)
        options = [
            f"--output={files.log}",
            f"--chdir={self.submission.folder}",
            *self.submission.plan.slurm.options(),  # above variables such as SBATCH_ACCOUNT
        ]
        return slurm.submit(self.submission.script(array.number), options)

    def find(self, array: SubmittedArray) -> str:
        """Return the job of that name."""
        jobs = slurm.jobs_named(self.submission.job_name(array.number))
        return jobs[-1] if jobs else ""

    def states(
        self, arrays: Sequence[SubmittedArray], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states by one call of ``sacct``; by ``scontrol`` while that is away."""
        by_job = {array.job: array for array in arrays}

        def notes(task: TaskId) -> list[str]:
            """Return what Slurm, and not the application, wrote into the log."""
            lines = self.submission.log_tail(by_job[task[0]].number, task[1]).splitlines()
            return [line for line in lines if _NOTE.match(line)]

        try:
            text = slurm.accounting(by_job, with_steps=with_steps)
        except (SlurmAwayError, SlurmRefusedError) as error:
            if not self._accounting_away:
                logger.warning("no accounting (%s); asking scontrol", error.problem)
            self._accounting_away = True
            return from_scontrol(slurm.controller_lines(by_job), notes)
        if self._accounting_away:
            logger.info("the accounting answers again")
            self._accounting_away = False
        states = from_sacct(text, notes)
        seen = {job for job, _ in states}
        return states | self._lost([array for array in arrays if array.job not in seen])

    def stalled(self, running: Mapping[TaskId, TaskState]) -> list[TaskId]:
        """Return the tasks whose CPU time has not grown for the time of the plan."""
        stall_s = self.submission.plan.stall_s
        now = time.monotonic()
        if stall_s is None or not running or now < self._next_look:
            return []
        self._next_look = now + stall_s / LOOKS_PER_STALL
        totals = cpu_seconds(slurm.cpu_times(state.job for state in running.values()))
        stalled = []
        for task, state in running.items():
            if state.job not in totals:  # it has just ended
                continue
            used_s, since = self._used.get(task, (-math.inf, now))
            if totals[state.job] - used_s >= IDLE_CORES * stall_s:
                self._used[task] = totals[state.job], now
            elif now - since >= stall_s:
                stalled.append(task)
        return stalled

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Cancel tasks."""
        slurm.cancel(f"{job}_{n}" for job, n in tasks)

    def machine(self, folder: Path) -> Machine:
        """Return what the script wrote of its node."""
        return read_machine(folder)

    def memory_sampling_s(self) -> float | None:
        """Return the interval at which Slurm samples memory, asked for once."""
        if not self._sampling:
            self._sampling = [slurm.memory_sampling_s()]
        return self._sampling[0]

    def _lost(self, arrays: Sequence[SubmittedArray]) -> dict[TaskId, TaskState]:
        """Return the tasks of jobs that nobody has heard of for long."""
        now = time.monotonic()
        lost: dict[TaskId, TaskState] = {}
        for array in arrays:
            if now - self._unseen_since.setdefault(array.job, now) < FORGOTTEN_S:
                continue
            of_controller = from_scontrol(slurm.controller_lines([array.job]))
            lost |= of_controller or {
                (array.job, n): TaskState("NODE_FAIL", "node_failure")
                for n in range(1, len(array.names) + 1)
            }
        return lost
