"""Delimited text of untrusted files, packed or not: lines, cells, and columns of whole blocks.

Long texts are read a block of lines at a time, whose cells are columns of Arrow, so that millions
of lines take seconds; lines that are no record are remarked upon with their numbers.
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.errors import TableError, VoxcastError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from voxcast.history.imports.file_records import FileRecords

# Accounting is packed to about a tenth. This much is a mistake, or made to fill a machine.
MAX_UNPACKED_BYTES = 1 << 36
_BUFFER_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
# How other packed files begin, and what unpacks them.
_UNPACKERS = {
    b"BZh": "bunzip2", b"\xfd7zXZ\0": "unxz", b"\x28\xb5\x2f\xfd": "unzstd", b"PK\3\4": "unzip",
}  # fmt: skip


@contextmanager
def unpacked(
    path: Path, max_bytes: int = MAX_UNPACKED_BYTES
) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file to read its bytes, unpacked where it is packed with gzip, whatever its name.

    Parameters
    ----------
    max_bytes : int
        The most that a packed file may hold.

    Yields
    ------
    content : BinaryIO
        The bytes, unpacked.
    file : BinaryIO
        The file as it is, of which the position tells how much is read.

    Raises
    ------
    TableError
        If the file is packed in another way, is damaged, or holds more than ``max_bytes``.
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
        with gzip.GzipFile(fileobj=file) as source:
            bounded = _Bounded(cast("BinaryIO", source), path, max_bytes)
            try:
                yield io.BufferedReader(bounded, _BUFFER_BYTES), file
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                problem = f"damaged or truncated gzip ({one_line(error)})"
                raise TableError(problem, path, "copy it again") from None


class _Bounded(io.RawIOBase):
    """The bytes of a stream, up to a number."""

    def __init__(self, source: BinaryIO, path: Path, max_bytes: int) -> None:
        self._source, self._path, self._max_bytes = source, path, max_bytes
        self._read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read(len(buffer))
        self._read_bytes += len(data)
        if self._read_bytes > self._max_bytes:
            problem = f"holds more than {self._max_bytes >> 20:,} MiB unpacked"
            raise TableError(problem, self._path, "export fewer jobs into a file")
        buffer[: len(data)] = data
        return len(data)


Value = TypeVar("Value")
SHOWN_CHARACTERS = 40


@dataclass
class Cells:
    """Cells by column.

    Attributes
    ----------
    texts : mapping of str to str
        By the name of the column in lower case.
    titles : mapping of str to str
        Names of the columns as in the file, for messages.
    absent : frozenset of str
        Texts, in lower case, for a value that is not known.
    unread : list of str
        What is wrong with the cells that could not be read.
    """

    texts: Mapping[str, str]
    titles: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset({""})
    unread: list[str] = field(default_factory=list)

    def raw(self, name: str) -> str:
        """Return the text of a cell; empty if there is no such column."""
        return self.texts.get(name, "")

    def text(self, name: str) -> str:
        """Return the text of a cell; empty if the value is not known."""
        text = self.raw(name)
        return "" if text.lower() in self.absent else text

    def by_column(self) -> dict[str, str]:
        """Return all cells; those whose value is not known are empty."""
        return {name: self.text(name) for name in self.texts}

    def read(self, name: str, parse: Callable[[str], Value | None]) -> Value | None:
        """Return the parsed cell; None if it is not known or, which is listed, cannot be read."""
        text = self.text(name)
        if not text:
            return None
        try:
            return parsed(self.titles.get(name, name), text, parse)
        except TableError as error:
            self.unread.append(error.problem)
            return None


def parsed(title: str, text: str, parse: Callable[[str], Value]) -> Value:
    """Return ``parse(text)``, with column and text in the error.

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
        excerpt = repr(text[:SHOWN_CHARACTERS])
        raise TableError(f"column {title}: not a number or time: {excerpt}") from error


def finite(text: str) -> float:
    """Return a finite number.

    Raises
    ------
    ValueError
        If the text is none.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def integer(text: str) -> int:
    """Return an integer of at most 15 digits.

    Raises
    ------
    ValueError
        If the text is none.
    """
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 16:
        raise ValueError(text)
    return int(text)


def positive(value: float | None) -> float | None:
    """Return a measured amount, or None where zero means that it was not sampled.

    Examples
    --------
    >>> positive(2.0), positive(0.0), positive(None)
    (2.0, None, None)
    """
    return value if value else None


MAX_LINE_BYTES = 1 << 20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Header:
    """The columns of a delimited table.

    Attributes
    ----------
    titles, names : tuple of str
        As in the file, and in lower case.
    ends_lines : bool
        Whether the delimiter also ends each line, as ``sacct -p`` writes it.
    """

    titles: tuple[str, ...]
    names: tuple[str, ...]
    ends_lines: bool


def opening(path: Path) -> bytes:
    """Return the first bytes of a text file.

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


