"""Delimited text of any size as columns, a block of lines at a time.

The lines are those of `voxcast.history.imports.lines`, with the same checks; only the cells of a
block are held as columns of Arrow, so that millions of lines are read in seconds.
"""

from __future__ import annotations

import codecs
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.history.imports.lines import MAX_LINE_BYTES, header_of, opening
from voxcast.history.imports.packed_file import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.history.imports.lines import Header

BLOCK_BYTES = 1 << 24
EXAMPLES = 5  # lines that are named for each reason


@dataclass
class Refusals:
    """Lines that are no record, by reason.

    Attributes
    ----------
    counts : Counter of str
    examples : dict of str to list of int
        The first lines, by reason.
    lines : list of ndarray
        Numbers of all of them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[int]] = field(default_factory=dict)
    lines: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, reason: str, lines: NDArray[np.int64]) -> None:
        """Add the lines with these numbers."""
        if len(lines):
            self.counts[reason] += len(lines)
            named = self.examples.setdefault(reason, [])
            named.extend(lines[: EXAMPLES - len(named)].tolist())
            self.lines.append(lines)


@dataclass(frozen=True)
class Block:
    """Records of consecutive lines.

    Attributes
    ----------
    columns : dict of str to StringArray
        Cells without surrounding blanks, by the name of the column in lower case.
    lines : ndarray of int
        Number of the line of each record.
    """

    columns: dict[str, pa.StringArray]
    lines: NDArray[np.int64]

    def select(self, rows: NDArray[np.bool_]) -> Block:
        """Return some of the records."""
        mask = pa.array(rows)
        columns = {name: cells.filter(mask) for name, cells in self.columns.items()}
        return Block(columns, self.lines[rows])


def blocks(
    path: Path,
    delimiter: str,
    needed: tuple[tuple[str, ...], ...],
    advice: str,
    refused: Refusals,
    on_read: Callable[[int], None] | None = None,
) -> Iterator[Block]:
    """Yield the records of a delimited text without quotes; see `lines.columns_of`.

    Parameters
    ----------
    refused : Refusals
        Gets the lines that are no record.
    on_read : callable, optional
        Called with the number of bytes of the file, packed or not, that each block took.

    Raises
    ------
    TableError
        If the file cannot be read, or its first line lacks a needed column.
    """
    opening(path)
    header: Header | None = None
    with unpacked(path) as (stream, file):
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
                header = header_of(first, int(lines[0]), delimiter, needed, path, advice)
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
    texts: list[bytes], lines: NDArray[np.int64], refused: Refusals, *, cut_last: bool
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
        valid = np.array([_is_utf8(text) for text in array.to_pylist()], dtype=bool)
        refused.add("not UTF-8", lines[~valid])
        lines = lines[valid]
        decoded = array.filter(pa.array(valid)).cast(pa.string())
    nul = pc.match_substring(decoded, "\0").to_numpy(zero_copy_only=False)
    if nul.any():
        refused.add("contains a NUL byte", lines[nul])
        decoded, lines = decoded.filter(pa.array(~nul)), lines[~nul]
    empty = pc.equal(pc.binary_length(pc.utf8_trim_whitespace(decoded)), 0)
    has_text = ~empty.to_numpy(zero_copy_only=False)
    return pc.utf8_rtrim(decoded, "\r\n").filter(pa.array(has_text)), lines[has_text]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _split(
    texts: pa.StringArray,
    lines: NDArray[np.int64],
    header: Header,
    delimiter: str,
    refused: Refusals,
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
    block = Block(columns, lines)
    return block.select(~repeated) if repeated.any() else block


def _quoted(delimiter: str) -> str:
    return f"\\{delimiter}" if delimiter in "^]\\-" else delimiter
