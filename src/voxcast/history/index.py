"""The rows of a folder of runs, kept beside it, so that a record is read once and not each time.

The index is a copy and never the truth: a record that it does not know by size and time is read,
and an index that is missing, cut short or of other columns is made again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from voxcast.files import canonical_json, sha256_of, write_text
from voxcast.history.run_table import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

# So few records are read as fast as found in an index, and small folders stay without one.
WORTH_WRITING = 50
_COLUMNS = sha256_of(DTYPES)[:16]

Stamp = tuple[int, int]  # size in bytes and time of a record


def index_path(folder: Path) -> Path:
    """Return where the index of ``folder`` lies: beside it, as the folder is a stage's output."""
    return folder.parent / f".{folder.name}.index.jsonl"


def stamps(folder: Path, record_file: str) -> dict[str, Stamp | None]:
    """Return size and time of the record of every run in ``folder`` by name; None for no record.

    Folders with a leading dot are unfinished and not listed.
    """
    found: dict[str, Stamp | None] = {}
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return found
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_dir():
            try:
                status = os.stat(os.path.join(entry.path, record_file))  # noqa: PTH116, PTH118
                found[entry.name] = (status.st_size, status.st_mtime_ns)
            except OSError:
                found[entry.name] = None
    return found


def read_index(folder: Path) -> dict[str, tuple[Stamp, dict[str, Any]]]:
    """Return stamp and row of every run in the index; nothing if it cannot be used."""
    known: dict[str, tuple[Stamp, dict[str, Any]]] = {}
    try:
        with index_path(folder).open(encoding="utf-8") as lines:
            if next(lines, "").strip() != _COLUMNS:
                return {}
            for line in lines:
                name, size, time_ns, values = json.loads(line)
                known[name] = ((size, time_ns), dict(zip(DTYPES, values, strict=True)))
    except (OSError, ValueError, TypeError):
        return {}
    return known


def write_index(folder: Path, rows: dict[str, tuple[Stamp, dict[str, Any]]]) -> None:
    """Write the index of ``folder`` anew, whole or not at all."""
    lines = [_COLUMNS]
    lines += [
        canonical_json([name, *stamp, [row[column] for column in DTYPES]])
        for name, (stamp, row) in rows.items()
    ]
    write_text(index_path(folder), "\n".join(lines) + "\n")
