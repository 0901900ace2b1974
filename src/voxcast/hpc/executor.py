"""What runs the arrays of a submission: Slurm, or this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.hpc.job_states import TaskId, TaskState
    from voxcast.hpc.machine_facts import Machine
    from voxcast.hpc.submission_state import SubmittedArray


class Executor(Protocol):
    """Runs array jobs."""

    def submit(self, array: SubmittedArray) -> str:
        """Start an array, whose script is written, and return the number of its job."""

    def find(self, array: SubmittedArray) -> str:
        """Return the job of an array of which it is not recorded; empty if there is none."""

    def states(
        self, arrays: Sequence[SubmittedArray], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states of the tasks of arrays; one that is not known is left out.

        The peak of memory, and whether it ended a task, are in the steps of its job. They may be
        left out where it takes long to look them up.
        """

    def stalled(self, running: Mapping[TaskId, TaskState]) -> list[TaskId]:
        """Return those of the running tasks that have used no CPU for too long."""

    def machine(self, folder: Path) -> Machine:
        """Return the machine that an attempt ran on, given its folder."""

    def memory_sampling_s(self) -> float | None:
        """Return the time between two samples of memory; None if it is only read at the end."""

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Stop tasks of arrays."""
