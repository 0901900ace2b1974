"""Slurm's accounting, column by column: jobs, their steps, and how they ended.

``sacct -P`` writes a line for each job, or with ``-D`` for each attempt of a requeued job,
followed by the lines of its steps, which have the memory. A text is read as columns; each distinct
cell is parsed once, and where most cells are distinct, Arrow parses the usual notation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.errors import TableError, VoxcastError
from voxcast.quantities import parse_bytes, slurm_bytes, slurm_seconds
from voxcast.runs.delimited import Remarks, blocks, finite, integer, parsed, true

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.records import Outcome
    from voxcast.runs.delimited import Block, Lines

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

ADVICE = "write it with `sacct -P --format=JobID,JobName,State,ElapsedRaw,...`, header included"
NEEDED = (("JobID", "JobIDRaw"), ("State",), ("ElapsedRaw", "Elapsed", "End"))  # one of each
# A job that was ended from outside did not fail.
OUTCOMES: dict[str, Outcome] = {
    "COMPLETED": "completed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "out_of_memory",
    "FAILED": "failed",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "CANCELLED": "cancelled",
    "REVOKED": "preempted",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "LAUNCH_FAILED": "node_failure",
    "RECONFIG_FAIL": "node_failure",
}
UNFINISHED = (
    "PENDING", "RUNNING", "SUSPENDED", "RESIZING", "CONFIGURING", "COMPLETING", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SIGNALING", "EXPEDITING", "POWER_UP_NODE",
    "REQUEUE_FED", "RESV_DEL_HOLD", "UPDATE_DB",
)  # fmt: skip
MAYBE_NEVER_RUN = ("preempted", "cancelled", "node_failure", "timeout")  # also before the start
MEMORY_NOTE = re.compile(r"memory limit|out.of.memory|oom[- ]?kill", re.IGNORECASE)
NEAR_LIMIT = 0.9  # of the memory limit: Slurm samples every 30 s and misses the last increase
INSTANT = "run time is 0 s"
ONE_TASK = "MaxRSS of one task"
MAX_BYTES, MAX_SECONDS = 2**50, 10 * 365.25 * 86400  # more is a wrong unit
MAX_CPU_SECONDS = 1e15  # 30 million CPU-years
_SUMMER_TIME_S = 3600  # by local time a job may end before it starts
_SIGKILL, _KILLED_STATUS = 9, 128 + 9

# Columns of a frame: texts are categories, amounts are NaN where the source does not state them.
TEXTS = ("name", "user", "account", "partition", "cluster", "state", "outcome")
AMOUNTS = (
    "runtime_s", "cpu_s", "cpus", "requested_cpus", "gpus", "nodes", "tasks", "limit_s",
    "mem_limit_bytes",  # of the whole job
    "peak_rss_bytes",  # of the whole job
    "peak_at_least_bytes",  # of its largest task, where the sum of all tasks is unknown
    "submit_s", "start_s", "end_s",  # by the cluster's own clock
)  # fmt: skip
FLAGS = ("interactive", "all_memory")  # asked for all memory of its nodes (ReqMem=0)
COLUMNS = ("job_id", "line", *TEXTS, *AMOUNTS, *FLAGS)
DETAILS = ("submitted_at", "started_at", "node", "note", "job_number", "exit_status", "signal")
_DETAILED_TEXTS = ("submitted_at", "started_at", "node", "note", "job_number")
_SOURCES = {  # columns of sacct by those of a frame
    "name": ("jobname",),
    "user": ("user",),
    "account": ("account",),
    "partition": ("partition",),
    "cpu_s": ("totalcpu",),
    "cpus": ("alloccpus", "ncpus", "reqcpus", "alloctres", "reqtres"),
    "requested_cpus": ("reqcpus",),
    "gpus": ("alloctres", "reqtres"),
    "limit_s": ("timelimitraw", "timelimit"),
    "mem_limit_bytes": ("alloctres", "reqtres", "reqmem"),
    "peak_rss_bytes": ("maxrss", "averss", "tresusageintot"),
    "tasks": ("ntasks", "tresusageintot"),
    "submit_s": ("submit",),
    "start_s": ("start",),
    "end_s": ("end",),
}
_ABSENT = frozenset({"", "unknown", "none", "none assigned", "invalid", "n/a", "(null)"})
_NO_LIMIT = ("unlimited", "partition_limit")
_NOTES = ("comment", "admincomment", "systemcomment", "reason")
_BY_HAND = r"^\s*(?:\S*/)?(?:salloc\b|srun\b.*\s--pty\b)"  # opens a shell for a person
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
_REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTP]?)([cn]?)", re.IGNORECASE)
_TASK = re.compile(r"(\d+)_(?:(\d+)|\[([^\]]*)\])")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")

TaskId = tuple[str, int]  # job of an array, and number in it


@dataclass
class Jobs:
    """Jobs of the accounting, and what is wrong with it.

    Attributes
    ----------
    frame : DataFrame
        Of `read`: the jobs that have run and ended, with `COLUMNS`.
    columns : set of str
        Columns of the frame which the source states.
    not_run : DataFrame
        Jobs that have not ended, without an outcome, and those that ended before they started:
        ``line``, ``job_id``, ``state``, ``outcome``.
    refused : Remarks
        Lines without a job, and jobs that contradict themselves.
    unread : Remarks
        Fields of jobs that cannot be read and are unknown.
    """

    frame: pd.DataFrame
    columns: set[str]
    not_run: pd.DataFrame = field(default_factory=pd.DataFrame)
    refused: Remarks = field(default_factory=Remarks)
    unread: Remarks = field(default_factory=Remarks)


def read(
    source: Path | str,
    delimiter: str = "|",
    on_read: Callable[[int], None] | None = None,
    *,
    details: bool = False,
) -> Jobs:
    """Read the jobs that have run and ended; parameters as `accounting`.

    Raises
    ------
    TableError
        If the source is not accounting, or has no record.
    """
    jobs = accounting(source, delimiter, on_read, details=details)
    if not len(jobs.frame) and not jobs.refused.counts():
        raise TableError("has no record below its header", source, ADVICE)
    frame, refused = jobs.frame, jobs.refused
    by_state = _outcomes_of_states(frame)
    state, runtime = frame["state"].to_numpy(dtype=object), frame["runtime_s"].to_numpy()
    line = frame["line"].to_numpy()
    usable = ~frame["state"].isna().to_numpy()
    texts = frame["state_text"].to_numpy(dtype=object)
    reasons = [f"column State: not a state of a Slurm job: {t[:60]!r}" for t in texts[~usable]]
    refused.add("not a state of a Slurm job", line[~usable], reasons)
    unfinished = usable & (by_state == "")
    no_time = (runtime == 0) | np.isnan(runtime)
    never = usable & pd.Series(by_state).isin(MAYBE_NEVER_RUN).to_numpy() & no_time
    not_run = unfinished | never
    jobs.not_run = pd.DataFrame(
        {"line": line, "job_id": frame["job_id"], "state": state, "outcome": by_state}
    )[not_run]
    usable &= ~not_run
    ends_first = usable & (frame["end_s"] < frame["start_s"] - _SUMMER_TIME_S).to_numpy()
    refused.add("ends before it starts", line[ends_first])
    usable &= ~ends_first
    timeless = usable & np.isnan(runtime)
    if timeless.any():
        unread: dict[int, list[str]] = {}
        for number, reason in jobs.unread.listed():
            unread.setdefault(number, []).append(reason)
        reasons = ["; ".join(["no run time", *unread.get(n, [])]) for n in line[timeless].tolist()]
        refused.add("no run time", line[timeless], reasons)
    refused.add(INSTANT, line[usable & (runtime == 0)])
    wrong = usable & ((runtime < 0) | (runtime > MAX_SECONDS))
    reasons = [implausible("runtime_s", value) or "" for value in runtime[wrong]]
    refused.add("run time is negative or more than ten years", line[wrong], reasons)
    usable &= (runtime > 0) & ~wrong
    frame["outcome"] = pd.Categorical(outcomes(frame))
    _set_amounts(frame, jobs.unread)
    names = [*COLUMNS, *(DETAILS if details else ())]
    jobs.frame = frame[names][usable].reset_index(drop=True)
    return jobs


def accounting(
    source: Path | str,
    delimiter: str = "|",
    on_read: Callable[[int], None] | None = None,
    *,
    needed: tuple[tuple[str, ...], ...] = NEEDED,
    advice: str = ADVICE,
    details: bool = False,
) -> Jobs:
    """Read all jobs, ended or not, each with what its steps say; `outcomes` adds how they ended.

    Parameters
    ----------
    source : Path or str
        A file that ``sacct -P`` wrote, with any columns, or its text.
    on_read : callable, optional
        Called with the number of bytes of each block.
    needed : tuple of tuple of str
        One column of each group must be there.
    details : bool, optional
        Also read `DETAILS`.

    Raises
    ------
    TableError
        If the source is not accounting.
    """
    refused, unread, of_steps = Remarks(), Remarks(), Remarks()
    columns: set[str] = set()
    parts: list[dict[str, Any]] = []
    steps: list[pd.DataFrame] = []
    for block in blocks(source, delimiter, needed, advice, refused, on_read):
        columns |= set(block.columns)
        ids = _ids(block)
        is_step = true(pc.match_substring(ids, "."))
        steps.append(_steps(_Cells(block, is_step, ids, of_steps)))
        parts.append(_jobs(_Cells(block, ~is_step, ids, unread), details=details))
    if not parts:
        raise TableError("has no header", source, advice)
    frame = _joined(parts)
    lines, job_lines = _add_steps(frame, pd.concat(steps, ignore_index=True))
    unread.extend(of_steps.move(lines, job_lines))
    orphans = lines[job_lines < 0]
    if len(orphans):
        names = pd.concat([part["job_id"] for part in steps]).to_numpy()[job_lines < 0]
        reasons = [f"a step of job {name[:40]}, without a job line before it" for name in names]
        refused.add("a step without a job line before it", orphans, reasons)
    stated = {name for name, sources in _SOURCES.items() if columns & set(sources)}
    return Jobs(frame, stated, refused=refused, unread=unread)


def outcomes(frame: pd.DataFrame) -> NDArray[np.object_]:
    """Return how each job of `accounting` ended; empty where it has not, or the state is unknown.

    A job above its memory limit is ``OUT_OF_MEMORY`` where the kernel enforces the limit, and
    ``FAILED`` by a SIGKILL where Slurm does. An application that dies of a failed allocation, or
    whose shell reports the kill of a child, exits with status 137.

    Seen on Slurm 22.05 with ``OverMemoryKill``, for jobs of an ordinary user: a step above the
    memory is ``CANCELLED by 0``, both the batch step (the job is FAILED 0:9) and one of srun
    (FAILED 9:0, or COMPLETED if the script continues). A step that scancel ends is ``CANCELLED
    by`` the number of the job's user, even if root called it; a step that ends with its job, by
    scancel or the end of the script, is plainly ``CANCELLED``, and only the job names the caller.
    So only a step of root's own, ended by root, has the state of one that Slurm killed; the memory
    used distinguishes the two.
    """
    state = frame["state"].to_numpy(dtype=object)
    outcome = _outcomes_of_states(frame)
    failed, cancelled = state == "FAILED", state == "CANCELLED"
    peak = frame["peak_bytes"].to_numpy()
    limit = np.nan_to_num(frame["mem_limit_bytes"].to_numpy())
    known = (peak > 0) & (limit > 0)
    near, far_below = known & (peak >= NEAR_LIMIT * limit), known & (peak < NEAR_LIMIT * limit)
    # A SIGKILL for another reason differs only in the memory used.
    killed = failed & (frame["signal"].to_numpy() == _SIGKILL) & ~far_below
    killed |= failed & (frame["exit_status"].to_numpy() == _KILLED_STATUS) & near
    noted = frame["memory_note"].to_numpy() & (failed | cancelled)
    # Slurm kills by what it has sampled, so there is a peak then.
    by_root = (frame["user"] == "root").to_numpy() & (far_below | ~(peak > 0))
    step = frame["out_of_memory"].to_numpy() | (frame["killed_by_slurm"].to_numpy() & ~by_root)
    # A script may continue and complete after a step was killed.
    outcome[killed | noted | (step & (failed | (state == "COMPLETED")))] = "out_of_memory"
    return outcome


def attempts(
    frame: pd.DataFrame, notes: Callable[[TaskId], Sequence[str]] | None = None
) -> dict[TaskId, Any]:
    """Return the rows of `accounting` on tasks of array jobs, with outcome, by job and number.

    Of several attempts under one number the last counts. Tasks that wait share one line.

    Parameters
    ----------
    frame : DataFrame
        Of `accounting`, with details.
    notes : callable, optional
        Returns what Slurm wrote into the log of a task that failed or was cancelled.
    """
    frame = frame[~frame["state"].isna()].reset_index(drop=True)
    keys = [(n, key) for n, job in enumerate(frame["job_id"]) for key in _task_ids(str(job))]
    noted, state = frame["memory_note"].to_numpy(copy=True), list(frame["state"])
    for n, key in keys if notes is not None else ():
        if state[n] in ("FAILED", "CANCELLED"):
            noted[n] |= any(MEMORY_NOTE.search(note) for note in notes(key))
    frame["memory_note"] = noted
    frame["outcome"] = outcomes(frame)
    rows = list(frame.itertuples(index=False))
    return {key: rows[n] for n, key in keys}


def numbers(text: str) -> list[int]:
    """Return the numbers of tasks in the notation of Slurm.

    Examples
    --------
    >>> numbers("2,4-6,10-14:2%3")
    [2, 4, 5, 6, 10, 12, 14]
    """
    listed: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is not None:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            listed += range(first, last + 1, step)
    return listed


def implausible(name: str, value: float) -> str | None:
    """Return what is wrong with an amount of a run; None if it is plausible."""
    if not np.isfinite(value) or (value < 0 and name != "exit_status"):
        return f"{name}: is {value:g}"
    if name.endswith("_bytes") and value > MAX_BYTES:
        return f"{name}: {value:.3g} is out of range"
    if name.endswith("_s") and value > MAX_SECONDS:
        return f"{name}: {value:.3g} is more than ten years"
    return None


def _outcomes_of_states(frame: pd.DataFrame) -> NDArray[np.object_]:
    codes = frame["state"].cat.codes.to_numpy()  # -1 for an unknown state, which is the last
    by_code = [OUTCOMES.get(name, "") for name in frame["state"].cat.categories]
    return np.array([*by_code, ""], dtype=object)[codes]


def _task_ids(job_id: str) -> list[TaskId]:
    match = _TASK.fullmatch(job_id)
    if match is None:
        return []
    return [(match[1], n) for n in ([int(match[2])] if match[2] else numbers(match[3]))]


def _set_amounts(frame: pd.DataFrame, unread: Remarks) -> None:
    """Replace amounts that are not plausible, and peaks of one task, by NaN."""
    peak = frame["peak_bytes"].where(frame["peak_bytes"] > 0)
    frame["peak_at_least_bytes"] = peak.where(frame["of_one_task"])
    frame["peak_rss_bytes"] = peak.where(~frame["of_one_task"])
    frame["cpus"] = frame["cpus"].where(frame["cpus"] != 0)
    sizes = ("peak_rss_bytes", "peak_at_least_bytes", "mem_limit_bytes")
    most = dict.fromkeys(sizes, MAX_BYTES)
    most |= {"cpu_s": MAX_CPU_SECONDS, "limit_s": MAX_SECONDS, "cpus": np.inf}
    for name, most_value in most.items():
        values = frame[name].to_numpy()
        wrong = (values < 0) | (values > most_value)
        reasons = [implausible(name, value) or "" for value in values[wrong]]
        unread.add(name, frame["line"].to_numpy()[wrong], reasons)
        frame[name] = np.where(wrong, np.nan, values)
    frame["cpus"] = frame["cpus"].fillna(0.0)
    for name in ("cpu_s", "mem_limit_bytes"):
        frame[name] = frame[name].where(frame[name] > 0)


def _joined(parts: list[dict[str, Any]]) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in list(parts[0]):
        arrays = [part.pop(name) for part in parts]
        if isinstance(arrays[0], pa.DictionaryArray):
            chunks = pa.chunked_array(arrays).unify_dictionaries()
            columns[name] = chunks.combine_chunks().to_pandas()
        else:
            columns[name] = np.concatenate(arrays)
    names = {text: _state_name(text) for text in columns["state_text"].cat.categories}
    states = columns["state_text"].astype(object).map(names)
    return pd.DataFrame(columns | {"state": pd.Categorical(states)})


def _state_name(text: str) -> str | None:
    """Return the full name of a state that may be cut off, or be followed by who caused it."""
    prefix = (text.split() or [""])[0].rstrip("+").upper()
    known = (name for name in (*OUTCOMES, *UNFINISHED) if name.startswith(prefix))
    return next(known, None) if prefix else None


def _ids(block: Block) -> pa.StringArray:
    present = [block.columns[name] for name in ("jobid", "jobidraw") if name in block.columns]
    if not present:
        return pa.array([""] * len(block.lines), pa.string())
    if len(present) == 1:
        return present[0]
    return (
        present[0]
        if len(present) == 1
        else pc.if_else(pc.equal(present[0], ""), present[1], present[0])
    )


def _jobs(cells: _Cells, *, details: bool) -> dict[str, Any]:
    """Return the columns of the job lines of a block."""
    allocated, requested = cells.tres("alloctres"), cells.tres("reqtres")
    tres = np.where(allocated[4] > 0, allocated, requested)
    tres_cpus, tres_memory, tres_nodes, gpus = tres[:4]
    requested_cpus = cells.read("reqcpus", integer, _integers)
    cpus = _first_above_0(
        cells.read("alloccpus", integer, _integers), cells.read("ncpus", integer, _integers),
        tres_cpus, requested_cpus,
    )  # fmt: skip
    one_node = np.where(np.isnan(tres_nodes), 1.0, tres_nodes)
    nodes = _first_above_0(
        cells.read("allocnodes", integer, _integers), cells.read("nnodes", integer, _integers),
        one_node,
    )  # fmt: skip
    size, kind = cells.read("reqmem", _requested_memory, width=2)
    times = np.where(kind == 1, np.maximum(cpus, 1), np.where(kind == 2, np.maximum(nodes, 1), 1))
    memory_limit = _first_above_0(tres_memory, size * times)
    start, end = (cells.read(name, _moment, _clock_times) for name in ("start", "end"))
    runtime = cells.read("elapsedraw", finite, _integers)
    elapsed = cells.read("elapsed", slurm_seconds, _clock_seconds, where=np.isnan(runtime))
    runtime = np.where(np.isnan(runtime), elapsed, runtime)
    status, signal = cells.read("exitcode", _exit_code, width=2)
    memory = cells.memory()
    note = pa.nulls(cells.n, pa.string())
    for name in _NOTES:
        other = cells.texts(name)
        note = pc.coalesce(pc.binary_join_element_wise(note, other, "; "), note, other)
    texts = {name: cells.texts(name) for name in ("user", "account", "partition", "cluster")}
    texts |= {"name": cells.raw("jobname"), "state_text": cells.raw("state")}
    if details:
        texts |= {
            "submitted_at": cells.texts("submit", _moment),
            "started_at": cells.texts("start", _moment),
            "node": cells.texts("nodelist"),
            "note": note,
            "job_number": cells.texts("jobidraw"),
        }
    return {
        "job_id": cells.ids.to_numpy(zero_copy_only=False),
        "line": cells.lines,
        **{name: text.fill_null("").dictionary_encode() for name, text in texts.items()},
        "runtime_s": np.where(np.isnan(runtime), end - start, runtime),
        "cpu_s": cells.read("totalcpu", slurm_seconds, _clock_seconds),
        "cpus": cpus,
        "requested_cpus": requested_cpus,
        "gpus": np.nan_to_num(gpus),
        "nodes": nodes,
        "limit_s": cells.time_limit(),
        "mem_limit_bytes": np.where(memory_limit > 0, memory_limit, np.nan),
        "all_memory": size == 0,
        "submit_s": cells.read("submit", _moment, _clock_times),
        "eligible_s": cells.read("eligible", _moment, _clock_times),
        "start_s": start,
        "end_s": end,
        "exit_status": status,
        "signal": np.nan_to_num(signal),
        "memory_note": true(pc.match_substring_regex(note, MEMORY_NOTE.pattern, ignore_case=True)),
        **memory,
        "out_of_memory": np.zeros(cells.n, dtype=bool),
        "killed_by_slurm": np.zeros(cells.n, dtype=bool),
        "interactive": true(pc.match_substring_regex(cells.texts("submitline"), _BY_HAND)),
    }


def _steps(cells: _Cells) -> pd.DataFrame:
    """Return number of the job, memory and state of the steps of a block."""
    parts = pc.extract_regex(cells.ids, r"(?s)^(?P<job>[^.]*)\.(?P<step>.*)$")
    step, state = pc.struct_field(parts, "step"), cells.raw("state")
    of_job = ~true(pc.equal(step, "extern"))  # that step belongs to Slurm
    return pd.DataFrame(
        {
            "job_id": pc.struct_field(parts, "job").to_numpy(zero_copy_only=False),
            "line": cells.lines,
            **cells.memory(),
            "out_of_memory": of_job & true(pc.starts_with(state, "OUT_OF_ME")),
            "killed_by_slurm": of_job & true(pc.equal(state, "CANCELLED by 0")),
            "interactive": true(pc.equal(step, "interactive")),
        }
    )


def _add_steps(jobs: pd.DataFrame, steps: pd.DataFrame) -> tuple[Lines, Lines]:
    """Add memory and states of steps to the jobs before them, in place.

    Returns
    -------
    lines, job_lines : ndarray of int
        Line of each step and of its job; -1 for a step without a job before it.
    """
    codes = pd.factorize(np.concatenate([jobs["job_id"], steps["job_id"]]))[0]
    lines = np.concatenate([jobs["line"], steps["line"]]).astype(np.int64)
    order = np.lexsort((lines, codes))
    is_job = order < len(jobs)
    # The last job at or before each record in this order, if it has the same number.
    last = np.maximum.accumulate(np.where(is_job, np.arange(len(order)), -1))
    same = (last >= 0) & (codes[order] == codes[order[last]])
    job_of = np.full(len(steps), -1)
    job_of[order[~is_job] - len(jobs)] = np.where(same, order[last], -1)[~is_job]
    step = np.flatnonzero(job_of >= 0)
    job = job_of[step]
    for name in ("tasks", "peak_bytes"):
        values = jobs[name].to_numpy(copy=True)
        np.maximum.at(values, job, steps[name].to_numpy()[step])
        jobs[name] = values
    for name in ("of_one_task", "out_of_memory", "killed_by_slurm", "interactive"):
        flags = jobs[name].to_numpy(copy=True)
        flags[job[steps[name].to_numpy(dtype=bool)[step]]] = True
        jobs[name] = flags
    job_lines = np.append(lines[: len(jobs)], -1)[job_of]
    return lines[len(jobs) :], job_lines


class _Cells:
    """Some records of a block; cells of a column that is not there are unknown."""

    def __init__(self, block: Block, rows: Mask, ids: pa.StringArray, unread: Remarks) -> None:
        selected = block.select(rows)
        self.columns, self.lines, self.n = selected.columns, selected.lines, len(selected.lines)
        self.ids, self._unread = ids.filter(pa.array(rows)), unread
        self._titles = dict(zip(block.header.names, block.header.titles, strict=True))

    def raw(self, name: str) -> pa.StringArray:
        return self.columns.get(name, pa.nulls(self.n, pa.string()))

    def texts(self, name: str, parse: Callable[[str], object] | None = None) -> pa.StringArray:
        """Return the cells; null where the value is unknown, or ``parse`` fails."""
        distinct = self.raw(name).dictionary_encode()
        stated = [
            None if text.lower() in _ABSENT or (parse and not _parses(text, parse)) else text
            for text in distinct.dictionary.to_pylist()
        ]
        return pa.array(stated, type=pa.string()).take(distinct.indices)

    def read(
        self,
        name: str,
        parse: Callable[[str], Any],
        fast: Callable[[pa.StringArray], Floats] | None = None,
        *,
        width: int = 1,
        where: Mask | None = None,
    ) -> Floats:
        """Return the numbers in cells, shape (n,) or (width, n); NaN where unknown or unreadable.

        Parameters
        ----------
        parse : callable
            Returns the number of a text, or ``width`` numbers.
        fast : callable, optional
            Parses an array of texts in the usual notation; NaN for those it leaves to ``parse``.
        where : ndarray of bool, optional
            Rows whose cells are needed.
        """
        if name not in self.columns:
            return np.full((width, self.n), np.nan) if width > 1 else np.full(self.n, np.nan)
        cells = self.texts(name)
        if where is not None:
            cells = pc.if_else(pa.array(where), cells, None)
        distinct = cells.dictionary_encode()
        texts = distinct.dictionary
        values = np.full((len(texts) + 1, width), np.nan)  # the last is an unknown cell
        if fast is not None and len(texts) > FEW:
            values[:-1] = fast(texts).reshape(len(texts), width)
        problems = {}
        for n in np.flatnonzero(np.isnan(values[:-1]).all(axis=1)).tolist():
            try:
                value = parsed(self._titles[name], texts[n].as_py(), parse)
                values[n] = np.nan if value is None else value
            except TableError as error:
                problems[n] = error.problem
        places = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        if problems:
            self._note(self._titles[name], np.isin(places, list(problems)), places, problems)
        numbers = values[places]
        return numbers.T if width > 1 else numbers[:, 0]

    def tres(self, name: str) -> Floats:
        """Return CPUs, memory, nodes, GPUs, and whether any amount is stated, shape (5, n)."""
        return self.read(name, _tres, _tres_columns, width=5)

    def time_limit(self) -> Floats:
        def minutes(text: str) -> float | None:
            return None if text.lower() in _NO_LIMIT else 60.0 * integer(text)

        def clock(text: str) -> float | None:
            return None if text.lower() in _NO_LIMIT else slurm_seconds(text)

        raw = self.texts("timelimitraw")
        unlimited = true(pc.is_in(pc.utf8_lower(raw), pa.array(_NO_LIMIT)))
        stated = true(raw.is_valid()) & ~unlimited
        limit = self.read("timelimitraw", minutes, lambda texts: 60.0 * _integers(texts))
        limit_s = self.read("timelimit", clock, _clock_seconds, where=~stated)
        return np.where(stated, limit, limit_s)

    def memory(self) -> dict[str, Any]:
        """Return the tasks of each record, the peak of all, and whether it is that of one task."""
        tasks = np.nan_to_num(self.read("ntasks", integer, _integers))
        largest = np.nan_to_num(self.read("maxrss", _bytes, _sizes))
        average = np.nan_to_num(self.read("averss", _bytes, _sizes))
        total = np.nan_to_num(self.tres("tresusageintot")[1])
        total = np.where(total > 0, total, average * tasks)
        tasks = np.where(tasks == 0, 1.0, tasks)
        of_one_task = (largest > 0) & (tasks > 1) & (total == 0)
        self._unread.add(ONE_TASK, self.lines[of_one_task], [
            f"MaxRSS: that of one of {n:.0f} tasks; export TRESUsageInTot for that of all"
            for n in tasks[of_one_task]
        ])  # fmt: skip
        return {
            "tasks": tasks, "peak_bytes": np.maximum(largest, total), "of_one_task": of_one_task,
        }  # fmt: skip

    def _note(self, title: str, refused: Mask, places: Any, problems: dict[int, str]) -> None:
        names = self.ids.filter(pa.array(refused)).to_pylist()
        reasons = [
            problems[place] + (f" (step {name})" if "." in name else "")
            for place, name in zip(places[refused].tolist(), names, strict=True)
        ]
        self._unread.add(title, self.lines[refused], reasons)


def _parses(text: str, parse: Callable[[str], object]) -> bool:
    try:
        parse(text)
    except (VoxcastError, ValueError, OverflowError):
        return False
    return True


def _first_above_0(*columns: Floats) -> Floats:
    """Return for each job the first value that is neither unknown nor 0; else 0."""
    first = np.zeros(len(columns[0]))
    for values in reversed(columns):
        first = np.where(np.nan_to_num(values) != 0, values, first)
    return first


# Notations of Slurm, one text at a time.


def _bytes(text: str) -> int:
    # With `--noconvert` the number has no unit and is in bytes.
    return parse_bytes(f"{text}B") if text[-1].isdigit() else slurm_bytes(text)


def _requested_memory(text: str) -> tuple[float, float]:
    """Return bytes, and 1 if they are per CPU, ``4Gc``, 2 if per node, ``4Gn`` (up to 20.11)."""
    match = _REQUESTED_MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"not a size: {text[:40]!r}")
    return _bytes(match[1]), {"c": 1, "n": 2, "": 0}[match[2].lower()]


def _exit_code(text: str) -> tuple[int, int]:
    match = _EXIT.fullmatch(text)
    if match is None:
        raise TableError(f"not an exit code: {text[:40]!r}")
    return int(match[1]), int(match[2])


def _moment(text: str) -> float:
    # The time zone is not written; only differences and minutes are used.
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _tres(text: str) -> tuple[float, ...]:
    """Return the amounts of ``cpu=2,mem=8G,gres/gpu=1`` as `_Cells.tres` does."""
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == "mem":
            amounts[name] = _bytes(value) if value else 0
        elif value.isdecimal() and len(value) < 16:
            # GPUs are listed by type, with or without their sum.
            if name.startswith("gres/gpu:") and "gres/gpu=" not in text:
                amounts["gres/gpu"] = amounts.get("gres/gpu", 0) + int(value)
            amounts[name] = int(value)
    listed = (amounts.get(name, np.nan) for name in ("cpu", "mem", "node", "gres/gpu"))
    return (*listed, float(bool(amounts)))


# The same notations, many texts at a time; NaN for texts that are left to the functions above.

FEW = 1000  # distinct texts that are parsed one by one without a loss
_CLOCK = (
    r"^(?:(?:(?P<d>[0-9]{1,6})-)?(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,3}):"
    r"(?P<s>[0-9]{1,2}(?:\.[0-9]{1,9})?)$"
)
_SIZE = r"^(?P<v>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<u>[KkMmGgTt]?)$"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$"


def _tres_columns(texts: pa.StringArray) -> Floats:
    cpus, nodes, gpus = (
        _field(texts, rf"(?:^|,){name}=(?P<v>[0-9]{{1,15}})(?:,|$)")
        for name in ("cpu", "node", "gres/gpu")
    )
    memory_text = pc.struct_field(pc.extract_regex(texts, r"(?:^|,)mem=(?P<v>[^,]*)"), "v")
    memory, has_memory = _sizes(memory_text), true(memory_text.is_valid())
    stated = true(pc.match_substring_regex(texts, r"=[0-9]{1,15}(?:,|$)")) | has_memory
    amounts = np.column_stack([cpus, memory, nodes, gpus, stated])
    by_type = true(pc.match_substring(texts, "gres/gpu:"))
    twice = true(pc.greater(pc.count_substring(texts, "mem="), 1))
    amounts[by_type | twice | (has_memory & np.isnan(memory))] = np.nan
    return amounts


def _clock_seconds(texts: pa.StringArray) -> Floats:
    fields = pc.extract_regex(texts, _CLOCK)
    days, hours, minutes, rest = (_floats(pc.struct_field(fields, name)) for name in "dhms")
    total: Floats = np.nan_to_num(days) * 86400 + np.nan_to_num(hours) * 3600 + minutes * 60 + rest
    return total


def _sizes(texts: pa.StringArray) -> Floats:
    fields = pc.extract_regex(texts, _SIZE)
    unit = pc.utf8_lower(pc.struct_field(fields, "u")).dictionary_encode()
    factors = np.array([_UNITS[u] for u in unit.dictionary.to_pylist()] + [np.nan])
    places = unit.indices.fill_null(len(factors) - 1).to_numpy(zero_copy_only=False)
    sizes: Floats = np.rint(_floats(pc.struct_field(fields, "v")) * factors[places])
    return sizes


def _integers(texts: pa.StringArray) -> Floats:
    return _field(texts, r"^(?P<v>[0-9]{1,15})$")


def _clock_times(texts: pa.StringArray) -> Floats:
    usual = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, None)
    times = pc.strptime(usual, format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
    since = times.cast(pa.int64()).cast(pa.float64())
    seconds = np.asarray(since.to_numpy(zero_copy_only=False), dtype=np.float64)
    # It takes 30 February for 2 March, and a 61st second for the next minute.
    for start, part in ((8, pc.day(times)), (17, pc.second(times))):
        written = _integers(pc.utf8_slice_codeunits(texts, start, start + 2))
        read_as = part.cast(pa.float64()).to_numpy(zero_copy_only=False)
        seconds = np.where(written == read_as, seconds, np.nan)
    return seconds


def _field(texts: pa.StringArray, pattern: str) -> Floats:
    return _floats(pc.struct_field(pc.extract_regex(texts, pattern), "v"))


def _floats(texts: pa.StringArray) -> Floats:
    """Return numbers, NaN for null and empty texts."""
    filled = pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.float64())
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
