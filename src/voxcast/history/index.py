"""An index of the rows of a folder of runs, so that each record is read only once.

The index is a cache: a record whose size or time differs from the index is read, and an index that
is missing, truncated or has other columns is rewritten.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from voxcast.files import canonical_json, sha256_of, write_text
from voxcast.history.run_table import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

# For fewer records an index saves no time.
MIN_RECORDS = 50
_COLUMNS = sha256_of(DTYPES)[:16]

Stamp = tuple[int, int]  # size in bytes and time of a record


def index_path(folder: Path) -> Path:
    """Return the path of the index; it is outside ``folder``, which is the output of a stage."""
    return folder.parent / f".{folder.name}.index.jsonl"


def stamps(folder: Path, record_file: str) -> dict[str, Stamp | None]:
    """Return size and time of the record of every run in ``folder`` by name; None without record.

    Folders with a leading dot are unfinished and not listed.
    """
    stamp_by_name: dict[str, Stamp | None] = {}
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return stamp_by_name
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_dir():
            try:
                status = os.stat(os.path.join(entry.path, record_file))  # noqa: PTH116, PTH118
                stamp_by_name[entry.name] = (status.st_size, status.st_mtime_ns)
            except OSError:
                stamp_by_name[entry.name] = None
    return stamp_by_name


def read_index(folder: Path) -> dict[str, tuple[Stamp, dict[str, Any]]]:
    """Return stamp and row of every run in the index; empty if the index cannot be used."""
    indexed: dict[str, tuple[Stamp, dict[str, Any]]] = {}
    try:
        with index_path(folder).open(encoding="utf-8") as lines:
            if next(lines, "").strip() != _COLUMNS:
                return {}
            for line in lines:
                name, size, time_ns, values = json.loads(line)
                indexed[name] = ((size, time_ns), dict(zip(DTYPES, values, strict=True)))
    except (OSError, ValueError, TypeError):
        return {}
    return indexed


def write_index(folder: Path, rows: dict[str, tuple[Stamp, dict[str, Any]]]) -> None:
    """Write the index of ``folder`` atomically."""
    lines = [_COLUMNS]
    lines += [
        canonical_json([name, *stamp, [row[column] for column in DTYPES]])
        for name, (stamp, row) in rows.items()
    ]
    write_text(index_path(folder), "\n".join(lines) + "\n")
