"""Lines of untrusted text files, packed or not, with checks of size, encoding and columns."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports.cells import Cells
from voxcast.history.imports.packed_file import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.history.imports.file_records import FileRecords

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
        See `voxcast.history.imports.cells.Cells`.

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
    path: Path,
    advice: str,
) -> Header:
    """Return the header of a table, from its first line; see `columns_of`.

    Raises
    ------
    TableError
        If the line lacks a needed column, or names one twice.
    """
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
