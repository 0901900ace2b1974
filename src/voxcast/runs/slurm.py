"""Slurm's accounting, column by column: jobs, their steps, and how they ended.

``sacct -P`` writes a line for each job, or with ``-D`` for each attempt of a requeued job,
followed by the lines of its steps, which have the memory. A text is read as columns, and each
distinct cell is parsed once.
"""

from __future__ import annotations

import math
import re
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress, islice
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.quantities import parse_bytes, slurm_bytes, slurm_seconds
from voxcast.records import KILLED, NEAR_LIMIT
from voxcast.runs.imported import Remarks, finite, integer, parsed, require, table
from voxcast.runs.table import MAX_BYTES, MAX_SECONDS, implausible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from voxcast.records import Outcome

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Texts = NDArray[np.object_]
    Lines = NDArray[np.int64]

ONE_TASK = "MaxRSS of one task"
_ABSENT = frozenset({"", "unknown", "none", "none assigned", "invalid", "n/a", "(null)"})
_NO_LIMIT = ("unlimited", "partition_limit")
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
_REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTP]?)([cn]?)", re.IGNORECASE)


class SlurmCells:
    """Some records of accounting; cells of a column that is not there are unknown."""

    def __init__(
        self, titles: Sequence[str], records: Sequence[tuple[int, list[str]]], unread: Remarks
    ) -> None:
        self.lines = np.array([line for line, _ in records], dtype=np.int64)
        self.n, self._unread = len(records), unread
        self._titles = {title.lower(): title for title in titles}
        columns = zip(*(cells for _, cells in records), strict=True)
        self._columns = {
            name: np.array(column, dtype=object)
            for name, column in zip(self._titles, columns, strict=False)
        }
        ids = self.raw("jobid")
        self.ids = np.where(ids == "", self.raw("jobidraw"), ids)

    def raw(self, name: str) -> Texts:
        """Return the cells as they are; empty if the column is not there."""
        return self._columns.get(name, np.full(self.n, "", dtype=object))

    def texts(self, name: str) -> Texts:
        """Return the cells; empty where the value is unknown."""
        codes, distinct = pd.factorize(self.raw(name))
        stated = ["" if text.lower() in _ABSENT else text for text in distinct]
        return np.array([*stated, ""], dtype=object)[codes]

    def read(
        self,
        name: str,
        parse: Callable[[str], Any],
        *,
        width: int = 1,
        where: Mask | None = None,
    ) -> Floats:
        """Return the numbers in cells, shape (n,) or (width, n); NaN where unknown or unreadable.

        Parameters
        ----------
        parse : callable
            Returns the number of a text, or ``width`` numbers.
        where : ndarray of bool, optional
            Rows whose cells are needed.
        """
        codes, distinct = pd.factorize(self.raw(name))
        codes = codes if where is None else np.where(where, codes, -1)
        title = self._titles.get(name, name)
        values = np.full((len(distinct) + 1, width), np.nan)  # the last is an unknown cell
        problems = {}
        for n, text in enumerate(distinct):
            if text.lower() not in _ABSENT:
                try:
                    values[n] = parsed(title, text, parse)
                except TableError as error:
                    problems[n] = error.problem
        if problems:
            refused = np.isin(codes, list(problems))
            reasons = [
                problems[code] + (f" (step {name})" if "." in name else "")
                for code, name in zip(codes[refused], self.ids[refused], strict=True)
            ]
            self._unread.add(title, self.lines[refused], reasons)
        numbers: Floats = values[codes].T
        return numbers if width > 1 else numbers[0]

    def tres(self, name: str) -> Floats:
        """Return CPUs, memory, nodes, GPUs, and whether any amount is stated, shape (5, n)."""
        return self.read(name, _tres, width=5)

    def time_limit(self) -> Floats:
        """Return the time limits in seconds; infinite without one."""
        limit = self.read("timelimitraw", lambda text: _limit(text, lambda t: 60.0 * integer(t)))
        unstated = self.texts("timelimitraw") == ""
        unstated |= np.isinf(limit)
        limit_s = self.read("timelimit", lambda t: _limit(t, slurm_seconds), where=unstated)
        limit_s = np.where(unstated, limit_s, limit)
        return np.where(np.isinf(limit_s), np.nan, limit_s)

    def memory(self) -> dict[str, Any]:
        """Return the tasks of each record, the peak of all, and whether it belongs to one task."""
        tasks = np.nan_to_num(self.read("ntasks", integer))
        largest = np.nan_to_num(self.read("maxrss", _bytes))
        average = np.nan_to_num(self.read("averss", _bytes))
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