def text_lines(records: FileRecords) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their numbers; unreadable lines are listed as bad.

    Raises
    ------
    TableError
        If the file is not a text file; see `opening`.
    """
    path = records.path
    opening(path)
    with unpacked(path) as (stream, _):
        number = 0
        while raw := stream.readline(MAX_LINE_BYTES):
            number += 1
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                while (remainder := stream.readline(MAX_LINE_BYTES)) and not remainder.endswith(
                    b"\n"
                ):
                    pass
                records.refuse(number, f"a line of more than {MAX_LINE_BYTES} bytes")
                continue
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                records.refuse(number, f"not UTF-8: byte {error.start + 1} of the line")
                continue
            if "\0" in text:
                records.refuse(number, "contains a NUL byte")
            elif text.strip():
                yield number, text.rstrip("\r\n")


def columns_of(
    records: FileRecords,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    advice: str,
    absent: frozenset[str],
) -> Iterator[tuple[int, Cells]]:
    """Yield the lines of a delimited table without quotes, with their numbers.

    A repetition of the first line, as in files that were joined, is passed over.

    Parameters
    ----------
    needed : tuple of tuple of str
        At least one column of each group must be in the first line; case is ignored.
    advice : str
        Next step for the user if the first line is not such a header.
    absent : frozenset of str
        See `voxcast.runs.delimited.Cells`.

    Raises
    ------
    TableError
        If the first line lacks a needed column.
    """
    lines = text_lines(records)
    number, header_line = next(lines, (0, ""))
    header = header_of(header_line, number, delimiter, needed, records.path, advice)
    title_by_name = dict(zip(header.names, header.titles, strict=True))
    for number, line in lines:
        fields = line.split(delimiter)
        if header.ends_lines and not fields[-1].strip():
            fields.pop()
        if len(fields) != len(header.names):
            reason = f"{len(fields)} columns where the header has {len(header.names)}"
            records.refuse(number, reason)
            continue
        fields = [text.strip() for text in fields]
        if fields != list(header.titles):
            cells = dict(zip(header.names, fields, strict=True))
            yield number, Cells(cells, title_by_name, absent)


def header_of(
    line: str,
    number: int,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    source: Path | str,
    advice: str,
) -> Header:
    """Return the header of a table, from its first line; see `columns_of`.

    Raises
    ------
    TableError
        If the line lacks a needed column, or names one twice.
    """
    path = source if isinstance(source, Path) else "the text"
    ends_lines = line.endswith(delimiter)
    titles = [name.strip() for name in line.removesuffix(delimiter).split(delimiter)]
    names = [title.lower() for title in titles]
    for group in needed:
        if not {name.lower() for name in group} & set(names):
            if mark := _other_delimiter(line, delimiter, needed):
                problem = f"its columns are separated by {mark!r}, not by {delimiter!r}"
                raise TableError(problem, path, advice)
            missing = " or ".join(group)
            raise TableError(f"no column {missing} in line {number}", path, advice)
    if len(set(names)) < len(names):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        raise TableError(f"duplicate column: {', '.join(duplicates)}", path, advice)
    return Header(tuple(titles), tuple(names), ends_lines)


def _other_delimiter(
    header_line: str, delimiter: str, needed: tuple[tuple[str, ...], ...]
) -> str | None:
    """Return the mark that separates a header with the needed columns instead; None if none."""
    for mark in ",;\t|":
        titles = {title.strip(' "').lower() for title in header_line.split(mark)}
        if mark != delimiter and any({n.lower() for n in group} & titles for group in needed):
            return mark
    return None


BLOCK_BYTES = 1 << 24


class Remarks:
    """Remarks upon lines: why a record cannot be used, or which of its fields."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], str, list[str]]] = []

    def add(self, kind: str, lines: NDArray[np.int64], reasons: list[str] | None = None) -> None:
        """Add a remark upon each of these lines; by default the reason is the kind."""
        if len(lines):
            self._parts.append((lines, kind, reasons or [kind] * len(lines)))

    def frame(self) -> pd.DataFrame:
        """Return the remarks by line: ``line``, ``kind`` and ``reason``."""
        import pandas as pd

        lines = np.concatenate([np.array([], dtype=np.int64), *(p[0] for p in self._parts)])
        kinds = [kind for part, kind, _ in self._parts for _ in range(len(part))]
        reasons = [" ".join(r.split())[:300] for part in self._parts for r in part[2]]
        frame = pd.DataFrame({"line": lines, "kind": kinds, "reason": reasons})
        return frame.sort_values("line", kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Block:
    """Records of consecutive lines.

    Attributes
    ----------
    columns : dict of str to StringArray
        Cells without surrounding blanks, by the name of the column in lower case.
    titles : mapping of str to str
        Names of the columns as in the file.
    lines : ndarray of int
        Number of the line of each record.
    """

    columns: dict[str, pa.StringArray]
    titles: Mapping[str, str]
    lines: NDArray[np.int64]

    def select(self, rows: NDArray[np.bool_]) -> Block:
        """Return some of the records."""
        mask = pa.array(rows)
        columns = {name: cells.filter(mask) for name, cells in self.columns.items()}
        return Block(columns, self.titles, self.lines[rows])


@contextmanager
def _source(source: Path | str) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file, or a text that is in memory already."""
    if isinstance(source, str):
        content = io.BytesIO(source.encode("utf-8", "backslashreplace"))
        yield content, content
    else:
        opening(source)
        with unpacked(source) as streams:
            yield streams


def blocks(
    source: Path | str,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    advice: str,
    refused: Remarks,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[Block]:
    """Yield the records of a delimited text without quotes; see `columns_of`.

    Parameters
    ----------
    source : Path or str
        A file, packed or not, or the text itself.
    refused : Remarks
        Gets the lines that are no record.
    on_read : callable, optional
        Called with the number of bytes of the file, packed or not, that each block took.

    Raises
    ------
    TableError
        If the file cannot be read, or its first line lacks a needed column.
    """
    header: Header | None = None
    with _source(source) as (stream, file):
        number = position = 0
        while raw := stream.read(BLOCK_BYTES):
            raw += stream.readline(MAX_LINE_BYTES)
            if on_read is not None:
                on_read(file.tell() - position)
                position = file.tell()
            cut = not raw.endswith(b"\n") and _skip_to_end_of_line(stream)
            if number == 0:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            texts = raw.removesuffix(b"\n").split(b"\n")
            lines = np.arange(number + 1, number + 1 + len(texts))
            number += len(texts)
            cells, lines = _readable(texts, lines, refused, cut_last=cut)
            if header is None and len(cells):
                first = cells[0].as_py()
                header = header_of(first, int(lines[0]), delimiter, needed, source, advice)
                cells, lines = cells[1:], lines[1:]
            if header is not None and len(cells):
                yield _split(cells, lines, header, delimiter, refused)


def _skip_to_end_of_line(stream: BinaryIO) -> bool:
    """Read the rest of a line that is too long, and tell whether there was any."""
    rest = stream.readline(MAX_LINE_BYTES)
    skipped = rest != b""
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_LINE_BYTES)
    return skipped


def _readable(
    texts: list[bytes], lines: NDArray[np.int64], refused: Remarks, *, cut_last: bool
) -> tuple[pa.StringArray, NDArray[np.int64]]:
    """Return the lines that are text and not empty."""
    array = pa.array(texts, type=pa.binary())
    long = pc.greater_equal(pc.binary_length(array), MAX_LINE_BYTES).to_numpy(zero_copy_only=False)
    if cut_last:
        long[-1] = True
    refused.add(f"a line of more than {MAX_LINE_BYTES} bytes", lines[long])
    array, lines = array.filter(pa.array(~long)), lines[~long]
    try:
        decoded = array.cast(pa.string())
    except pa.ArrowInvalid:
        errors = [_utf8_error(text) for text in array.to_pylist()]
        invalid = np.array([error is not None for error in errors])
        reasons = [error for error in errors if error is not None]
        refused.add("not UTF-8", lines[invalid], reasons)
        lines = lines[~invalid]
        decoded = array.filter(pa.array(~invalid)).cast(pa.string())
    nul = pc.match_substring(decoded, "\0").to_numpy(zero_copy_only=False)
    if nul.any():
        refused.add("contains a NUL byte", lines[nul])
        decoded, lines = decoded.filter(pa.array(~nul)), lines[~nul]
    empty = pc.equal(pc.binary_length(pc.utf8_trim_whitespace(decoded)), 0)
    has_text = ~empty.to_numpy(zero_copy_only=False)
    return pc.utf8_rtrim(decoded, "\r\n").filter(pa.array(has_text)), lines[has_text]


def _utf8_error(text: bytes) -> str | None:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start + 1} of the line"
    return None


def _split(
    texts: pa.StringArray,
    lines: NDArray[np.int64],
    header: Header,
    delimiter: str,
    refused: Remarks,
) -> Block:
    """Return the cells of the lines that have as many as the header."""
    width = len(header.names)
    if header.ends_lines:
        texts = pc.replace_substring_regex(texts, rf"[{_quoted(delimiter)}]\s*$", "")
    counts = pc.add(pc.count_substring(texts, delimiter), 1).to_numpy(zero_copy_only=False)
    for count in np.unique(counts[counts != width]):
        reason = f"{count} columns where the header has {width}"
        refused.add(reason, lines[counts == count])
    fits = counts == width
    texts, lines = texts.filter(pa.array(fits)), lines[fits]
    flat = pc.utf8_trim_whitespace(pc.split_pattern(texts, delimiter).flatten())
    starts = np.arange(len(lines)) * width
    columns = {name: flat.take(pa.array(starts + n)) for n, name in enumerate(header.names)}
    repeated = np.ones(len(lines), dtype=bool)  # the header, in files that were joined
    for name, title in zip(header.names, header.titles, strict=True):
        if not repeated.any():
            break
        repeated &= pc.equal(columns[name], title).to_numpy(zero_copy_only=False)
    block = Block(columns, dict(zip(header.names, header.titles, strict=True)), lines)
    return block.select(~repeated) if repeated.any() else block


def _quoted(delimiter: str) -> str:
    return f"\\{delimiter}" if delimiter in "^]\\-" else delimiter
