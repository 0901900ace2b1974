"""Accounting of any scheduler as jobs of an audit; the kind is that of the first lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.audit import sacct_table
from voxcast.audit.jobs import AMOUNTS, COLUMNS, FLAGS, TEXTS, AuditedJobs, joined
from voxcast.runs.delimited import EXAMPLES
from voxcast.errors import ConfigError, TableError, VoxcastError
from voxcast.history.imports import columns, lsf, pbs, sacct_json, sge
from voxcast.runs.delimited import opening
from voxcast.history.imports.sacct import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from voxcast.history.imports.column_map import ColumnMap
    from voxcast.history.imports.file_records import FileRecords

SACCT, SACCT_JSON, PBS, SGE, LSF, CSV = "sacct", "sacct-json", "pbs", "sge", "lsf", "csv"
READERS: dict[str, Callable[[Path, str | None], FileRecords]] = {
    SACCT_JSON: sacct_json.read, PBS: pbs.read, SGE: sge.read, LSF: lsf.read,
}  # fmt: skip
KINDS = (SACCT, *READERS, CSV)
_OPENINGS = (
    (SACCT_JSON, re.compile(rb"\s*\{")),
    (PBS, re.compile(rb"\s*\d{2}/\d{2}/\d{4} \d{2}:\d{2}:\d{2};[A-Za-z];")),
    (LSF, re.compile(rb'\s*(?:"[A-Z_]+" "\d|Job <|Accounting information about jobs)')),
    (SGE, re.compile(rb"\s*(?:#[^\n]*\n)*\s*(?:={20,}|qname\s|[^:|\n]*(?::[^:\n]*){30})")),
)  # fmt: skip


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


def kind_of(path: Path) -> str:
    """Return the kind of a file, by its first lines.

    Raises
    ------
    TableError
        If the file cannot be read.
    """
    start = opening(path)
    return next((kind for kind, pattern in _OPENINGS if pattern.match(start)), SACCT)


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
        One of `KINDS`; by default that of each file's first lines.
    column_map : ColumnMap, optional
        For tables of the kind ``csv``.
    on_read : callable, optional
        Called with numbers of bytes as they are read.

    Raises
    ------
    ConfigError
        If a column map is missing, or given for a kind that takes none.
    TableError
        If a file cannot be read as its kind, or no file has a job.
    """
    if column_map is not None and kind not in (None, CSV):
        raise ConfigError("takes no column map", kind, "leave out --map")
    if kind == CSV and column_map is None:
        raise ConfigError("needs a column map", kind, "give --map FILE")
    parts = []
    for path in files:
        file_kind = kind or (CSV if column_map is not None else kind_of(path))
        if file_kind == SACCT:
            parts.append(sacct_table.read(path, delimiter, on_read))
            continue
        if column_map is not None:
            records = columns.read(path, None, column_map)
        else:
            records = READERS[file_kind](path, None)
        parts.append(jobs_of(records))
        if on_read is not None:
            on_read(path.stat().st_size)
    jobs = joined(parts)
    if not len(jobs.frame):
        raise TableError("no job has run and ended", files[0], _reasons(jobs))
    return jobs


def _reasons(jobs: AuditedJobs) -> str:
    reasons = [f"{n} × {reason}" for reason, n in jobs.refused.most_common(3)]
    if jobs.not_ended or jobs.never_started:
        reasons.append(f"{jobs.not_ended.total() + jobs.never_started.total()} have not run")
    return f"of {jobs.records} records: {', '.join(reasons) or 'none is a job'}"


def jobs_of(records: FileRecords) -> AuditedJobs:
    """Return runs of an import as jobs of an audit."""
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
    for name in ("user", "account", "cluster", "state"):
        texts[name] = [str(label.get(name, "")) for label in labels]
    amounts = {
        name: [row.get(name) for row in records.rows]
        for name in AMOUNTS
        if name in ("runtime_s", "cpu_s", "cpus", "gpus", "limit_s", "mem_limit_bytes")
        or name == "peak_rss_bytes"
    }
    amounts["nodes"] = [_number(label.get("n_nodes")) or 1.0 for label in labels]
    amounts["start_s"] = [_seconds(row["started_at"]) for row in records.rows]
    amounts["submit_s"] = [_seconds(str(label.get("submitted_at", ""))) for label in labels]
    frame = pd.DataFrame(
        {
            "job_id": np.array([str(label.get("job_id", "")) for label in labels], dtype=object),
            "line": np.array(records.lines, dtype=np.int64),
            **{name: pd.Categorical(texts[name]) for name in TEXTS},
            **{
                name: np.array(amounts.get(name, [np.nan] * len(labels)), dtype=np.float64)
                for name in AMOUNTS
            },
            **{name: np.zeros(len(labels), dtype=bool) for name in FLAGS},
        }
    )[list(COLUMNS)]
    jobs = AuditedJobs(frame)
    jobs.columns = {name for name in AMOUNTS if frame[name].notna().any()}
    jobs.columns |= {name for name in TEXTS if (frame[name] != "").any()}
    for remark in records.bad:
        jobs.refused[_kind_of_reason(remark.reason)] += 1
        places = jobs.examples.setdefault(_kind_of_reason(remark.reason), [])
        if len(places) < EXAMPLES:
            places.append(f"{records.path.name}:{remark.line}")
    for remark in records.skipped:
        not_run = "never" in remark.reason
        (jobs.never_started if not_run else jobs.not_ended)[_last_words(remark.reason)] += 1
    jobs.unread = Counter(remark.reason.partition(":")[0] for remark in records.unread)
    jobs.records = records.read
    return jobs


def _kind_of_reason(reason: str) -> str:
    """Return a reason without what is particular to one record."""
    return re.sub(r"'[^']*'|\d+", "…", reason)


def _last_words(reason: str) -> str:
    return re.sub(r"^job \S+ (?:is )?", "", reason)


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _seconds(text: str) -> float:
    try:
        return float(moment(text)[1]) if text else np.nan
    except (ValueError, OverflowError, VoxcastError):
        return np.nan
