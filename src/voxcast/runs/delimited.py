"""Delimited text written by others: of any size, packed with gzip or not, with damaged lines.

Lines are numbered from 1. Unreadable lines are remarks; the rest is read a block at a
time, as columns of Arrow (`blocks`) or record by record (`records`).
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import zlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.errors import TableError, VoxcastError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Lines = NDArray[np.int64]

Value = TypeVar("Value")

BLOCK_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 20
# Accounting packs to about a tenth; more than this is a mistake, or made to fill a machine.
MAX_UNPACKED_BYTES = 1 << 36
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_GZIP = b"\x1f\x8b"
_UNPACKERS = {  # first bytes of other formats
    b"BZh": "bunzip2", b"\xfd7zXZ\0": "unxz", b"\x28\xb5\x2f\xfd": "unzstd", b"PK\3\4": "unzip",
}  # fmt: skip


class Remarks:
    """Numbered lines with a problem: unusable records, or unreadable fields of usable ones."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Lines, list[str] | None]] = []

    def add(
        self, kind: str, lines: Sequence[int] | Lines, reasons: list[str] | None = None
    ) -> None:
        """Add lines with one kind of problem; by default their reason is the kind."""
        if len(lines):
            self._parts.append((kind, np.asarray(lines, dtype=np.int64), reasons))

    def counts(self) -> Counter[str]:
        """Return the number of remarks of each kind."""
        counts: Counter[str] = Counter()
        for kind, lines, _ in self._parts:
            counts[kind] += len(lines)
        return counts

    def examples(self, most: int) -> dict[str, list[int]]:
        """Return the first lines of each kind."""
        lines_by_kind: dict[str, list[int]] = {}
        for kind, lines, _ in self._parts:
            listed = lines_by_kind.setdefault(kind, [])
            listed.extend(lines[: most - len(listed)].tolist())
        return lines_by_kind

    def listed(self) -> list[tuple[int, str]]:
        """Return all lines in order, with their reasons."""
        remarks = [
            (int(line), " ".join((reasons[n] if reasons else kind).split())[:300])
            for kind, lines, reasons in self._parts
            for n, line in enumerate(lines)
        ]
        return sorted(remarks, key=lambda remark: remark[0])

    def move(self, lines: Lines, to: Lines) -> Remarks:
        """Return the remarks with other line numbers.

        Parameters
        ----------
        lines, to : ndarray of int
            Present numbers, sorted, and new ones; a remark with a new number of -1 is dropped.
        """
        moved = Remarks()
        for kind, of, reasons in self._parts:
            new = to[np.searchsorted(lines, of)]
            reasons_kept = (
                None
                if reasons is None
                else [r for r, n in zip(reasons, new, strict=True) if n >= 0]
            )
            moved.add(kind, new[new >= 0], reasons_kept)
        return moved

    def extend(self, other: Remarks) -> None:
        """Add all remarks of another list."""
        self._parts += other._parts


@dataclass
class Cells:
    """The cells of one record, by the name of the column in lower case.

    Attributes
    ----------
    titles : mapping of str to str
        Names of the columns as in the file, for messages.
    absent : frozenset of str
        Texts, in lower case, for an unknown value.
    unread : list of str
        Problems with the unreadable cells.
    """

    texts: Mapping[str, str]
    titles: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset({""})
    unread: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """Return the text of a cell; empty if the value is unknown or the column missing."""
        text = self.texts.get(name, "")
        return "" if text.lower() in self.absent else text

    def cells(self) -> list[tuple[str, str]]:
        """Return columns and texts in alphabetical order; unknown values are empty."""
        return sorted((name, self.text(name)) for name in self.texts)

    def read(self, name: str, parse: Callable[[str], Value | None]) -> Value | None:
        """Return the parsed cell; None if it is unknown, or unreadable, which is noted."""
        text = self.text(name)
        if not text:
            return None
        try:
            return parsed(self.titles.get(name, name), text, parse)
        except TableError as error:
            self.unread.append(error.problem)
            return None


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


@dataclass(frozen=True)
class Header:
    """Names of columns, in lower case, and titles, as in the file."""

    names: tuple[str, ...]
    titles: tuple[str, ...]
    ends_lines: bool  # the delimiter also ends each line, as `sacct -p` writes it


@dataclass(frozen=True)
class Block:
    """Records of consecutive lines.

    Attributes
    ----------
    header : Header
    columns : dict of str to StringArray
        Cells without surrounding blanks, by the name of the column in lower case.
    lines : ndarray of int
        Line of each record.
    """

    header: Header
    columns: dict[str, pa.StringArray]
    lines: Lines

    def select(self, rows: NDArray[np.bool_]) -> Block:
        """Return some of the records."""
        mask = pa.array(rows)
        columns = {name: cells.filter(mask) for name, cells in self.columns.items()}
        return Block(self.header, columns, self.lines[rows])


