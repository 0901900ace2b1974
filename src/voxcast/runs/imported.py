"""Tables that others wrote, packed with gzip or not, and their records as rows of the history.

Lines are numbered from 1. A record that cannot be used is a remark, and all others are read; bytes
that are not UTF-8 are read as the replacement character.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import zlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import not_
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from voxcast.errors import ConfigError, TableError, VoxcastError, one_line
from voxcast.files import canonical_json, sha256_of
from voxcast.runs.table import DTYPES, checked_row, implausible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd


Value = TypeVar("Value")

_GZIP = b"\x1f\x8b"
_START_CHARACTERS = 1 << 16
LONGEST_LINE = 1 << 20  # characters, without any record
# A file of gzip that unpacks to more than both was made to fill a machine. Accounting packs to
# between a tenth and a fiftieth; gzip itself ends at a thousandth.
UNPACKED_BYTES, UNPACKED_TIMES = 1 << 28, 200


class _Unpacked(gzip.GzipFile):
    """The content of a file of gzip, up to a bound."""

    def __init__(self, file: BinaryIO, most_bytes: int) -> None:
        super().__init__(fileobj=file)
        self.most_bytes = most_bytes

    def read1(self, size: int = -1) -> bytes:
        content = super().read1(size)
        if self.tell() > self.most_bytes:
            raise OSError(None, f"unpacks to more than {self.most_bytes} bytes")
        return content


class Remarks(list[tuple[int, str, str]]):
    """Lines with a problem, its kind and the reason: unusable records, or unreadable fields."""

    def add(self, kind: str, lines: Iterable[int], reasons: Sequence[str] | None = None) -> None:
        """Add lines with one kind of problem; by default their reason is the kind."""
        self.extend(zip(map(int, lines), repeat(kind), reasons or repeat(kind)))

    def counts(self) -> Counter[str]:
        """Return the number of remarks of each kind."""
        return Counter(kind for _, kind, _ in self)

    def examples(self, most: int) -> dict[str, list[int]]:
        """Return the first lines of each kind."""
        lines_by_kind: dict[str, list[int]] = {}
        for line, kind, _ in self:
            listed = lines_by_kind.setdefault(kind, [])
            if len(listed) < most:
                listed.append(line)
        return lines_by_kind

    def listed(self) -> list[tuple[int, str]]:
        """Return all lines in order, with their reasons."""
        remarks = [(line, " ".join(reason.split())[:300]) for line, _, reason in self]
        return sorted(remarks, key=lambda remark: remark[0])

    def by_line(self) -> dict[int, list[str]]:
        """Return the reasons of each line."""
        reasons: dict[int, list[str]] = {}
        for line, reason in self.listed():
            reasons.setdefault(line, []).append(reason)
        return reasons


def parsed(title: str, text: str, parse: Callable[[str], Value]) -> Value:
    """Return ``parse(text)``; an error names the column.

    Raises
    ------
    TableError
        If the text cannot be parsed.
    """
    try:
        return parse(text)
    except VoxcastError as error:
        raise TableError(f"column {title}: {error.problem[:80]}") from error
    except (ValueError, OverflowError, OSError) as error:
        raise TableError(f"column {title}: not a number or time: {text[:40]!r}") from error


def finite(text: str) -> float:
    """Return a finite number, or raise ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def integer(text: str) -> int:
    """Return an integer of at most 15 digits, or raise ValueError."""
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 16:
        raise ValueError(text)
    return int(text)


