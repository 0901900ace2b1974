"""Arrays of a submission on this machine, with time and memory enforced as by a scheduler.

As many tasks run at a time as cores and memory allow. They die with this process; tasks that it
had not recorded count as lost with their node, and run again when the submission is resumed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import psutil

from voxcast.apps.staging import staged
from voxcast.errors import RunError, VoxcastError, is_disk_full, one_line
from voxcast.jobs.script import Machine, configuration_of, task_command, task_variables
from voxcast.jobs.state import TaskState
from voxcast.jobs.submission import OUT_NAME
from voxcast.measure.host import host_facts
from voxcast.measure.leftovers import sweep
from voxcast.measure.runner import LOG_FILE, measure
from voxcast.measure.trace import Conditions
from voxcast.records import Outcome, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from voxcast.jobs.state import SubmittedArray, TaskId
    from voxcast.jobs.submission import Submission
    from voxcast.jobs.task import Task


@dataclass
class CorePool:
    """Free cores and memory.

    A task that does not fit lets no later one pass: it would wait for ever behind small ones.
    """

    cores: list[int]
    memory_bytes: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _queue: deque[object] = field(default_factory=deque)

    @contextmanager
    def held(self, cpus: int, memory_bytes: int) -> Iterator[list[int]]:
        """Wait for cores and memory, and give them back at the end.

        Parameters
        ----------
        cpus, memory_bytes : int
            No more than all; else this waits for ever.
        """
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            self._changed.wait_for(
                lambda: (
                    self._queue[0] is ticket
                    and len(self.cores) >= cpus
                    and self.memory_bytes >= memory_bytes
                )
            )
            self._queue.popleft()
            chosen, self.cores = self.cores[:cpus], self.cores[cpus:]
            self.memory_bytes -= memory_bytes
            self._changed.notify_all()
        try:
            yield chosen
        finally:
            with self._changed:
                self.cores = sorted([*self.cores, *chosen])
                self.memory_bytes += memory_bytes
                self._changed.notify_all()


@dataclass
class LocalExecutor:
    """Runs tasks in threads of this process; close it at the end."""

    submission: Submission
    _token: str = field(default_factory=lambda: secrets.token_hex(4))
    _states: dict[TaskId, TaskState] = field(default_factory=dict)
    _running: set[Path] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _is_disk_full: bool = False
    _machine: Machine = field(default_factory=lambda: Machine.of(host_facts()))
    _threads: ThreadPoolExecutor = field(init=False)
    _pool: CorePool = field(init=False)
    _machine_bytes: int = field(init=False)
    _tasks: dict[str, Task] = field(init=False)

    def __post_init__(self) -> None:
        cores, memory = sorted(os.sched_getaffinity(0)), psutil.virtual_memory().total
        self._threads = ThreadPoolExecutor(self._at_a_time(len(cores), memory))
        self._pool = CorePool(cores, memory)
        self._machine_bytes = memory
        self._tasks = {task.name: task for task in self.submission.plan.tasks}

    def _at_a_time(self, cores: int, memory: int) -> int:
        """Return how many tasks may run at a time, if they are small enough.

        Raises
        ------
        RunError
            If a task is larger than this machine.
        """
        tasks = self.submission.plan.tasks
        cpus = max(task.requests.cpus for task in tasks)
        if cpus > cores:
            raise RunError(f"needs {cpus} CPUs, and {cores} may be used here", "local")
        largest = max(task.requests.memories_bytes[0] for task in tasks)
        if largest > memory:
            raise RunError("needs more memory than this machine has", "local")
        if any(task.requests.gpus for task in tasks):
            return 1
        return max(1, min(cores, self.submission.plan.slurm.throttle or cores, len(tasks)))

    def submit(self, array: SubmittedArray) -> str:
        """Queue the tasks of an array."""
        job = f"local-{self._token}-{array.number}"
        for number, name in enumerate(array.names, 1):
            with self._lock:
                self._states[job, number] = TaskState("PENDING", None)
            self._threads.submit(self._work, (job, number), name, array)
        return job

    def find(self, array: SubmittedArray) -> str:
        """Return nothing: tasks die with the process that started them."""
        return ""

    def states(
        self, arrays: Sequence[SubmittedArray], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states; tasks of a process that has ended are lost.

        Raises
        ------
        RunError
            If the disk is full, for which no task is to blame.
        """
        lost = TaskState("NODE_FAIL", "node_failure")
        with self._lock:
            if self._is_disk_full:
                raise RunError(os.strerror(errno.ENOSPC), self.submission.folder)
            return {
                (array.job, number): self._states.get((array.job, number), lost)
                for array in arrays
                for number in range(1, len(array.names) + 1)
            }

    def stalled(self, running: Mapping[TaskId, TaskState]) -> list[TaskId]:
        """Return nothing: a run that stalls is stopped by what measures it."""
        return []

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Do nothing, as none is ever said to have stalled."""

    def machine(self, folder: Path) -> Machine:
        """Return this machine."""
        return self._machine

    def memory_sampling_s(self) -> float:
        """Return 0: what measures a run adapts its pace, and short runs have a peak as well."""
        return 0.0

    def close(self) -> None:
        """Stop all runs, and start no other."""
        with self._lock:
            self._closed = True
            folders = list(self._running)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for folder in folders:
            with contextlib.suppress(OSError):  # its thread may be writing there
                sweep(folder)
        self._threads.shutdown(wait=True)

    def _work(self, key: TaskId, name: str, array: SubmittedArray) -> None:
        request = array.request
        with self._pool.held(
            request.cpus, min(request.memory_bytes, self._machine_bytes)
        ) as cores:
            self._work_on(cores, key, name, array)

    def _work_on(
        self, cores: Sequence[int], key: TaskId, name: str, array: SubmittedArray
    ) -> None:
        folder = self.submission.files(array.number).attempt_folder(key[1])
        try:
            with self._lock:
                if self._closed:
                    return
                self._running.add(folder)
                self._states[key] = TaskState("RUNNING", None)
            try:
                state = self._run(folder, name, array, key[1], cores)
            except Exception as error:  # after any error the task must not run for ever
                self._note(error, array.number, key[1])
                state = TaskState("FAILED", "failed")
                if is_disk_full(error):
                    self._is_disk_full = True
                    return
            with self._lock:
                if not self._closed:
                    self._states[key] = state
        finally:
            with self._lock:
                self._running.discard(folder)

    def _run(
        self, folder: Path, name: str, array: SubmittedArray, number: int, cores: Sequence[int]
    ) -> TaskState:
        """Run a task as its job would."""
        plan, request = self.submission.plan, array.request
        task = self._tasks[name]
        configuration = configuration_of(plan, request)
        log, out = self.submission.log(array.number, number), folder / OUT_NAME
        shutil.rmtree(folder, ignore_errors=True)
        out.mkdir(parents=True)
        image = None if not task.image else self.submission.folder / task.image
        with staged(plan.app, image, out, configuration):
            run, _ = measure(
                task_command(plan, task, request, folder),
                task_variables(configuration, request), folder,
                base=Run(
                    "", plan.app.name, cpus=request.cpus, gpus=request.gpus,
                    mem_limit_bytes=request.memory_bytes,
                ),
                conditions=Conditions(request.walltime_s, plan.stall_s), cpus=cores,
            )  # fmt: skip
        if (folder / LOG_FILE).is_file():
            shutil.copyfile(folder / LOG_FILE, log)
        return TaskState(
            run.outcome.upper(), cast("Outcome", run.outcome), run.runtime_s or 0.0, run.cpu_s,
            run.peak_rss_bytes, started_at=run.started_at,
            memory_method=run.memory_method, cpu_method=run.cpu_method,
        )  # fmt: skip

    def _note(self, error: Exception, array: int, number: int) -> None:
        """Add the reason to the log of a task, if there is room for it."""
        with (
            contextlib.suppress(OSError),
            self.submission.log(array, number).open("a", encoding="utf-8") as stream,
        ):
            stream.write(f"voxcast: {_line_of(error)}\n")


def _line_of(error: Exception) -> str:
    return one_line(error) if isinstance(error, VoxcastError | OSError) else repr(error)
