"""States of the tasks of packed jobs: each is a step of its job, by the lines of ``sacct``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.hpc.job_states import TaskState, lines_by_task, state_of_lines
from voxcast.hpc.pack_script import STEP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.hpc.job_states import Notes, TaskId
    from voxcast.hpc.submission_state import SubmittedArray
    from voxcast.records import Outcome

NOT_STARTED = "NOT_STARTED"
# A job that was too short for its tasks is no fault of those that it stopped or did not start.
BY_ITS_JOB: Mapping[str, Outcome] = {
    "timeout": "preempted", "out_of_memory": "preempted", "preempted": "preempted",
    "node_failure": "node_failure",
}  # fmt: skip


def packed_states(array: SubmittedArray, text: str, notes: Notes) -> dict[TaskId, TaskState]:
    """Return the states of the tasks of an array of packed jobs.

    Parameters
    ----------
    text : str
        Lines of `voxcast.hpc.slurm.accounting`.
    notes : callable
        Returns what Slurm wrote into the log of a task.
    """
    states: dict[TaskId, TaskState] = {}
    for key, (job_line, *step_lines) in lines_by_task(text).items():
        job, job_number = key
        if job != array.job or job_number > len(array.packs):
            continue
        job_state = state_of_lines(key, [job_line, *step_lines], lambda _: ())
        steps = {line.get("JobName", "").removeprefix(STEP_PREFIX): line for line in step_lines}
        for number in (number for lane in array.packs[job_number - 1] for number in lane):
            step = steps.get(str(number))
            states[job, number] = (
                _without_step(job_state) if step is None
                else _of_step((job, number), step, job_line, job_state, notes,
                    array.request_of(number).walltime_s)
            )  # fmt: skip
    return states


def _without_step(job: TaskState) -> TaskState:
    if job.outcome is None:
        return replace(job, state="PENDING", job="")
    return TaskState(NOT_STARTED, _interrupted(job), job=job.job, node=job.node)


def _of_step(
    key: TaskId,
    step: Mapping[str, str],
    job_line: Mapping[str, str],
    job: TaskState,
    notes: Notes,
    limit_s: float,
) -> TaskState:
    """Return the state of a task by the line of its step and the state of its job."""
    lines = [{**step, "Submit": job_line["Submit"], "step": ""}, {**step, "State": step["State"]}]
    state = state_of_lines(key, lines, notes)
    if state.outcome is None:
        # A job that has ended may leave a step that runs for ever in the accounting.
        return state if job.outcome is None else replace(state, outcome=_interrupted(job))
    cut_off = state.outcome == "timeout" and state.runtime_s < limit_s  # by the end of its job
    if cut_off or state.outcome == "cancelled":
        # Whether somebody stopped it, or its job ended, is known when the job has.
        ended = None if job.outcome is None else BY_ITS_JOB.get(job.outcome, "cancelled")
        return replace(state, outcome=ended)
    return state


def _interrupted(job: TaskState) -> Outcome:
    outcome = job.outcome or "failed"
    return BY_ITS_JOB.get(outcome, "failed" if outcome == "completed" else outcome)
