"""Steps of jobs in Slurm's accounting: their memory and states, joined to the jobs before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.audit.slurm_cells import Tres, bytes_of, integers, stated_cells
from voxcast.history.imports.slurm_job import KILLED_BY_SLURM

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from voxcast.runs.delimited import Block

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepMemory:
    """Memory of lines of the accounting; arrays of shape (n,).

    Attributes
    ----------
    tasks : ndarray of float
        Number of tasks, one if it is not stated.
    peak_bytes : ndarray of float
        Of all tasks, or of the largest, if only that is stated; 0 if neither is.
    of_one_task : ndarray of bool
        Whether the peak is that of one of several tasks.
    """

    tasks: Floats
    peak_bytes: Floats
    of_one_task: NDArray[np.bool_]


def step_memory(block: Block, unread: Counter[str]) -> StepMemory:
    """Return the memory that each line states."""
    n = len(block.lines)
    tasks, largest, average, total = (np.full(n, np.nan) for _ in range(4))
    if "ntasks" in block.columns:
        tasks, refused = integers(stated_cells(block.columns["ntasks"]))
        unread["NTasks"] += int(refused.sum())
    if "maxrss" in block.columns:
        largest, refused = bytes_of(stated_cells(block.columns["maxrss"]))
        unread["MaxRSS"] += int(refused.sum())
    if "averss" in block.columns:
        average, refused = bytes_of(stated_cells(block.columns["averss"]))
        unread["AveRSS"] += int(refused.sum())
    if "tresusageintot" in block.columns:
        sums = Tres(stated_cells(block.columns["tresusageintot"]))
        total = sums.memory_bytes
        unread["TRESUsageInTot"] += int(sums.refused.sum())
    tasks, largest, average, total = (np.nan_to_num(a) for a in (tasks, largest, average, total))
    total = np.where(total > 0, total, average * tasks)
    tasks = np.where(tasks == 0, 1.0, tasks)
    of_one_task = (largest > 0) & (tasks > 1) & (total == 0)
    return StepMemory(tasks, np.maximum(largest, total), of_one_task)


def steps_of(block: Block, ids: pa.StringArray, unread: Counter[str]) -> pd.DataFrame:
    """Return the steps of a block: number of the job, memory and state.

    Parameters
    ----------
    ids : StringArray
        Number of each step, such as ``12.batch``.
    """
    memory = step_memory(block, unread)
    parts = pc.extract_regex(ids, r"(?s)^(?P<job>[^.]*)\.(?P<step>.*)$")
    step = pc.struct_field(parts, "step")
    state = block.columns.get("state", pa.nulls(len(ids), pa.string()))
    of_job = ~_true(pc.ends_with(ids, ".extern"))  # that step belongs to Slurm
    return pd.DataFrame(
        {
            "job_id": pc.struct_field(parts, "job").to_numpy(zero_copy_only=False),
            "line": block.lines,
            "tasks": memory.tasks,
            "peak_bytes": memory.peak_bytes,
            "of_one_task": memory.of_one_task,
            "out_of_memory": of_job & _true(pc.starts_with(state, "OUT_OF_ME")),
            "killed_by_slurm": of_job & _true(pc.equal(state, KILLED_BY_SLURM)),
            "interactive": _true(pc.equal(step, "interactive")),
        }
    )


def add_steps(jobs: pd.DataFrame, steps: pd.DataFrame) -> NDArray[np.int64]:
    """Add the memory and the states of steps to the jobs before them, in place.

    Returns
    -------
    ndarray of int
        Numbers of the lines of steps without a job before them.
    """
    if not len(steps):
        return np.array([], dtype=np.int64)
    codes = pd.factorize(np.concatenate([jobs["job_id"], steps["job_id"]]))[0]
    lines = np.concatenate([jobs["line"], steps["line"]])
    order = np.lexsort((lines, codes))
    places = np.arange(len(order))
    is_job = order < len(jobs)
    # The last job at or before each record in this order, if it has the same number.
    last = np.maximum.accumulate(np.where(is_job, places, -1))
    job_of = np.where(last >= 0, order[last], -1)
    same = (last >= 0) & (codes[order] == codes[np.where(last >= 0, order[last], 0)])
    job_of = np.where(same, job_of, -1)[~is_job]
    step_of = order[~is_job] - len(jobs)
    has_job = job_of >= 0
    job, step = job_of[has_job], step_of[has_job]
    for name in ("tasks", "peak_bytes"):
        values = jobs[name].to_numpy(copy=True)
        np.maximum.at(values, job, steps[name].to_numpy()[step])
        jobs[name] = values
    for name in ("of_one_task", "out_of_memory", "killed_by_slurm", "interactive"):
        flags = jobs[name].to_numpy(copy=True)
        flags[job[steps[name].to_numpy()[step]]] = True
        jobs[name] = flags
    return np.sort(steps["line"].to_numpy()[step_of[~has_job]])


def _true(mask: pa.BooleanArray) -> NDArray[np.bool_]:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
