"""The jobs of an audit: a row for each attempt of a job, from the accounting of any scheduler."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from voxcast.errors import TableError
from voxcast.runs import csv_table, slurm
from voxcast.runs.slurm import AMOUNTS, COLUMNS, FLAGS, INSTANT, ONE_TASK, TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from voxcast.runs.csv_table import ColumnMap
    from voxcast.runs.imported import Records

MINUTE_S = 60.0
EXAMPLES = 5  # lines named for each reason
# A job is the same in two files if these are.
IDENTITY = ("job_id", "cluster", "state", "start_s", "runtime_s")
# Columns of jobs that a table has as labels of its runs.
_LABELS = ("job_id", "name", "user", "account", "partition", "cluster", "state", "nodes",
           "submitted_at")  # fmt: skip


@dataclass
class AuditedJobs:
    """Jobs that have run and ended, and an account of all other records.

    Attributes
    ----------
    frame : DataFrame
        With the columns of `voxcast.runs.slurm.COLUMNS`; `voxcast.audit.report.prepare` adds
        ``app`` and ``long``.
    columns : set of str
        Columns of the frame which the source states.
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


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and those in folders, by name; hidden ones are left out.

    Raises
    ------
    TableError
        If a path is missing, or a folder has no file.
    """
    files = []
    for path in paths:
        if not path.exists():
            raise TableError("no such file or folder", path)
        if path.is_dir():
            inside = sorted(f for f in path.iterdir() if f.is_file() and f.name[0] != ".")
            if not inside:
                raise TableError("has no file", path, "name the files, or another folder")
            files += inside
        else:
            files.append(path)
    return files


def read_jobs(
    files: Sequence[Path],
    column_map: ColumnMap | None = None,
    delimiter: str = "|",
    on_read: Callable[[int], object] | None = None,
) -> AuditedJobs:
    """Return the jobs of all files, each once.

    Parameters
    ----------
    column_map : ColumnMap, optional
        Of CSV tables; by default the files are of sacct.
    on_read : callable, optional
        Called with numbers of bytes as they are read.

    Raises
    ------
    TableError
        If a file cannot be read as its kind, or no file has a job.
    """
    jobs = AuditedJobs(pd.DataFrame())
    if column_map is None:
        read = ((path.name, slurm.read(path, delimiter, on_read)) for path in files)
        frames = [_of_slurm(records, name, jobs) for name, records in read]
    else:
        frames = [_of_table(csv_table.read(path, None, column_map), jobs) for path in files]
    jobs.frame = frames[0]
    if len(frames) > 1:
        jobs.frame = pd.concat(frames, ignore_index=True).astype(dict.fromkeys(TEXTS, "category"))
    # Without its number a job cannot be distinguished from another.
    repeated = jobs.frame.duplicated(list(IDENTITY)) & (jobs.frame["job_id"] != "")
    jobs.duplicates = int(repeated.sum())
    jobs.frame = jobs.frame[~repeated].reset_index(drop=True)
    if not len(jobs.frame):
        reasons = [f"{n} × {reason}" for reason, n in jobs.refused.most_common(3)]
        if not_run := jobs.not_ended.total() + jobs.never_started.total():
            reasons.append(f"{not_run} have not run")
        then = f"of {jobs.records} records: {', '.join(reasons) or 'none is a job'}"
        raise TableError("no job has run and ended", files[0], then)
    return jobs


def _of_slurm(read: slurm.Jobs, file: str, jobs: AuditedJobs) -> pd.DataFrame:
    """Return the jobs of a file of sacct, and add the account of all its records."""
    refused, unread = read.refused.counts(), read.unread.counts()
    jobs.instant += refused.pop(INSTANT, 0)
    unread.pop(ONE_TASK, None)
    started = read.not_run["outcome"] == ""
    jobs.columns |= read.columns
    jobs.not_ended.update(read.not_run["state"][started])
    jobs.never_started.update(read.not_run["outcome"][~started])
    jobs.refused.update(refused)
    jobs.unread.update(unread)
    jobs.records += len(read.frame) + len(read.not_run) + read.refused.counts().total()
    for reason, lines in read.refused.examples(EXAMPLES).items():
        if reason != INSTANT:
            jobs.examples.setdefault(reason, []).extend(f"{file}:{line}" for line in lines)
    return read.frame


def _of_table(records: Records, jobs: AuditedJobs) -> pd.DataFrame:
    """Return the runs of a table as jobs, and add the account of all its records."""
    rows = pd.DataFrame(records.rows)
    labels = pd.DataFrame([json.loads(row["labels_json"]) for row in records.rows], rows.index)
    labels = labels.rename(columns={"job_name": "name", "n_nodes": "nodes"})
    labels = labels.reindex(columns=[*_LABELS, "queue"]).astype(object).replace("", None)
    labels["partition"] = labels["partition"].fillna(labels["queue"]).fillna(rows["node_type"])
    labels["name"] = labels["name"].fillna(rows["app"])
    frame = rows.assign(**labels, line=records.lines).reindex(columns=[*COLUMNS, "started_at"])
    frame["nodes"] = pd.to_numeric(frame["nodes"], errors="coerce").fillna(1.0)
    for name, times in (("start_s", rows["started_at"]), ("submit_s", labels["submitted_at"])):
        frame[name] = _seconds(times)
    texts = ["job_id", *TEXTS]
    frame = frame[list(COLUMNS)].astype(dict.fromkeys(AMOUNTS, float))
    frame[texts] = frame[texts].astype(object).fillna("").astype(str)
    frame = frame.astype(dict.fromkeys(TEXTS, "category")).assign(**dict.fromkeys(FLAGS, False))
    jobs.columns |= {name for name in AMOUNTS if frame[name].notna().any()}
    jobs.columns |= {name for name in TEXTS if (frame[name] != "").any()}
    for line, text in records.refused.listed():
        reason = re.sub(r"'[^']*'|\d+", "…", text)  # without what is particular to one
        jobs.refused[reason] += 1
        places = jobs.examples.setdefault(reason, [])
        if len(places) < EXAMPLES:
            places.append(f"{records.path.name}:{line}")
    jobs.unread.update(reason.partition(":")[0] for _, reason in records.unread.listed())
    jobs.records += records.read
    return frame


def _seconds(times: pd.Series) -> pd.Series:
    """Return times, by the cluster's own clock, as seconds; NaN where they cannot be read."""
    local = times.fillna("").astype(str).str[:19]  # without a zone
    read = pd.to_datetime(local, errors="coerce", format="ISO8601")
    return (read - pd.Timestamp(0)).dt.total_seconds()