def table(
    source: Path | str,
    delimiter: str,
    refused: Remarks,
    *,
    quoted: bool = False,
    on_read: Callable[[int], object] | None = None,
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the names of the columns of a table, and its records with their lines.

    Blank lines are passed over, and so is a repetition of the header, as in files that were
    joined. Cells have no surrounding blanks.

    Parameters
    ----------
    source : Path or str
        A file, packed or not, or the text itself.
    refused : Remarks
        Gets the lines with more or fewer columns than the header.
    quoted : bool, optional
        Cells may be in quotes, and then hold delimiters and line breaks.
    on_read : callable, optional
        Called with the bytes of the file, packed or not, as they are read.

    Raises
    ------
    TableError
        If the file is missing, empty, or not a text file, or its header names a column twice.
    """
    records = _records(source, delimiter, refused, on_read, quoted=quoted)
    _, titles = next(records, (0, []))
    if duplicates := sorted(name for name, n in Counter(titles).items() if n > 1 and name):
        problem = f"names the column {', '.join(duplicates)} twice"
        raise TableError(problem, source, "rename one of them")
    return titles, _complete(records, titles, refused)


def require(
    names: Collection[str], needed: Iterable[tuple[str, ...]], source: object, advice: str
) -> None:
    """Check that a table has one column of each group.

    Raises
    ------
    TableError
        If a group has no column.
    """
    if missing := [" or ".join(group) for group in needed if not set(group) & set(names)]:
        problem = f"has no column {', '.join(missing)}, but {', '.join(names)[:120]}"
        raise TableError(problem, source, advice)


def _records(
    source: Path | str,
    delimiter: str,
    refused: Remarks,
    on_read: Callable[[int], object] | None,
    *,
    quoted: bool,
) -> Iterator[tuple[int, list[str]]]:
    position = 0
    with text_of(source) as (stream, file):
        start = stream.read(_START_CHARACTERS)
        if not start.strip():
            raise TableError("is empty", source)
        if "\0" in start:
            place = f"{source}, line {start[: start.index(chr(0))].count(chr(10)) + 1}"
            then = "save it as UTF-8, unpacked or as gzip"
            raise TableError("holds a NUL and is not a text file", place, then)
        stream.seek(0)
        reader = csv.reader(
            lines_of(stream),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=True,
        )
        cells: list[str] | None = []
        while cells is not None:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if reader.line_num > line:
                    then = "close the quote that begins there"
                    raise TableError(f"line {line}: {error}", source, then) from None
                refused.add("not a line of a table", [line], [str(error)])
                continue
            if on_read is not None and file.tell() > position:
                on_read(file.tell() - position)
                position = file.tell()
            if cells and (len(cells) > 1 or cells[0].strip()):
                yield line, [cell.strip() for cell in cells]


def _complete(
    records: Iterator[tuple[int, list[str]]], titles: list[str], refused: Remarks
) -> Iterator[tuple[int, list[str]]]:
    for line, cells in records:
        if len(cells) != len(titles):
            refused.add(f"{len(cells)} columns where the header has {len(titles)}", [line])
        elif cells != titles:
            yield line, cells


def lines_of(stream: io.TextIOWrapper) -> Iterator[str]:
    """Return the lines of a text; of a line that is longer than `LONGEST_LINE` the beginning."""
    while line := stream.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and line[-1] != "\n":
            line = stream.readline(LONGEST_LINE)


@contextmanager
def text_of(source: Path | str) -> Iterator[tuple[io.TextIOWrapper, BinaryIO]]:
    """Open a text, unpacked if it is gzip under any name; yield it and the file itself.

    Raises
    ------
    TableError
        If the file cannot be read, or is damaged.
    """
    try:
        with (
            io.BytesIO(source.encode("utf-8", "replace"))
            if isinstance(source, str)
            else source.open("rb")
        ) as file:
            is_packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if is_packed:
                most_bytes = max(UNPACKED_BYTES, UNPACKED_TIMES * os.fstat(file.fileno()).st_size)
            content = cast("BinaryIO", _Unpacked(file, most_bytes)) if is_packed else file
            yield io.TextIOWrapper(content, "utf-8-sig", "replace"), file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"damaged or truncated gzip ({one_line(error)})"
        raise TableError(problem, source, "copy it again") from None
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror}", source) from error


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
        return len(self.rows) + len(self.skipped) + len(self.refused)

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
        is_wanted = [wanted(row) for row in self.rows]
        self.skipped.add(reason, compress(self.lines, map(not_, is_wanted)))
        self._select(is_wanted)

    def _select(self, is_wanted: list[bool]) -> None:
        self.rows = list(compress(self.rows, is_wanted))
        self.lines = list(compress(self.lines, is_wanted))
        self.names = list(compress(self.names, is_wanted))

    def set_names(self, app: NamePattern | None, subject: NamePattern | None) -> None:
        """Set application and subject of all runs from the names of their jobs, or their folders.

        A run that does not match the pattern of the application is skipped; one that does not
        match the pattern of the subject keeps the subject of its source.
        """
        patterns = {"app": app, "subject": subject}
        texts = [text for pair in self.names for text in pair]
        by_text = {c: p.values_in(texts) for c, p in patterns.items() if p is not None}
        is_wanted = []
        for row, line, (name, folder) in zip(self.rows, self.lines, self.names, strict=True):
            values = {c: matches[name] or matches[folder] for c, matches in by_text.items()}
            for column in (column for column, value in values.items() if not value):
                remarks = self.skipped if column == "app" else self.unread
                remarks.add(f"{column}: {name[:80]!r} does not match --pattern", [line])
            row |= {column: value for column, value in values.items() if value}
            is_wanted.append(values.get("app") != "")
        self._select(is_wanted)


@dataclass(frozen=True)
class NamePattern:
    """Application or subject in names of jobs: a regular expression and a group of it."""

    regex: re.Pattern[str]
    group: str | int

    def values_in(self, names: Iterable[str]) -> dict[str, str]:
        """Return by name the group where the pattern first matches; empty if it does not match."""
        matches = {name: self.regex.search(name) for name in names}
        return {name: (m[self.group] or "") if m else "" for name, m in matches.items()}


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
    return NamePattern(regex, group if group in regex.groupindex else 1)


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


def patterns_of(texts: Sequence[str]) -> dict[str, NamePattern]:
    """Return the patterns of application and subject in regular expressions.

    A group without a name is the application.

    Raises
    ------
    ConfigError
        If one is not a regular expression, or has no group.
    """
    patterns = {}
    for text in texts:
        pattern = name_pattern(text, "app", "--pattern")
        named = pattern.regex.groupindex
        if "app" in named or not named:
            patterns["app"] = pattern
        if "subject" in named:
            patterns["subject"] = name_pattern(text, "subject", "--pattern")
    if texts and not patterns:
        then = "e.g. (?P<app>[a-z]+)"
        raise ConfigError(f"has no group app or subject: {texts[0]!r}", "--pattern", then)
    return patterns
