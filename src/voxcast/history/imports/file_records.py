"""Records of one imported file: rows of the history, and records that could not be used."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError, VoxcastError
from voxcast.files import canonical_json, sha256_of
from voxcast.history.run_table import DTYPES, checked_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
    """

    identity: object
    values: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class FileRecords:
    """The records of one file; ``read`` is rows + skipped + bad.

    ``lines`` has the line of each row, ``companions`` the other files read with this one.
    """

    source: str
    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
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
            self.rows.append(row_of(self.source, make()))
            self.lines.append(line)
            return self.rows[-1]
        except NotARunError as note:
            self.skip(line, str(note))
        except VoxcastError as error:
            self.refuse(line, error.problem)
        return None

    def skip(self, line: int, reason: str) -> None:
        """List a valid record without a finished run."""
        self.skipped.append(Remark(str(self.path), line, reason))

    def refuse(self, line: int, reason: str) -> None:
        """List a record as bad."""
        self.bad.append(Remark(str(self.path), line, " ".join(reason.split())[:300]))


def row_of(source: str, run: ImportedRun) -> dict[str, Any]:
    """Return the checked row of one imported run.

    Raises
    ------
    TableError
        If a number is implausible.
    """
    values = dict(run.values)
    runtime = values.get("runtime_s")
    if runtime is None:
        raise TableError("no run time")
    if not math.isfinite(runtime) or runtime <= 0:
        raise TableError(f"run time is {runtime:g} s")
    if not values.get("app"):
        raise TableError("no application name")
    for name, value in values.items():
        # Invalid numbers make the row invalid; unknown ones (None) do not.
        if value is None or isinstance(value, (str, bool)):
            continue
        if not math.isfinite(value) or value < 0:
            if name != "exit_status":
                raise TableError(f"{name} is {value}")
        elif name.endswith("_bytes") and value > MAX_BYTES:
            raise TableError(f"{name} is {value:.3g}, out of range")
        elif name.endswith("_s") and value > MAX_SECONDS:
            raise TableError(f"{name} is {value:.3g}, more than ten years")
        elif DTYPES[name] in ("int64", "Int64") and value >= 2**63:
            raise TableError(f"{name} is {value:.3g}")
    labels = {k: v for k, v in run.labels.items() if v is not None and v != ""}
    values |= {
        "cell_key": sha256_of([source, run.identity]),
        "source": source,
        "labels_json": canonical_json(labels),
        "scale": values.get("scale") or "full_scale",
    }
    return checked_row(values)


def positive(value: float | None) -> float | None:
    """Return a measured amount, or None where zero means that it was not sampled.

    Examples
    --------
    >>> positive(2.0), positive(0.0), positive(None)
    (2.0, None, None)
    """
    return value if value else None


def parsed(name: str, text: str, parse: Callable[[str], float]) -> float:
    """Return ``parse(text)``, with the column's name in the error.

    Raises
    ------
    TableError
        If the text cannot be parsed.
    """
    try:
        return parse(text)
    except VoxcastError as error:
        raise TableError(f"{name}: {error.problem[:80]}") from error
    except ValueError as error:
        raise TableError(f"{name} is not a number: {text[:40]!r}") from error
