"""States of the tasks of array jobs, from ``sacct`` or ``scontrol``, by job and number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import VoxcastError
from voxcast.hpc.slurm import SACCT_COLUMNS
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from voxcast.records import Outcome

TaskId = tuple[str, int]  # job and number of the task
Notes = Callable[[TaskId], Sequence[str]]
_FIELD = re.compile(r"(\w+)=(\S*)")
# Columns of the accounting by fields of the controller.
_CONTROLLER_COLUMNS = {
    "JobID": "JobID", "JobIDRaw": "JobId", "State": "JobState", "ExitCode": "ExitCode",
    "Elapsed": "RunTime", "NodeList": "NodeList", "Submit": "SubmitTime", "Start": "StartTime",
}  # fmt: skip
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")


@dataclass(frozen=True)
class TaskState:
    """What Slurm says of a task of an array.

    Attributes
    ----------
    state : str
        The name of Slurm's state.
    outcome : str or None
        How it ended; None if it has not.
    runtime_s, cpu_s, peak_bytes : float, float, int or None
        None where not told: ``scontrol`` has no CPU time and no memory.
    memory_method, cpu_method : str
        As in the history; empty for those of Slurm.
    job : str
        Number of the job that the task is; the first one of an array has the array's.
    """

    state: str
    outcome: Outcome | None
    runtime_s: float = 0.0
    cpu_s: float | None = None
    peak_bytes: int | None = None
    job: str = ""
    node: str = ""
    submitted_at: str = ""
    started_at: str = ""
    memory_method: str = ""
    cpu_method: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.state in RUNNING


def from_sacct(text: str, notes: Notes | None = None) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `voxcast.hpc.slurm.accounting`.

    Parameters
    ----------
    notes : callable, optional
        Returns what Slurm wrote into the log of a task that failed.
    """
    return _states(SACCT_COLUMNS, text.splitlines(), notes)


def from_scontrol(text: str, notes: Notes | None = None) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `voxcast.hpc.slurm.controller_lines`; see `from_sacct`."""
    lines = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        number = fields.get("ArrayTaskId", "")
        fields["JobID"] = f"{fields.get('ArrayJobId', '')}_" + (
            number if number.isdecimal() else f"[{number}]"
        )
        if "JobState" in fields:
            lines.append("|".join(fields.get(name, "") for name in _CONTROLLER_COLUMNS.values()))
    return _states(tuple(_CONTROLLER_COLUMNS), lines, notes)


def _states(
    columns: Sequence[str], lines: Sequence[str], notes: Notes | None
) -> dict[TaskId, TaskState]:
    from voxcast.runs.slurm import accounting, attempts

    frame = accounting("\n".join(["|".join(columns), *lines]), details=True).frame
    return {
        key: TaskState(
            row.state,
            row.outcome or None,
            0.0 if math.isnan(row.runtime_s) else row.runtime_s,
            None if math.isnan(row.cpu_s) else row.cpu_s,
            int(row.peak_bytes) or None,
            row.job_number,
            row.node,
            row.submitted_at,
            row.started_at,
        )
        for key, row in attempts(frame, notes).items()
    }


def cpu_seconds(text: str) -> dict[str, float]:
    """Return the CPU time of each running job and of each numbered step.

    Parameters
    ----------
    text : str
        Lines of `voxcast.hpc.slurm.cpu_times`.
    """
    totals: dict[str, float] = {}
    for line in text.splitlines():
        step, _, rest = line.partition("|")
        average, _, tasks = rest.partition("|")
        job, _, name = step.partition(".")
        if name != "extern":
            seconds = (_seconds(average) or 0.0) * (_number(tasks) or 1)
            totals[job] = totals.get(job, 0.0) + seconds
            if name.isdecimal():
                totals[step] = seconds
    return totals


def _seconds(text: str) -> float | None:
    try:
        return slurm_seconds(text) if text else None
    except VoxcastError:
        return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
