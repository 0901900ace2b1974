"""Arrays of a submission on this machine, with time and memory enforced as by a scheduler.

As many tasks run at a time as cores and memory allow. They die with this process; tasks that had
started then count as lost with their node, and all run again when the submission is resumed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, Lock
from typing import TYPE_CHECKING, cast

import psutil

from voxcast.errors import RunError, VoxcastError, is_disk_full, one_line
from voxcast.jobs.script import machine_of
from voxcast.jobs.state import NOT_STARTED, Executor, TaskId, TaskState
from voxcast.measure.host import host_facts
from voxcast.measure.runner import LOG_FILE, measure
from voxcast.measure.trace import Conditions
from voxcast.records import Outcome, Request, Run

if TYPE_CHECKING:
    from voxcast.jobs.submission import Submission
    from voxcast.jobs.task import Array

_LOST = TaskState(
    "NODE_FAIL", "node_failure", facts={"cause": "the process that ran it was stopped"}
)


@dataclass
class LocalExecutor(Executor):
    """Runs tasks in threads of this process, in their order; close it at the end.

    A task that does not fit lets no later one pass: it would wait for ever behind small ones.
    """

    submission: Submission

    def __post_init__(self) -> None:
        plan = self.submission.plan
        self._cores = sorted(os.sched_getaffinity(0))
        self._all_bytes = self._free_bytes = psutil.virtual_memory().total
        at_a_time = plan.slurm.throttle or len(self._cores)
        for requests in [task.requests for task in plan.tasks]:
            if requests.cpus > len(self._cores):
                problem = f"needs {requests.cpus} CPUs, and {len(self._cores)} may be used here"
                raise RunError(problem, "local")
            if requests.memories_bytes[0] > self._all_bytes:
                raise RunError("needs more memory than this machine has", "local")
            if requests.gpus:
                at_a_time = 1
        self._machine = machine_of(host_facts())
        self._token = secrets.token_hex(4)
        self._pool = ThreadPoolExecutor(at_a_time)
        self._turn, self._room, self._stop = Lock(), Condition(), Event()
        self._states: dict[TaskId, TaskState] = {}
        self._raised: dict[TaskId, Request] = {}
        self._is_disk_full = False

    def submit(self, array: Array) -> str:
        job = f"local-{self._token}-{array.number}"
        for number in range(1, len(array.names) + 1):
            self._states[job, number] = TaskState("PENDING", None)
            self._pool.submit(self._work, (job, number), array)
        return job

    def states(
        self, arrays: Sequence[Array], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states; tasks of a process that has ended are lost.

        Raises
        ------
        RunError
            If the disk is full, for which no task is to blame.
        """
        if self._is_disk_full:
            raise RunError(os.strerror(errno.ENOSPC), self.submission.folder)
        return {
            (array.job, number): self._states.get((array.job, number)) or self._lost(array, number)
            for array in arrays for number in range(1, len(array.names) + 1)
        }  # fmt: skip

    def raise_requests(self, array: Array, numbers: Sequence[int], request: Request) -> list[int]:
        with self._room:
            waiting = [n for n in numbers if self._states[array.job, n].state == "PENDING"]
            self._raised |= {(array.job, n): request for n in waiting}
        return waiting

    def _lost(self, array: Array, number: int) -> TaskState:
        """Return the state of a task of a process that has ended; its script makes its folder."""
        has_started = self.submission.files(array.number).attempt_folder(number).is_dir()
        return _LOST if has_started else NOT_STARTED

    def machine(self, folder: Path) -> dict[str, str]:
        return self._machine

    def close(self) -> None:
        """Stop all runs, and start no other."""
        self._stop.set()
        with self._room:
            self._room.notify_all()
        self._pool.shutdown(cancel_futures=True)

    def _work(self, key: TaskId, array: Array) -> None:
        """Run a task once it has room; meanwhile no later one passes it."""

        def size() -> tuple[Request, int]:
            request = self._raised.get(key, array.request)
            return request, min(request.memory_bytes, self._all_bytes)

        def may_go_on() -> bool:
            request, memory = size()
            has_room = request.cpus <= len(self._cores) and memory <= self._free_bytes
            return has_room or self._stop.is_set()

        with self._turn, self._room:
            self._room.wait_for(may_go_on)
            if self._stop.is_set():
                return
            request, memory = size()
            cores, self._cores = self._cores[: request.cpus], self._cores[request.cpus :]
            self._free_bytes -= memory
            self._states[key] = TaskState("RUNNING", None)
        try:
            state = self._run(key, array, request, cores)
        except Exception as error:  # after any error the task must not run for ever
            state, self._is_disk_full = TaskState("FAILED", "failed"), is_disk_full(error)
            has_message = isinstance(error, VoxcastError | OSError)
            with (
                contextlib.suppress(OSError),  # no room for it
                self.submission.log(array.number, key[1]).open("a", encoding="utf-8") as log,
            ):
                log.write(f"voxcast: {one_line(error) if has_message else repr(error)}\n")
        if not self._stop.is_set():  # else it was stopped, and runs again when resumed
            self._states[key] = state
        with self._room:
            self._cores = sorted([*self._cores, *cores])
            self._free_bytes += memory
            self._room.notify_all()

    def _run(self, key: TaskId, array: Array, request: Request, cores: Sequence[int]) -> TaskState:
        """Run a task by the script of its array, as a node does."""
        plan, number = self.submission.plan, key[1]
        work = self.submission.files(array.number).attempt_folder(number)
        folder = work.with_name(f"{work.name}-measured")
        try:
            run, _ = measure(
                ["bash", str(self.submission.script(array.number))],
                {"SLURM_ARRAY_TASK_ID": str(number)}, folder,
                base=Run(
                    "", plan.app.name, cpus=request.cpus, gpus=request.gpus,
                    mem_limit_bytes=request.memory_bytes,
                ),
                conditions=Conditions(request.walltime_s), cpus=cores,
                stopped=self._stop.is_set,
            )  # fmt: skip
            shutil.copyfile(folder / LOG_FILE, self.submission.log(array.number, number))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        names = ("cpu_s", "started_at", "memory_method", "cpu_method")
        facts = {"peak_bytes": run.peak_rss_bytes} | {name: getattr(run, name) for name in names}
        outcome = cast("Outcome", run.outcome)
        return TaskState(outcome.upper(), outcome, run.runtime_s or 0.0, facts=facts)
