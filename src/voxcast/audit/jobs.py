"""The jobs of an audit: one row an attempt of a job, wherever its accounting was kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.runs.delimited import Refusals

# Texts are categories. Amounts that are not stated are NaN.
TEXTS = ("name", "user", "account", "partition", "cluster", "state", "outcome")
AMOUNTS = (
    "runtime_s", "cpu_s", "cpus", "requested_cpus", "gpus", "nodes", "tasks",
    "limit_s",  # requested time
    "mem_limit_bytes",  # requested memory, of the whole job
    "peak_rss_bytes",  # of the whole job
    "peak_at_least_bytes",  # of its largest task, where that of the job is not known
    "submit_s", "start_s", "end_s",  # by the cluster's own clock
)  # fmt: skip
FLAGS = ("interactive", "all_memory")  # asked for all memory of its nodes (ReqMem=0)
KEYS = ("job_id", "line")
COLUMNS = (*KEYS, *TEXTS, *AMOUNTS, *FLAGS)
MAX_CPU_SECONDS = 1e15  # 30 million CPU-years
MINUTE_S = 60.0


@dataclass
class AuditedJobs:
    """Jobs that have run and ended, and an account of all other records.

    Attributes
    ----------
    frame : DataFrame
        With `COLUMNS`; `voxcast.audit.report.prepare` adds ``app`` and ``long``.
    columns : set of str
        Those of `COLUMNS` that the source has.
    not_ended : Counter of str
        Jobs that had not ended, by state.
    never_started : Counter of str
        Jobs that ended before they started, by outcome.
    instant : int
        Jobs whose run time is 0 s.
    refused : Counter of str
        Records that cannot be used, by reason.
    examples : dict of str to list of str
        ``FILE:LINE`` of the first of them.
    unread : Counter of str
        Fields that could not be read, by column; their jobs are kept.
    duplicates : int
        Records that occur twice.
    records : int
        All records: jobs + not ended + never started + instant + refused + duplicates.
    notes : list of str
        What the source does not tell.
    shortest_s : float
        Jobs that ran for less are left out of ratios, see `voxcast.audit.report.prepare`.
    """

    frame: pd.DataFrame
    columns: set[str] = field(default_factory=set)
    not_ended: Counter[str] = field(default_factory=Counter)
    never_started: Counter[str] = field(default_factory=Counter)
    instant: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    records: int = 0
    notes: list[str] = field(default_factory=list)
    shortest_s: float = MINUTE_S

    def refuse(self, refusals: Refusals, file: str) -> None:
        """Add lines that are no record."""
        self.refused += refusals.counts
        self.records += refusals.counts.total()
        for reason, lines in refusals.examples.items():
            self.examples.setdefault(reason, []).extend(f"{file}:{line}" for line in lines)


def joined(parts: list[AuditedJobs]) -> AuditedJobs:
    """Return the jobs of several files, each once.

    A job is the same if its number, cluster, start, state and run time are.
    """
    frames = [part.frame for part in parts]
    frame = frames[0] if len(frames) == 1 else _concatenated(frames)
    jobs = AuditedJobs(frame)
    for part in parts:
        jobs.columns |= part.columns
        for name in ("not_ended", "never_started", "refused", "unread"):
            setattr(jobs, name, getattr(jobs, name) + getattr(part, name))
        jobs.instant += part.instant
        jobs.records += part.records
        for reason, places in part.examples.items():
            jobs.examples.setdefault(reason, []).extend(places)
        jobs.notes += [note for note in part.notes if note not in jobs.notes]
    repeated = _repeated(frame)
    jobs.duplicates = int(repeated.sum())
    if jobs.duplicates:
        jobs.frame = frame[~repeated].reset_index(drop=True)
    return jobs


def _concatenated(frames: list[pd.DataFrame]) -> pd.DataFrame:
    columns = {}
    for name in COLUMNS:
        series = [frame[name] for frame in frames]
        if name in TEXTS:
            codes = pd.api.types.union_categoricals(series)
            columns[name] = pd.Series(codes)
        else:
            columns[name] = pd.concat(series, ignore_index=True)
    return pd.DataFrame(columns)


def _repeated(frame: pd.DataFrame) -> NDArray[np.bool_]:
    identity = pd.DataFrame(
        {
            "job": pd.factorize(frame["job_id"])[0],
            "cluster": frame["cluster"].cat.codes,
            "state": frame["state"].cat.codes,
            "start": frame["start_s"],
            "runtime": frame["runtime_s"],
        }
    )
    repeated: NDArray[np.bool_] = identity.duplicated().to_numpy()
    # Without its number a job cannot be told from another.
    return repeated & (frame["job_id"] != "").to_numpy()
