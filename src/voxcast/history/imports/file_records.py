"""Records of one imported file: rows of the history, and records that could not be used."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError, VoxcastError
from voxcast.files import canonical_json, sha256_of
from voxcast.history.run_table import DTYPES, checked_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# Plausible limits of a node and of a scheduler; larger numbers have a wrong unit.
MAX_BYTES = 2**50
MAX_SECONDS = 10 * 365.25 * 86400


class NotARunError(Exception):
    """A valid record without a finished run, such as a waiting job."""


@dataclass(frozen=True)
class Remark:
    """Reason why a record was not imported; ``line`` is its index if the file has no lines."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class ImportedRun:
    """A run as described by its source.

    Attributes
    ----------
    identity : object
        Unique within the source, as JSON. Its hash is the key of the run, so that importing is
        idempotent: values that a second export would write differently must not be part of it.
    values : mapping
        Columns of the history.
    labels : mapping
        Other information; entries that are empty or None are left out.
    name : str
        Name of the job, which may hold application and subject.
    unread : sequence of str
        What is wrong with the fields that could not be read, and are unknown.
    """

    identity: object
    values: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    unread: Sequence[str] = ()


@dataclass
class FileRecords:
    """The records of one file; ``read`` is rows + skipped + bad.

    ``lines`` and ``names`` have the line and the job's name of each row, ``unread`` the fields of
    rows that could not be read, ``companions`` the other files read with this one.
    """

    source: str
    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    unread: list[Remark] = field(default_factory=list)
    skipped: list[Remark] = field(default_factory=list)
    bad: list[Remark] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)
    companions: list[Path] = field(default_factory=list)

    @property
    def read(self) -> int:
        """The number of records in the file."""
        return len(self.rows) + len(self.skipped) + len(self.bad)

    def record(self, line: int, make: Callable[[], ImportedRun]) -> dict[str, Any] | None:
        """Add the run that ``make`` returns, or the reason why it cannot be used."""
        try:
            run = make()
            row, implausible = row_of(self.source, run)
            self.rows.append(row)
            self.lines.append(line)
            self.names.append(run.name)
            for reason in (*run.unread, *implausible):
                self.miss(line, reason)
            return row
        except NotARunError as note:
            self.skip(line, str(note))
        except VoxcastError as error:
            self.refuse(line, error.problem)
        return None

    def miss(self, line: int, reason: str) -> None:
        """List a field that could not be read; its record is kept."""
        self.unread.append(Remark(str(self.path), line, _short(reason)))

    def skip(self, line: int, reason: str) -> None:
        """List a valid record without a finished run."""
        self.skipped.append(Remark(str(self.path), line, reason))

    def refuse(self, line: int, reason: str) -> None:
        """List a record as bad."""
        self.bad.append(Remark(str(self.path), line, _short(reason)))


def row_of(source: str, run: ImportedRun) -> tuple[dict[str, Any], list[str]]:
    """Return the checked row of one imported run, and its implausible fields, which are unknown.

    Raises
    ------
    TableError
        If there is no plausible run time, or no application.
    """
    values = {name: value for name, value in run.values.items() if value is not None}
    runtime = values.get("runtime_s")
    if runtime is None:
        raise TableError("; ".join(["no run time", *run.unread]))
    if not math.isfinite(runtime) or runtime <= 0:
        raise TableError(f"run time is {runtime:g} s")
    if not values.get("app"):
        raise TableError("no application name")
    implausible = {
        name: reason
        for name, value in values.items()
        if (reason := _implausible(name, value)) is not None
    }
    if "runtime_s" in implausible:
        raise TableError(implausible["runtime_s"])
    values = {name: value for name, value in values.items() if name not in implausible}
    labels = {k: v for k, v in run.labels.items() if v is not None and v != ""}
    values |= {
        "cell_key": sha256_of([source, run.identity]),
        "source": source,
        "labels_json": canonical_json(labels),
        "scale": values.get("scale") or "full_scale",
    }
    return checked_row(values), list(implausible.values())


def _implausible(name: str, value: Any) -> str | None:
    if isinstance(value, (str, bool)):
        return None
    if not math.isfinite(value) or (value < 0 and name != "exit_status"):
        return f"{name}: is {value}"
    if name.endswith("_bytes") and value > MAX_BYTES:
        return f"{name}: {value:.3g} is out of range"
    if name.endswith("_s") and value > MAX_SECONDS:
        return f"{name}: {value:.3g} is more than ten years"
    if DTYPES[name] in ("int64", "Int64") and abs(value) >= 2**63:
        return f"{name}: {value:.3g} is out of range"
    return None


def _short(reason: str) -> str:
    return " ".join(reason.split())[:300]