def records(
    source: Path | str,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    advice: str,
    refused: Remarks,
    absent: frozenset[str],
) -> Iterator[tuple[int, Cells]]:
    """Yield the records of `blocks` one by one, with their lines; ``absent`` as in `Cells`."""
    for block in blocks(source, delimiter, needed, advice, refused):
        titles = dict(zip(block.header.names, block.header.titles, strict=True))
        columns = [block.columns[name].to_pylist() for name in block.header.names]
        for line, *texts in zip(block.lines.tolist(), *columns, strict=True):
            yield line, Cells(dict(zip(block.header.names, texts, strict=True)), titles, absent)


def blocks(
    source: Path | str,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    advice: str,
    refused: Remarks,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[Block]:
    """Yield the records of a delimited text without quotes.

    A repetition of the first line, as in files that were joined, is passed over.

    Parameters
    ----------
    source : Path or str
        A file, packed or not, or the text itself.
    needed : tuple of tuple of str
        At least one column of each group must be in the first line; case is ignored.
    advice : str
        The next step for a user whose first line is not such a header.
    refused : Remarks
        Gets the lines without a record.
    on_read : callable, optional
        Called with the bytes of the file, packed or not, behind each block.

    Raises
    ------
    TableError
        If the file cannot be read, or its first line lacks a needed column or repeats one.
    """
    header: Header | None = None
    for texts, lines in text_blocks(source, refused, on_read):
        if header is None and len(texts):
            place = source if not isinstance(source, str) else "accounting"
            first = texts[0].as_py()
            header = _header(first, int(lines[0]), delimiter, needed, place, advice)
            texts, lines = texts[1:], lines[1:]
        if header is not None:
            yield _split(texts, lines, header, delimiter, refused)
    if header is None:
        raise TableError(f"no column {' or '.join(needed[0])}", source, advice)


def text_lines(source: Path | str, refused: Remarks) -> Iterator[tuple[int, str]]:
    """Yield the lines of `text_blocks` one by one, with their numbers."""
    for texts, lines in text_blocks(source, refused):
        yield from zip(lines.tolist(), texts.to_pylist(), strict=True)


def text_blocks(
    source: Path | str, refused: Remarks, on_read: Callable[[int], None] | None = None
) -> Iterator[tuple[pa.StringArray, Lines]]:
    """Yield the lines that are text and not empty, with their numbers; parameters as `blocks`."""
    with _source(source) as (stream, file):
        number = position = 0
        while raw := stream.read(BLOCK_BYTES):
            raw += stream.readline(MAX_LINE_BYTES)
            cut = not raw.endswith(b"\n") and _skip_to_end_of_line(stream)
            if on_read is not None:
                on_read(file.tell() - position)
                position = file.tell()
            if number == 0:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            texts = raw.removesuffix(b"\n").split(b"\n")
            lines = np.arange(number + 1, number + 1 + len(texts))
            number += len(texts)
            yield _readable(texts, lines, refused, cut_last=cut)


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a text file, unpacked.

    Raises
    ------
    TableError
        If the file is missing, empty, or not a text file.
    """
    try:
        with unpacked(path) as (stream, _):
            start = stream.read(1 << 16)
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror}", path) from error
    if not start.strip():
        raise TableError("is empty", path)
    if start.startswith(_UTF16):
        raise TableError("is UTF-16", path, "save it as UTF-8")
    if b"\0" in start:
        raise TableError("is not a text file", path)
    return start


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file, unpacked if it is gzip under any name; yield its content and the file itself.

    Raises
    ------
    TableError
        If the file is packed in another way, is damaged, or unpacks to more than
        `MAX_UNPACKED_BYTES`.
    """
    with path.open("rb") as file:
        start = file.read(max(map(len, _UNPACKERS)))
        file.seek(0)
        for mark, command in _UNPACKERS.items():
            if start.startswith(mark):
                raise TableError("is packed, and not with gzip", path, f"`{command}` it first")
        if not start.startswith(_GZIP):
            yield file, file
            return
        with gzip.GzipFile(fileobj=file) as content:
            try:
                bounded = _Bounded(cast("BinaryIO", content), path)
                yield io.BufferedReader(bounded, 1 << 20), file
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                problem = f"damaged or truncated gzip ({one_line(error)})"
                raise TableError(problem, path, "copy it again") from None


class _Bounded(io.RawIOBase):
    """The bytes of a stream, up to `MAX_UNPACKED_BYTES`."""

    def __init__(self, content: BinaryIO, path: Path) -> None:
        self._content, self._path, self._read_bytes = content, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._content.read(len(buffer))
        self._read_bytes += len(data)
        if self._read_bytes > MAX_UNPACKED_BYTES:
            problem = f"holds more than {MAX_UNPACKED_BYTES >> 20:,} MiB unpacked"
            raise TableError(problem, self._path, "export fewer jobs into a file")
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _source(source: Path | str) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    if isinstance(source, str):
        content = io.BytesIO(source.encode("utf-8", "backslashreplace"))
        yield content, content
    else:
        first_bytes(source)
        with unpacked(source) as streams:
            yield streams


def _skip_to_end_of_line(stream: BinaryIO) -> bool:
    """Read the rest of a line that is too long; return whether there was any."""
    rest = stream.readline(MAX_LINE_BYTES)
    skipped = rest != b""
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_LINE_BYTES)
    return skipped


