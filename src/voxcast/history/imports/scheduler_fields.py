"""Records of a scheduler's own format as runs, by the column map that comes with the package."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import VoxcastError
from voxcast.history.imports.column_map import load_map
from voxcast.history.imports.columns import imported_run
from voxcast.history.imports.file_records import NotARunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from voxcast.history.imports.column_map import ColumnMap
    from voxcast.history.imports.file_records import FileRecords, ImportedRun

MAPS = Path(__file__).parent / "maps"
NEAR_LIMIT = 0.9  # of a limit: accounting samples, and misses the last increase


@functools.cache
def ready_map(kind: str) -> ColumnMap:
    """Return the column map of a scheduler: ``pbs``, ``sge`` or ``lsf``."""
    return load_map(MAPS / f"{kind}.yaml")


def run_of(fields: Mapping[str, str], columns: ColumnMap, app: str | None) -> ImportedRun:
    """Return the run of a record; fields that it lacks are unknown.

    Raises
    ------
    TableError
        If it has no outcome.
    """
    needed = [source.column for source in columns.columns.values()]
    cells = dict.fromkeys((*needed, *columns.labels.values(), *columns.identity), "")
    cells |= {name: text for name, text in fields.items() if name in cells}
    identity: list[object] = [columns.study, *(cells[name] for name in columns.identity)]
    return imported_run(cells, identity, columns, app)


def record_run(
    records: FileRecords,
    line: int,
    fields_of: Callable[[], Mapping[str, str]],
    columns: ColumnMap,
    app: str | None,
) -> None:
    """Add the run of a record, or the reason why it is none."""

    def make() -> ImportedRun:
        return run_of(fields_of(), columns, app)

    records.record(line, make)


def utc(seconds: str) -> str:
    """Return a time of the accounting, in seconds since 1970, as text; empty for 0 and none."""
    try:
        moment = float(seconds)
        if moment <= 0:
            return ""
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def amount(text: str, parse: Callable[[str], float]) -> float:
    """Return a parsed amount, or 0 where there is none or it cannot be read."""
    try:
        return float(parse(text)) if text else 0.0
    except (VoxcastError, ValueError, OverflowError):
        return 0.0


def not_a_run(job: str, reason: str) -> NotARunError:
    """Return the reason why a record is no run."""
    return NotARunError(f"job {job} {reason}")
