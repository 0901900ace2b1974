"""Records of a source, such as a trace or a table, as rows of the history."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError, VoxcastError
from voxcast.files import canonical_json, sha256_of
from voxcast.runs.delimited import Remarks
from voxcast.runs.slurm import implausible
from voxcast.runs.table import DTYPES, checked_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class NotARunError(Exception):
    """A valid record without a finished run, such as a waiting job."""


@dataclass(frozen=True)
class ImportedRun:
    """A run as its source describes it.

    Attributes
    ----------
    identity : object
        Unique within the source, as JSON. Its hash is the key of the run, so that an import can be
        repeated: values that a second export would write differently must not be part of it.
    values : mapping
        Columns of the history.
    labels : mapping
        Other information; empty entries and None are left out.
    name : str
        Name of the job, which may contain application and subject.
    unread : sequence of str
        Problems with fields that could not be read, and are unknown.
    """

    identity: object
    values: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    unread: Sequence[str] = ()


@dataclass
class Records:
    """The records of one file: rows of the history, with line and name of each, and the rest.

    Attributes
    ----------
    unread : Remarks
        Fields of rows that could not be read.
    skipped : Remarks
        Valid records without a finished run.
    refused : Remarks
        Records that cannot be used.
    companions : list of Path
        Other files read with this one.
    """

    source: str
    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    unread: Remarks = field(default_factory=Remarks)
    skipped: Remarks = field(default_factory=Remarks)
    refused: Remarks = field(default_factory=Remarks)
    phases: list[dict[str, Any]] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)
    companions: list[Path] = field(default_factory=list)

    @property
    def read(self) -> int:
        """The number of records in the file."""
        return len(self.rows) + self.skipped.counts().total() + self.refused.counts().total()

    def record(self, line: int, make: Callable[[], ImportedRun]) -> dict[str, Any] | None:
        """Add the run that ``make`` returns, or the reason why it cannot be used."""
        try:
            run = make()
            row, wrong = row_of(self.source, run)
        except NotARunError as note:
            self.skipped.add(str(note), [line])
        except VoxcastError as error:
            self.refused.add(error.problem, [line])
        else:
            self.rows.append(row)
            self.lines.append(line)
            self.names.append(run.name)
            for reason in (*run.unread, *wrong):
                self.unread.add(reason, [line])
            return row
        return None


def row_of(source: str, run: ImportedRun) -> tuple[dict[str, Any], list[str]]:
    """Return the checked row of a run, and the problems of its implausible fields.

    Raises
    ------
    TableError
        If run time or application is missing, or the time is implausible.
    """
    values = {name: value for name, value in run.values.items() if value is not None}
    runtime = values.get("runtime_s")
    if runtime is None:
        raise TableError("; ".join(["no run time", *run.unread]))
    if not math.isfinite(runtime) or runtime <= 0:
        raise TableError(f"run time is {runtime:g} s")
    if not values.get("app"):
        raise TableError("no application name")
    wrong = {
        name: reason
        for name, value in values.items()
        if not isinstance(value, (str, bool)) and (reason := _implausible(name, value))
    }
    if "runtime_s" in wrong:
        raise TableError(wrong["runtime_s"])
    row = {name: value for name, value in values.items() if name not in wrong}
    row |= {
        "cell_key": sha256_of([source, run.identity]),
        "source": source,
        "labels_json": canonical_json(
            {k: v for k, v in run.labels.items() if v not in (None, "")}
        ),
        "scale": row.get("scale") or "full_scale",
    }
    return checked_row(row), list(wrong.values())


def _implausible(name: str, value: float) -> str | None:
    reason = implausible(name, value)
    if reason is None and DTYPES[name] in ("int64", "Int64") and abs(value) >= 2**63:
        reason = f"{name}: {value:.3g} is out of range"
    return reason


def positive(value: float | None) -> float | None:
    """Return a measured amount, or None where zero means that it was not sampled.

    Examples
    --------
    >>> positive(2.0), positive(0.0), positive(None)
    (2.0, None, None)
    """
    return value if value else None
