"""What became of the jobs of Slurm's accounting, as `voxcast.history.imports.slurm_job` says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.audit.jobs import COLUMNS, MAX_CPU_SECONDS, AuditedJobs
from voxcast.errors import TableError
from voxcast.history.imports.file_records import MAX_BYTES, MAX_SECONDS
from voxcast.history.imports.slurm_job import (
    MAYBE_NEVER_RUN,
    NEAR_LIMIT,
    OUTCOMES,
    ROOT,
    SIGKILL,
    SUMMER_TIME_S,
    UNFINISHED,
    slurm_state,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.runs.delimited import Refusals

# What each column of the audit is made of.
SOURCES = {
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


def with_outcomes(
    frame: pd.DataFrame,
    columns: set[str],
    refused: Refusals,
    unread: Counter[str],
    file: str,
) -> AuditedJobs:
    """Return the jobs that have run, and an account of the others.

    Parameters
    ----------
    frame : DataFrame
        All job lines, with their steps.
    columns : set of str
        Of the file, in lower case.
    refused : Refusals
        Lines that are no record; jobs that contradict themselves are added.
    """
    states = _states(frame["state_text"])
    outcomes = states.map({**OUTCOMES, **dict.fromkeys(UNFINISHED, "")}).to_numpy(dtype=object)
    runtime = frame["runtime_s"].to_numpy()
    lines = frame["line"].to_numpy()
    usable = states.notna().to_numpy(copy=True)
    refused.add("not a state of a Slurm job", lines[~usable])
    unfinished = usable & states.isin(UNFINISHED).to_numpy()
    usable &= ~unfinished
    at_risk = pd.Series(outcomes).isin(MAYBE_NEVER_RUN).to_numpy()
    never = usable & at_risk & ((runtime == 0) | np.isnan(runtime))
    usable &= ~never
    backwards = usable & (frame["end_s"] < frame["start_s"] - SUMMER_TIME_S).to_numpy()
    refused.add("ends before it starts", lines[backwards])
    usable &= ~backwards
    timeless = usable & np.isnan(runtime)
    refused.add("no run time", lines[timeless])
    instant = usable & (runtime == 0)
    implausible = usable & ((runtime < 0) | (runtime > MAX_SECONDS))
    refused.add("run time is negative or more than ten years", lines[implausible])
    usable &= ~(timeless | instant | implausible)
    frame["state"] = states.astype("category")
    frame["outcome"] = pd.Categorical(_outcomes(frame, outcomes))
    jobs = AuditedJobs(_amounts(frame)[usable].reset_index(drop=True))
    jobs.not_ended = Counter(states[unfinished].tolist())
    jobs.never_started = Counter(outcomes[never].tolist())
    jobs.instant = int(instant.sum())
    jobs.columns = {c for c, sources in SOURCES.items() if columns & set(sources)}
    jobs.unread = +unread
    # Jobs that were refused here are counted with the other refusals.
    of_jobs = backwards | timeless | implausible | states.isna().to_numpy()
    jobs.records = len(frame) - int(of_jobs.sum())
    jobs.refuse(refused, file)
    return jobs


def _states(texts: pd.Series) -> pd.Series:
    """Return the full name of each state; missing where the text is none."""
    names: dict[str, str | None] = {}
    for text in texts.cat.categories:
        try:
            names[text] = slurm_state(text)
        except TableError:
            names[text] = None
    return pd.Series(texts.astype(object).map(names), dtype=object)


def _outcomes(frame: pd.DataFrame, by_state: NDArray[np.object_]) -> NDArray[np.object_]:
    """Return the outcome of each job; see `voxcast.history.imports.slurm_job`."""
    state = frame["state"].to_numpy(dtype=object)
    outcomes = by_state.copy()
    failed, cancelled = state == "FAILED", state == "CANCELLED"
    outcomes[frame["memory_note"].to_numpy() & (failed | cancelled)] = "out_of_memory"
    killed = failed & (frame["signal"].to_numpy() == SIGKILL) & (outcomes == "failed")
    peak, limit = frame["peak_bytes"].to_numpy(), frame["mem_limit_bytes"].to_numpy()
    limited = (peak > 0) & (np.nan_to_num(limit) > 0)
    far_below = limited & ~(peak >= NEAR_LIMIT * np.nan_to_num(limit))
    outcomes[killed & ~far_below] = "out_of_memory"
    by_slurm = frame["killed_by_slurm"].to_numpy()
    by_root = (frame["user"] == ROOT).to_numpy() & (far_below | ~(peak > 0))
    killed_step = frame["out_of_memory"].to_numpy() | (by_slurm & ~by_root)
    outcomes[killed_step & (failed | (state == "COMPLETED"))] = "out_of_memory"
    return outcomes


def _amounts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with plausible amounts, and the columns of the audit only."""
    peak = frame["peak_bytes"].where(frame["peak_bytes"] > 0)
    frame["peak_at_least_bytes"] = peak.where(frame["of_one_task"])
    frame["peak_rss_bytes"] = peak.where(~frame["of_one_task"])
    for name in ("peak_rss_bytes", "peak_at_least_bytes", "mem_limit_bytes"):
        frame[name] = frame[name].where((frame[name] > 0) & (frame[name] <= MAX_BYTES))
    frame["cpu_s"] = frame["cpu_s"].where(
        (frame["cpu_s"] > 0) & (frame["cpu_s"] <= MAX_CPU_SECONDS)
    )
    frame["cpus"] = frame["cpus"].clip(lower=0)
    frame["limit_s"] = frame["limit_s"].where(frame["limit_s"] <= MAX_SECONDS)
    return frame[list(COLUMNS)]
