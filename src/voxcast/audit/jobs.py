"""The jobs of an audit: a row for each attempt of a job, from the accounting of any scheduler."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.errors import ConfigError, TableError
from voxcast.runs import slurm
from voxcast.runs.slurm import AMOUNTS, COLUMNS, FLAGS, INSTANT, TEXTS
from voxcast.runs.slurm_cells import ONE_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from voxcast.runs.csv_table import ColumnMap
    from voxcast.runs.imported import Records

SACCT, CSV = KINDS = ("sacct", "csv")
MINUTE_S = 60.0
EXAMPLES = 5  # lines named for each reason


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
    shortest_s : float
        Shorter jobs are left out of ratios, see `voxcast.audit.report.prepare`.
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
    shortest_s: float = MINUTE_S


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
    kind: str | None = None,
    column_map: ColumnMap | None = None,
    delimiter: str = "|",
    on_read: Callable[[int], None] | None = None,
) -> AuditedJobs:
    """Return the jobs of all files, each once.

    Parameters
    ----------
    kind : str, optional
        One of `KINDS`; by default CSV with a column map, else sacct.
    column_map : ColumnMap, optional
        For tables of the kind ``csv``.
    on_read : callable, optional
        Called with numbers of bytes as they are read.

    Raises
    ------
    ConfigError
        If a column map is missing, or given for sacct.
    TableError
        If a file cannot be read as its kind, or no file has a job.
    """
    if column_map is not None and kind == SACCT:
        raise ConfigError("takes no column map", kind, "leave out --map")
    if kind == CSV and column_map is None:
        raise ConfigError("needs a column map", kind, "give --map FILE")
    parts = []
    for path in files:
        if column_map is None:
            parts.append(_of_slurm(slurm.read(path, delimiter, on_read), path.name))
            continue
        from voxcast.runs import csv_table

        parts.append(_of_table(csv_table.read(path, None, column_map)))
        if on_read is not None:
            on_read(path.stat().st_size)
    jobs = joined(parts)
    if not len(jobs.frame):
        reasons = [f"{n} × {reason}" for reason, n in jobs.refused.most_common(3)]
        if not_run := jobs.not_ended.total() + jobs.never_started.total():
            reasons.append(f"{not_run} have not run")
        then = f"of {jobs.records} records: {', '.join(reasons) or 'none is a job'}"
        raise TableError("no job has run and ended", files[0], then)
    return jobs


def joined(parts: list[AuditedJobs]) -> AuditedJobs:
    """Return the jobs of several files, each once.

    A job is the same if its number, cluster, start, state and run time are.
    """
    frame = parts[0].frame if len(parts) == 1 else _concatenated([part.frame for part in parts])
    jobs = AuditedJobs(frame)
    for part in parts:
        jobs.columns |= part.columns
        for name in ("not_ended", "never_started", "refused", "unread", "instant", "records"):
            setattr(jobs, name, getattr(jobs, name) + getattr(part, name))
        for reason, places in part.examples.items():
            jobs.examples.setdefault(reason, []).extend(places)
    identity = pd.DataFrame(
        {
            "job": pd.factorize(frame["job_id"])[0],
            "cluster": frame["cluster"].cat.codes,
            "state": frame["state"].cat.codes,
            "start": frame["start_s"],
            "runtime": frame["runtime_s"],
        }
    )
    # Without its number a job cannot be distinguished from another.
    repeated = identity.duplicated().to_numpy() & (frame["job_id"] != "").to_numpy()
    jobs.duplicates = int(repeated.sum())
    if jobs.duplicates:
        jobs.frame = frame[~repeated].reset_index(drop=True)
    return jobs


def _concatenated(frames: list[pd.DataFrame]) -> pd.DataFrame:
    columns = {}
    for name in COLUMNS:
        series = [frame[name] for frame in frames]
        if name in TEXTS:
            columns[name] = pd.Series(pd.api.types.union_categoricals(series))
        else:
            columns[name] = pd.concat(series, ignore_index=True)
    return pd.DataFrame(columns)


def _of_slurm(jobs: slurm.Jobs, file: str) -> AuditedJobs:
    refused, unread = jobs.refused.counts(), jobs.unread.counts()
    instant = refused.pop(INSTANT, 0)
    unread.pop(ONE_TASK, None)
    started = jobs.not_run["outcome"] == ""
    examples = jobs.refused.examples(EXAMPLES)
    examples.pop(INSTANT, None)
    return AuditedJobs(
        jobs.frame, jobs.columns, Counter(jobs.not_run["state"][started].tolist()),
        Counter(jobs.not_run["outcome"][~started].tolist()), instant, refused,
        {reason: [f"{file}:{line}" for line in lines] for reason, lines in examples.items()},
        unread, 0, len(jobs.frame) + len(jobs.not_run) + instant + refused.total(),
    )  # fmt: skip


def _of_table(records: Records) -> AuditedJobs:
    """Return the runs of a table as jobs."""
    labels = [json.loads(row["labels_json"]) for row in records.rows]
    pairs = list(zip(records.rows, labels, strict=True))
    texts = {
        "name": [label.get("job_name") or row["app"] for row, label in pairs],
        "partition": [
            label.get("partition") or label.get("queue") or row["node_type"]
            for row, label in pairs
        ],
        "outcome": [row["outcome"] for row in records.rows],
    }  # fmt: skip
    amounts = {name: [row.get(name) for row in records.rows] for name in AMOUNTS}
    amounts["nodes"] = [_number(label.get("n_nodes")) or 1.0 for label in labels]
    amounts["start_s"] = [_seconds(row["started_at"]) for row in records.rows]
    amounts["submit_s"] = [_seconds(str(label.get("submitted_at", ""))) for label in labels]
    columns: dict[str, Any] = {
        "job_id": np.array([str(label.get("job_id", "")) for label in labels], dtype=object),
        "line": np.array(records.lines, dtype=np.int64),
    }
    for name in TEXTS:
        stated = texts.get(name) or [str(label.get(name, "")) for label in labels]
        columns[name] = pd.Categorical(stated)
    columns |= {name: np.array(amounts[name], dtype=np.float64) for name in AMOUNTS}
    columns |= {name: np.zeros(len(labels), dtype=bool) for name in FLAGS}
    jobs = AuditedJobs(pd.DataFrame(columns))
    jobs.columns = {name for name in AMOUNTS if jobs.frame[name].notna().any()}
    jobs.columns |= {name for name in TEXTS if (jobs.frame[name] != "").any()}
    for line, text in records.refused.listed():
        reason = re.sub(r"'[^']*'|\d+", "…", text)  # without what is particular to one
        jobs.refused[reason] += 1
        places = jobs.examples.setdefault(reason, [])
        if len(places) < EXAMPLES:
            places.append(f"{records.path.name}:{line}")
    jobs.unread = Counter(reason.partition(":")[0] for _, reason in records.unread.listed())
    jobs.records = records.read
    return jobs


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return np.nan
