"""Tables of text written by others: packed with gzip or not, with damaged lines.

Lines are numbered from 1. A record that cannot be used is a remark, and all others are read; bytes
that are not UTF-8 are read as the replacement character.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zlib
from collections import Counter
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from voxcast.errors import TableError, VoxcastError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

Value = TypeVar("Value")

_GZIP = b"\x1f\x8b"
_START_CHARACTERS = 1 << 16
LONGEST_LINE = 1 << 20  # characters, none of which is a record
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


class Remarks:
    """Numbered lines with a problem: unusable records, or unreadable fields of usable ones."""

    def __init__(self) -> None:
        self._all: list[tuple[int, str, str]] = []

    def add(self, kind: str, lines: Iterable[int], reasons: Sequence[str] | None = None) -> None:
        """Add lines with one kind of problem; by default their reason is the kind."""
        self._all += zip(map(int, lines), repeat(kind), reasons or repeat(kind))

    def counts(self) -> Counter[str]:
        """Return the number of remarks of each kind."""
        return Counter(kind for _, kind, _ in self._all)

    def examples(self, most: int) -> dict[str, list[int]]:
        """Return the first lines of each kind."""
        lines_by_kind: dict[str, list[int]] = {}
        for line, kind, _ in self._all:
            listed = lines_by_kind.setdefault(kind, [])
            if len(listed) < most:
                listed.append(line)
        return lines_by_kind

    def listed(self) -> list[tuple[int, str]]:
        """Return all lines in order, with their reasons."""
        remarks = [(line, " ".join(reason.split())[:300]) for line, _, reason in self._all]
        return sorted(remarks, key=lambda remark: remark[0])

    def by_line(self) -> dict[int, list[str]]:
        """Return the reasons of each line."""
        reasons: dict[int, list[str]] = {}
        for line, reason in self.listed():
            reasons.setdefault(line, []).append(reason)
        return reasons

    def extend(self, other: Remarks, line_of: Callable[[int], int]) -> None:
        """Add all remarks of another list under other line numbers; not those below 0."""
        moved = ((line_of(line), kind, reason) for line, kind, reason in other._all)
        self._all += [remark for remark in moved if remark[0] >= 0]


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
    on_read: Callable[[int], None] | None = None,
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
    on_read: Callable[[int], None] | None,
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