def _readable(
    texts: list[bytes], lines: Lines, refused: Remarks, *, cut_last: bool
) -> tuple[pa.StringArray, Lines]:
    array = pa.array(texts, type=pa.binary())
    long = true(pc.greater_equal(pc.binary_length(array), MAX_LINE_BYTES))
    long[-1] |= cut_last
    refused.add(f"a line of more than {MAX_LINE_BYTES} bytes", lines[long])
    array, lines = array.filter(pa.array(~long)), lines[~long]
    try:
        decoded = array.cast(pa.string())
    except pa.ArrowInvalid:
        places = [_place_of_error(text) for text in array.to_pylist()]
        invalid = np.array([place > 0 for place in places])
        reasons = [f"not UTF-8: byte {place} of the line" for place in places if place]
        refused.add("not UTF-8", lines[invalid], reasons)
        lines = lines[~invalid]
        decoded = array.filter(pa.array(~invalid)).cast(pa.string())
    nul = true(pc.match_substring(decoded, "\0"))
    refused.add("contains a NUL byte", lines[nul])
    empty = true(pc.equal(pc.binary_length(pc.utf8_trim_whitespace(decoded)), 0))
    usable = ~nul & ~empty
    return pc.utf8_rtrim(decoded, "\r\n").filter(pa.array(usable)), lines[usable]


def _place_of_error(text: bytes) -> int:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start + 1
    return 0


def _split(
    texts: pa.StringArray, lines: Lines, header: Header, delimiter: str, refused: Remarks
) -> Block:
    """Return the cells of the lines with as many cells as the header."""
    width = len(header.names)
    if header.ends_lines:
        mark = f"\\{delimiter}" if delimiter in "^]\\-" else delimiter
        texts = pc.replace_substring_regex(texts, rf"[{mark}]\s*$", "")
    counts = pc.add(pc.count_substring(texts, delimiter), 1).to_numpy(zero_copy_only=False)
    for count in np.unique(counts[counts != width]):
        reason = f"{count} columns where the header has {width}"
        refused.add(reason, lines[counts == count])
    fits = counts == width
    texts, lines = texts.filter(pa.array(fits)), lines[fits]
    flat = pc.utf8_trim_whitespace(pc.split_pattern(texts, delimiter).flatten())
    starts = np.arange(len(lines)) * width
    columns = {name: flat.take(pa.array(starts + n)) for n, name in enumerate(header.names)}
    repeated = np.ones(len(lines), dtype=bool)
    for name, title in zip(header.names, header.titles, strict=True):
        if not repeated.any():
            break
        repeated &= true(pc.equal(columns[name], title))
    block = Block(header, columns, lines)
    return block.select(~repeated) if repeated.any() else block


def _header(
    line: str,
    number: int,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    place: object,
    advice: str,
) -> Header:
    titles = [name.strip() for name in line.removesuffix(delimiter).split(delimiter)]
    names = [title.lower() for title in titles]
    for group in needed:
        wanted = {name.lower() for name in group}
        if wanted & set(names):
            continue
        for mark in ",;\t|":
            others = {title.strip(' "').lower() for title in line.split(mark)}
            if mark != delimiter and wanted & others:
                problem = f"its columns are separated by {mark!r}, not by {delimiter!r}"
                raise TableError(problem, place, advice)
        raise TableError(f"no column {' or '.join(group)} in line {number}", place, advice)
    if len(set(names)) < len(names):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        raise TableError(f"duplicate column: {', '.join(duplicates)}", place, advice)
    return Header(tuple(names), tuple(titles), line.endswith(delimiter))


def true(mask: Any) -> NDArray[np.bool_]:
    """Return a mask of Arrow as an array; null is false."""
    return np.array(mask.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