def _limit(text: str, parse: Callable[[str], float]) -> float:
    return math.inf if text.lower() in _NO_LIMIT else parse(text)


def _bytes(text: str) -> int:
    # With `--noconvert` the number has no unit and is in bytes.
    return parse_bytes(f"{text}B") if text[-1].isdigit() else slurm_bytes(text)


def requested_memory(text: str) -> tuple[float, float]:
    """Return bytes, and 1 if they are per CPU, ``4Gc``, 2 if per node, ``4Gn`` (up to 20.11)."""
    match = _REQUESTED_MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"not a size: {text[:40]!r}")
    return _bytes(match[1]), {"c": 1, "n": 2, "": 0}[match[2].lower()]


def exit_code(text: str) -> tuple[int, int]:
    """Return the exit status and the signal of ``1:0``."""
    match = _EXIT.fullmatch(text)
    if match is None:
        raise TableError(f"not an exit code: {text[:40]!r}")
    return int(match[1]), int(match[2])


def moment(text: str) -> float:
    """Return a time in seconds, of the cluster's own clock."""
    # The time zone is not written; only differences and minutes are used.
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _tres(text: str) -> tuple[float, ...]:
    """Return the amounts of ``cpu=2,mem=8G,gres/gpu=1`` as `SlurmCells.tres` does."""
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


ADVICE = "write it with `sacct -P --format=JobID,JobName,State,ElapsedRaw,...`, header included"
NEEDED = (("jobid", "jobidraw"), ("state",), ("elapsedraw", "elapsed", "end"))  # one of each
BLOCK_LINES = 50_000
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
INSTANT = "run time is 0 s"
MAX_CPU_SECONDS = 1e15  # 30 million CPU-years
_SUMMER_TIME_S = 3600  # by local time a job may end before it starts

# Columns of a frame: texts are categories, amounts are NaN where the source does not state them.
TEXTS = ("name", "user", "account", "partition", "cluster", "state", "outcome")
AMOUNTS = (
    "runtime_s", "cpu_s", "cpus", "requested_cpus", "gpus", "nodes", "tasks", "limit_s",
    "mem_limit_bytes",  # of the whole job
    "peak_rss_bytes",  # of the whole job
    "peak_at_least_bytes",  # of its largest task, where the sum of all tasks is unknown
    "submit_s", "start_s", "end_s",  # by the cluster's own clock
)  # fmt: skip
FLAGS = ("interactive", "all_memory")  # requested all memory of its nodes (ReqMem=0)
COLUMNS = ("job_id", "line", *TEXTS, *AMOUNTS, *FLAGS)
DETAILS = (
    "submitted_at", "started_at", "node", "note", "job_number", "exit_status", "signal",
    "work_dir",
)  # fmt: skip
_SOURCES = {  # columns of sacct by column of a frame
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
    "eligible_s": ("eligible",),
    "start_s": ("start",),
    "end_s": ("end",),
}
_NOTES = ("comment", "admincomment", "systemcomment", "reason")  # the first is of the user
# Opens a shell for a person.
_BY_HAND = re.compile(r"^\s*(?:\S*/)?(?:salloc\b|srun\b.*\s--pty\b)")
_TASK = re.compile(r"(\d+)_(?:(\d+)|\[([^\]]*)\])")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")

TaskId = tuple[str, int]  # job of an array, and number in it


