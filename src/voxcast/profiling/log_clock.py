"""When the lines of a log were written: the size of the file, noted at every sample of the run."""

from __future__ import annotations

import bisect
from pathlib import Path


class LogClock:
    """Notes the growth of a log.

    A line counts as written at the first reading at which the file held all of it. A program that
    buffers its output writes many lines at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sizes: list[int] = []
        self._times_s: list[float] = []

    def read(self, t_s: float) -> None:
        """Note the size of the log ``t_s`` seconds after the start of the run."""
        try:
            size_bytes = self._path.stat().st_size
        except FileNotFoundError:
            return
        if size_bytes > (self._sizes[-1] if self._sizes else 0):
            self._sizes.append(size_bytes)
            self._times_s.append(t_s)

    def lines(self) -> tuple[list[str], list[float]]:
        """Return the lines of the log, and the seconds at which each was written."""
        lines, written_s, offset = [], [], 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            offset += len(line)
            position = bisect.bisect_left(self._sizes, offset)
            # What is written after the last reading belongs to it.
            times_s = self._times_s[position : position + 1] or self._times_s[-1:] or [0.0]
            lines.append(line.decode("utf-8", errors="replace").rstrip("\r\n"))
            written_s.append(times_s[0])
        return lines, written_s
