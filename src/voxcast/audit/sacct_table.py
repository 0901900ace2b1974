"""``sacct -P`` of millions of jobs as a table, column by column.

The jobs, their outcomes and their amounts are those of `voxcast.history.imports.sacct`, which
reads line by line; a test compares the two. Only CPU time of more than ten years, which jobs of
many cores reach, is kept here and not there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.audit import slurm_cells
from voxcast.audit.sacct_outcomes import with_outcomes
from voxcast.audit.sacct_steps import add_steps, step_memory, steps_of
from voxcast.audit.slurm_cells import Tres, stated_cells
from voxcast.runs.delimited import Refusals, blocks
from voxcast.errors import TableError
from voxcast.history.imports.sacct import (
    ADVICE,
    NEEDED,
    NO_LIMIT,
    NOTES,
    REQUESTED_MEMORY,
    memory_of,
)
from voxcast.history.imports.slurm_job import MEMORY_NOTE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.audit.jobs import AuditedJobs
    from voxcast.runs.delimited import Block

    Floats = NDArray[np.float64]

TEXTS = ("name", "user", "account", "partition", "cluster", "state_text")
_STATED = ("user", "account", "partition", "cluster")
# A command line that opens a shell for a person.
_BY_HAND = r"^\s*(?:\S*/)?(?:salloc\b|srun\b.*\s--pty\b)"


def read(
    path: Path, delimiter: str = "|", on_read: Callable[[int], None] | None = None
) -> AuditedJobs:
    """Read a file written by ``sacct -P`` with any columns.

    Parameters
    ----------
    on_read : callable, optional
        Called with the number of bytes of each block.

    Raises
    ------
    TableError
        If it is none, or has no jobs.
    """
    refused, unread, columns = Refusals(), Counter[str](), set[str]()
    parts: list[dict[str, Any]] = []
    steps: list[pd.DataFrame] = []
    for block in blocks(path, delimiter, NEEDED, ADVICE, refused, on_read):
        columns |= set(block.columns)
        ids = _ids(block)
        is_step = _true(pc.match_substring(ids, "."))
        steps.append(steps_of(block.select(is_step), ids.filter(pa.array(is_step)), unread))
        of_jobs = pa.array(~is_step)
        parts.append(_jobs(block.select(~is_step), ids.filter(of_jobs), unread))
    if not columns:
        raise TableError("has no record below its header", path, ADVICE)
    frame = _concatenated(parts)
    orphans = add_steps(frame, pd.concat(steps, ignore_index=True))
    refused.add("a step without a job line before it", orphans)
    return with_outcomes(frame, columns, refused, unread, path.name)


def _concatenated(parts: list[dict[str, Any]]) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in list(parts[0]):
        arrays = [part.pop(name) for part in parts]
        if name in TEXTS:
            chunks = pa.chunked_array(arrays).unify_dictionaries()
            columns[name] = chunks.combine_chunks().to_pandas()
        else:
            columns[name] = np.concatenate(arrays)
    return pd.DataFrame(columns)


def _ids(block: Block) -> pa.StringArray:
    present = [block.columns[name] for name in ("jobid", "jobidraw") if name in block.columns]
    if len(present) == 1:
        return present[0]
    return pc.if_else(pc.equal(present[0], ""), present[1], present[0])


def _jobs(block: Block, ids: pa.StringArray, unread: Counter[str]) -> dict[str, Any]:
    """Return the columns of the job lines of a block."""
    n = len(block.lines)
    cells = _Cells(block, unread)
    tres = cells.tres("alloctres")
    of_request = cells.tres("reqtres")
    amounts = {
        name: np.where(tres.stated, getattr(tres, name), getattr(of_request, name))
        for name in ("cpus", "memory_bytes", "nodes", "gpus")
    }
    requested_cpus = cells.integers("reqcpus")
    cpus = _first_above_0(
        cells.integers("alloccpus"), cells.integers("ncpus"), amounts["cpus"], requested_cpus
    )
    stated_nodes = _first_above_0(cells.integers("allocnodes"), cells.integers("nnodes"))
    tres_nodes = np.where(np.isnan(amounts["nodes"]), 1.0, amounts["nodes"])
    nodes = np.where(stated_nodes > 0, stated_nodes, tres_nodes)
    requested, all_memory = cells.requested_memory(cpus, nodes)
    memory_limit = np.where(
        np.nan_to_num(amounts["memory_bytes"]) > 0, amounts["memory_bytes"], requested
    )
    start, end = cells.moments("start"), cells.moments("end")
    memory = step_memory(block, unread)
    command = cells.texts("submitline")
    texts = {name: cells.texts(name) for name in _STATED}
    texts |= {"name": cells.raw("jobname"), "state_text": cells.raw("state")}
    return {
        "job_id": ids.to_numpy(zero_copy_only=False),
        "line": block.lines,
        **{name: text.fill_null("").dictionary_encode() for name, text in texts.items()},
        "runtime_s": cells.runtime(start, end),
        "cpu_s": cells.seconds("totalcpu"),
        "cpus": cpus,
        "requested_cpus": requested_cpus,
        "gpus": np.nan_to_num(amounts["gpus"]),
        "nodes": nodes,
        "limit_s": cells.time_limit(),
        "mem_limit_bytes": memory_limit,
        "all_memory": all_memory,
        "submit_s": cells.moments("submit"),
        "start_s": start,
        "end_s": end,
        "signal": cells.signal(),
        "memory_note": cells.memory_note(),
        "tasks": memory.tasks,
        "peak_bytes": memory.peak_bytes,
        "of_one_task": memory.of_one_task,
        "out_of_memory": np.zeros(n, dtype=bool),
        "killed_by_slurm": np.zeros(n, dtype=bool),
        "interactive": _true(pc.match_substring_regex(command, _BY_HAND)),
    }


class _Cells:
    """The cells of a block by column; those of a column that is not there are unknown."""

    def __init__(self, block: Block, unread: Counter[str]) -> None:
        self._columns, self._unread, self._n = block.columns, unread, len(block.lines)

    def raw(self, name: str) -> pa.StringArray:
        return self._columns.get(name, pa.nulls(self._n, pa.string()))

    def texts(self, name: str) -> pa.StringArray:
        return stated_cells(self._columns[name]) if name in self._columns else self.raw(name)

    def seconds(self, name: str) -> Floats:
        return self._read(name, slurm_cells.seconds)

    def integers(self, name: str) -> Floats:
        return self._read(name, slurm_cells.integers)

    def moments(self, name: str) -> Floats:
        return self._read(name, slurm_cells.moments)

    def tres(self, name: str) -> Tres:
        tres = Tres(self.texts(name))
        self._unread[name] += int(tres.refused.sum())
        return tres

    def runtime(self, start_s: Floats, end_s: Floats) -> Floats:
        """Return the elapsed time; without it the time from start to end."""
        raw = self._read("elapsedraw", slurm_cells.numbers)
        elapsed = np.where(np.isnan(raw), self.seconds("elapsed"), raw)
        return np.where(np.isnan(elapsed), end_s - start_s, elapsed)

    def time_limit(self) -> Floats:
        raw, text = self.texts("timelimitraw"), self.texts("timelimit")
        no_limit = pa.array(sorted(NO_LIMIT))
        minutes = pc.if_else(pc.is_in(pc.utf8_lower(raw), no_limit), None, raw)
        clock = pc.if_else(pc.is_in(pc.utf8_lower(text), no_limit), None, text)
        limit, refused = slurm_cells.integers(minutes)
        self._unread["timelimitraw"] += int(refused.sum())
        limit_s, refused_s = slurm_cells.seconds(clock)
        has_minutes = _true(minutes.is_valid())
        self._unread["timelimit"] += int((refused_s & ~has_minutes).sum())
        return np.where(has_minutes, 60.0 * limit, limit_s)

    def requested_memory(self, cpus: Floats, nodes: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the requested memory of each job, and whether it is all of its nodes."""
        cells = self.texts("reqmem")
        kinds = {"c": 1.0, "n": 2.0, "": 0.0}
        size, refused = slurm_cells.parsed(cells, lambda text: memory_of(_reqmem(text)[0]))
        kind, _ = slurm_cells.parsed(cells, lambda text: kinds[_reqmem(text)[1]])
        self._unread["reqmem"] += int(refused.sum())
        times = np.where(kind == 1, np.maximum(cpus, 1), np.where(kind == 2, nodes, 1.0))
        requested = size * np.maximum(times, 1)
        return np.where(requested > 0, requested, np.nan), size == 0

    def signal(self) -> Floats:
        fields = pc.extract_regex(self.texts("exitcode"), r"^[0-9]{1,9}:(?P<s>[0-9]{1,9})$")
        signal = pc.struct_field(fields, "s").cast(pa.float64()).fill_null(0.0)
        return np.asarray(signal.to_numpy(zero_copy_only=False), dtype=np.float64)

    def memory_note(self) -> NDArray[np.bool_]:
        """Tell which jobs have a remark that their memory was too small."""
        noted = np.zeros(self._n, dtype=bool)
        for name in NOTES:
            if name in self._columns:
                noted |= _true(
                    pc.match_substring_regex(
                        self.texts(name), MEMORY_NOTE.pattern, ignore_case=True
                    )
                )
        return noted

    def _read(self, name: str, parse: Callable[..., Any]) -> Floats:
        if name not in self._columns:
            return np.full(self._n, np.nan)
        values: Floats
        values, refused = parse(self.texts(name))
        self._unread[name] += int(refused.sum())
        return values


def _reqmem(text: str) -> tuple[str, str]:
    match = REQUESTED_MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"not a size: {text[:40]!r}")
    return match[1], match[2].lower()


def _first_above_0(*columns: Floats) -> Floats:
    """Return for each job the first value that is neither unknown nor 0; else 0."""
    first = np.zeros(len(columns[0]))
    for values in reversed(columns):
        first = np.where(np.nan_to_num(values) != 0, values, first)
    return first


def _true(mask: Any) -> NDArray[np.bool_]:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