@dataclass
class Jobs:
    """Jobs of the accounting, and its problems.

    Attributes
    ----------
    frame : DataFrame
        Of `read`: the jobs that have run and ended, with `COLUMNS`.
    columns : set of str
        Columns of the frame which the source states.
    not_run : DataFrame
        Jobs that have not ended, without an outcome, and jobs that ended before they started:
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
    on_read: Callable[[int], object] | None = None,
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
    if not len(jobs.frame) and not jobs.refused:
        raise TableError("has no record below its header", source, ADVICE)
    frame, refused = jobs.frame, jobs.refused
    by_state = _outcomes_of_states(frame)
    state, runtime = frame["state"].to_numpy(dtype=object), frame["runtime_s"].to_numpy()
    line = frame["line"].to_numpy()
    usable = ~frame["state"].isna().to_numpy()
    texts = frame["state_text"].to_numpy(dtype=object)
    reasons = [f"column State: not a state of a Slurm job: {t[:60]!r}" for t in texts[~usable]]
    refused.add("not a state of a Slurm job", line[~usable], reasons)
    no_time = (runtime == 0) | np.isnan(runtime)
    not_run = usable & ((by_state == "") | (np.isin(by_state, MAYBE_NEVER_RUN) & no_time))
    jobs.not_run = pd.DataFrame(
        {"line": line, "job_id": frame["job_id"], "state": state, "outcome": by_state}
    )[not_run]
    usable &= ~not_run
    ends_first = usable & (frame["end_s"] < frame["start_s"] - _SUMMER_TIME_S).to_numpy()
    refused.add("ends before it starts", line[ends_first])
    usable &= ~ends_first
    timeless = usable & np.isnan(runtime)
    if timeless.any():
        unread = jobs.unread.by_line()
        reasons = ["; ".join(["no run time", *unread.get(n, [])]) for n in line[timeless].tolist()]
        refused.add("no run time", line[timeless], reasons)
    refused.add(INSTANT, line[usable & (runtime == 0)])
    wrong = usable & ((runtime < 0) | (runtime > MAX_SECONDS))
    reasons = [
        implausible("runtime_s", value) or "" if value > 0 else f"run time is {value:g} s"
        for value in runtime[wrong]
    ]
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
    on_read: Callable[[int], object] | None = None,
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
    parts: list[dict[str, Any]] = []
    steps: list[pd.DataFrame] = []
    titles, records = table(source, delimiter, refused, on_read=on_read)
    columns = [title.lower() for title in titles]
    require(columns, needed, source if isinstance(source, Path) else "accounting", advice)
    while (block := list(islice(records, BLOCK_LINES))) or not parts:
        cells = SlurmCells(titles, block, unread)
        is_step = ["." in name for name in cells.ids]
        job_lines_only = list(compress(block, map(not_, is_step)))
        steps.append(_steps(SlurmCells(titles, list(compress(block, is_step)), of_steps)))
        parts.append(_jobs(SlurmCells(titles, job_lines_only, unread), details=details))
    frame = _joined(parts)
    lines, job_lines = _add_steps(frame, pd.concat(steps, ignore_index=True))
    job_line = dict(zip(lines.tolist(), job_lines.tolist(), strict=True))
    of_jobs = [(job_line[line], kind, reason) for line, kind, reason in of_steps]
    unread.extend(remark for remark in of_jobs if remark[0] >= 0)
    orphans = lines[job_lines < 0]
    if len(orphans):
        names = pd.concat([part["job_id"] for part in steps]).to_numpy()[job_lines < 0]
        reasons = [f"a step of job {name[:40]}, without a job line before it" for name in names]
        refused.add("a step without a job line before it", orphans, reasons)
    stated = {name for name, sources in _SOURCES.items() if {*columns} & {*sources}}
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
    limited = (peak > 0) & (limit > 0)
    near, far_below = limited & (peak >= NEAR_LIMIT * limit), limited & (peak < NEAR_LIMIT * limit)
    # A SIGKILL for another reason differs only in the memory used.
    killed = failed & (frame["signal"].to_numpy() == signal.SIGKILL) & ~far_below
    killed |= failed & np.isin(frame["exit_status"].to_numpy(), KILLED) & near
    noted = frame["memory_note"].to_numpy() & (failed | cancelled)
    # Slurm kills by its own samples, so a peak is on record then.
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
    for n, key in keys:
        if notes is not None and state[n] in ("FAILED", "CANCELLED"):
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
    most = dict.fromkeys(sizes, float(MAX_BYTES))
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
        if isinstance(arrays[0], pd.Categorical):
            columns[name] = pd.Series(pd.api.types.union_categoricals(arrays))
        else:
            columns[name] = np.concatenate(arrays)
    names = {text: _state_name(text) for text in columns["state_text"].cat.categories}
    states = columns["state_text"].astype(object).map(names)
    return pd.DataFrame(columns | {"state": pd.Categorical(states)})


def _state_name(text: str) -> str | None:
    """Return the full name of a state that may be cut off, or be followed by who caused it."""
    prefix = (text.split() or [""])[0].rstrip("+").upper()
    states = (name for name in (*OUTCOMES, *UNFINISHED) if name.startswith(prefix))
    return next(states, None) if prefix else None


def _jobs(cells: SlurmCells, *, details: bool) -> dict[str, Any]:
    """Return the columns of the job lines of a block."""
    allocated, requested = cells.tres("alloctres"), cells.tres("reqtres")
    tres = np.where(allocated[4] > 0, allocated, requested)
    tres_cpus, tres_memory, tres_nodes, gpus = tres[:4]
    requested_cpus = cells.read("reqcpus", integer)
    cpus = _first_above_0(
        cells.read("alloccpus", integer), cells.read("ncpus", integer),
        tres_cpus, requested_cpus,
    )  # fmt: skip
    one_node = np.where(np.isnan(tres_nodes), 1.0, tres_nodes)
    nodes = _first_above_0(
        cells.read("allocnodes", integer), cells.read("nnodes", integer),
        one_node,
    )  # fmt: skip
    needed = ~(tres_memory > 0) | _where(cells.raw("reqmem"), lambda text: text.startswith("0"))
    size, kind = cells.read("reqmem", requested_memory, width=2, where=needed)
    times = np.where(kind == 1, np.maximum(cpus, 1), np.where(kind == 2, np.maximum(nodes, 1), 1))
    memory_limit = _first_above_0(tres_memory, size * times)
    submit, start, end = (cells.read(name, moment) for name in ("submit", "start", "end"))
    runtime = cells.read("elapsedraw", finite)
    elapsed = cells.read("elapsed", slurm_seconds, where=np.isnan(runtime))
    runtime = np.where(np.isnan(runtime), elapsed, runtime)
    status, signal = cells.read("exitcode", exit_code, width=2)
    memory = cells.memory()
    notes = list(zip(*(cells.texts(name) for name in _NOTES), strict=True))
    note = np.array(["; ".join(filter(None, texts)) for texts in notes], dtype=object)
    of_slurm = np.array(["; ".join(texts[1:]) for texts in notes], dtype=object)
    texts = {name: cells.texts(name) for name in ("user", "account", "partition", "cluster")}
    texts |= {"name": cells.raw("jobname"), "state_text": cells.raw("state")}
    if details:
        texts |= {
            "submitted_at": np.where(np.isnan(submit), "", cells.texts("submit")),
            "started_at": np.where(np.isnan(start), "", cells.texts("start")),
            "node": cells.texts("nodelist"),
            "note": note,
            "job_number": cells.texts("jobidraw"),
            "work_dir": cells.texts("workdir"),
        }
    return {
        "job_id": cells.ids,
        "line": cells.lines,
        **{name: pd.Categorical(text) for name, text in texts.items()},
        "runtime_s": np.where(np.isnan(runtime), end - start, runtime),
        "cpu_s": cells.read("totalcpu", slurm_seconds),
        "cpus": cpus,
        "requested_cpus": requested_cpus,
        "gpus": np.nan_to_num(gpus),
        "nodes": nodes,
        "limit_s": cells.time_limit(),
        "mem_limit_bytes": np.where(memory_limit > 0, memory_limit, np.nan),
        "all_memory": size == 0,
        "submit_s": submit,
        "eligible_s": cells.read("eligible", moment),
        "start_s": start,
        "end_s": end,
        "exit_status": status,
        "signal": np.nan_to_num(signal),
        "memory_note": _where(of_slurm, MEMORY_NOTE.search),
        **memory,
        "out_of_memory": np.zeros(cells.n, dtype=bool),
        "killed_by_slurm": np.zeros(cells.n, dtype=bool),
        "interactive": _where(cells.texts("submitline"), _BY_HAND.search),
    }


def _steps(cells: SlurmCells) -> pd.DataFrame:
    """Return number of the job, memory and state of the steps of a block."""
    parts = [name.partition(".") for name in cells.ids]
    step, state = np.array([part[2] for part in parts], dtype=object), cells.raw("state")
    of_job = step != "extern"  # that step belongs to Slurm
    return pd.DataFrame(
        {
            "job_id": np.array([part[0] for part in parts], dtype=object),
            "line": cells.lines,
            **cells.memory(),
            "out_of_memory": of_job & _where(state, lambda text: text.startswith("OUT_OF_ME")),
            "killed_by_slurm": of_job & (state == "CANCELLED by 0"),
            "interactive": step == "interactive",
        }
    )


def _where(texts: NDArray[np.object_], test: Callable[[str], object]) -> NDArray[np.bool_]:
    return np.array([bool(test(text)) for text in texts], dtype=bool)


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


def _first_above_0(*columns: Floats) -> Floats:
    """Return for each job the first value that is neither unknown nor 0; else 0."""
    first = np.zeros(len(columns[0]))
    for values in reversed(columns):
        first = np.where(np.nan_to_num(values) != 0, values, first)
    return first
