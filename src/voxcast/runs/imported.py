"""Records of a source, such as a trace or a table, as rows of the history."""

from __future__ import annotations

import math
import multiprocessing
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, TableError, VoxcastError
from voxcast.files import canonical_json, sha256_of
from voxcast.runs.delimited import Remarks
from voxcast.runs.slurm import implausible
from voxcast.runs.table import DTYPES, checked_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

LONGEST_SEARCH_S = 10.0  # for the names of a file, which take milliseconds


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
        Columns of the history; None and NaN are unknown.
    labels : mapping
        Other information; empty entries and None are left out.
    name, folder : str
        Name and working directory of the job, which may contain application and subject.
    unread : sequence of str
        Problems with fields that could not be read, and are unknown.
    """

    identity: object
    values: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    unread: Sequence[str] = ()
    folder: str = ""


@dataclass
class Records:
    """The records of one file: rows of the history, with line and names of each, and the rest.

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
    names: list[tuple[str, str]] = field(default_factory=list)  # of the job, its folder
    unread: Remarks = field(default_factory=Remarks)
    skipped: Remarks = field(default_factory=Remarks)
    refused: Remarks = field(default_factory=Remarks)
    phases: pd.DataFrame | None = None
    traces: pd.DataFrame | None = None
    companions: list[Path] = field(default_factory=list)

    @property
    def read(self) -> int:
        """The number of records in the file."""
        return len(self.rows) + self.skipped.counts().total() + self.refused.counts().total()

    def record(self, line: int, make: Callable[[], ImportedRun]) -> None:
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
            self.names.append((run.name, run.folder))
            for reason in (*run.unread, *wrong):
                self.unread.add(reason, [line])

    def keep(self, wanted: Callable[[dict[str, Any]], bool], reason: str) -> None:
        """Skip the rows that are not wanted, for a reason."""
        records = list(zip(self.rows, self.lines, self.names, strict=True))
        self.rows, self.lines, self.names = [], [], []
        for row, line, names in records:
            if wanted(row):
                self.rows.append(row)
                self.lines.append(line)
                self.names.append(names)
            else:
                self.skipped.add(reason, [line])

    def set_names(self, app: NamePattern | None, subject: NamePattern | None) -> None:
        """Set application and subject of all runs from the names of their jobs, or their folders.

        A run that does not match the pattern of the application is skipped; one that does not
        match the pattern of the subject keeps the subject of its source.
        """
        records = list(zip(self.rows, self.lines, self.names, strict=True))
        patterns = {"app": app, "subject": subject}
        texts = [text for pair in self.names for text in pair]
        by_text = {c: p.values_in(texts) for c, p in patterns.items() if p is not None}
        self.rows, self.lines, self.names = [], [], []
        for row, line, (name, folder) in records:
            values = {c: matches[name] or matches[folder] for c, matches in by_text.items()}
            for column in (column for column, value in values.items() if not value):
                remarks = self.skipped if column == "app" else self.unread
                remarks.add(f"{column}: {name[:80]!r} does not match --pattern", [line])
            if values.get("app") != "":
                self.rows.append(row | {n: value for n, value in values.items() if value})
                self.lines.append(line)
                self.names.append((name, folder))


@dataclass(frozen=True)
class NamePattern:
    """Application or subject in names of jobs: a regular expression, a group, and the option."""

    regex: re.Pattern[str]
    group: str | int
    option: str

    def values_in(self, names: Iterable[str]) -> dict[str, str]:
        """Return by name the group where the pattern first matches; empty if it does not match.

        Some patterns take longer than anyone can wait for a name made for them, so the names are
        searched by a process that can be ended.

        Raises
        ------
        ConfigError
            If it takes longer than `LONGEST_SEARCH_S`.
        """
        distinct = sorted(set(names))
        with multiprocessing.get_context("fork").Pool(1) as pool:
            try:
                values = pool.apply_async(_values_in, (self, distinct)).get(LONGEST_SEARCH_S)
            except multiprocessing.TimeoutError:
                problem = f"needs more than {LONGEST_SEARCH_S:g} s for {len(distinct)} names"
                then = "repeat no group that has a repetition, such as (a+)+"
                raise ConfigError(problem, self.option, then) from None
        return dict(zip(distinct, values, strict=True))


def _values_in(pattern: NamePattern, names: list[str]) -> list[str]:
    matches = map(pattern.regex.search, names)
    return [match[pattern.group] or "" if match else "" for match in matches]


def name_pattern(text: str, group: str, option: str) -> NamePattern:
    """Check a pattern; its value is the group of this name, else the first group.

    Raises
    ------
    ConfigError
        If it is not a regular expression, or has no group.

    Examples
    --------
    >>> name_pattern("([a-z]+)_(?P<app>.*)", "app", "--pattern").values_in(["lab_recon"])
    {'lab_recon': 'recon'}
    """
    try:
        regex = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        problem = f"is no regular expression: {error}"
        raise ConfigError(problem, option, "see the documentation of Python's re") from None
    if not regex.groups:
        then = f"put the part that is meant in parentheses: ([a-z]+) or (?P<{group}>[a-z]+)"
        raise ConfigError(f"has no group: {text!r}", option, then)
    return NamePattern(regex, group if group in regex.groupindex else 1, option)


def row_of(source: str, run: ImportedRun) -> tuple[dict[str, Any], list[str]]:
    """Return the checked row of a run, and the problems of its implausible fields.

    Raises
    ------
    TableError
        If run time or application is missing, or the time is implausible.
    """
    # NaN is unequal to itself.
    values = {n: v for n, v in run.values.items() if v is not None and v == v}
    runtime = values.get("runtime_s")
    if runtime is None:
        raise TableError("; ".join(["no run time", *run.unread]))
    if not math.isfinite(runtime) or runtime <= 0:
        raise TableError(f"run time is {runtime:g} s")
    if not values.get("app"):
        raise TableError("no application name")
    numbers = {n: v for n, v in values.items() if not isinstance(v, (str, bool))}
    wrong = {n: reason for n, v in numbers.items() if (reason := implausible(n, v))}
    if "runtime_s" in wrong:
        raise TableError(wrong["runtime_s"])
    labels = {name: label for name, label in run.labels.items() if label not in (None, "")}
    integers = [n for n in numbers if n not in wrong and DTYPES[n] in ("int64", "Int64")]
    row = {n: int(v) if n in integers else v for n, v in values.items() if n not in wrong}
    row |= {
        "cell_key": sha256_of([source, run.identity]),
        "source": source,
        "labels_json": canonical_json(labels),
    }
    return checked_row({"scale": "full_scale", **row}), list(wrong.values())


def positive(value: float | None) -> float | None:
    """Return a measured amount, or None where zero means that it was not sampled.

    Examples
    --------
    >>> positive(2.0), positive(0.0), positive(None)
    (2.0, None, None)
    """
    return value if value else None
