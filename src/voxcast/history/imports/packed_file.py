"""Bytes of files that a site may have packed with gzip, as old accounting usually is."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from voxcast.errors import TableError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
