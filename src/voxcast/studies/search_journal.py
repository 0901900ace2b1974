"""The journal file of a search, which outlives writers that were killed within a line.

Optuna appends to a line that a killed writer, or a full disk, left without its end; from then on
no process can read the file. Here such an unread rest is removed before the next
line is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 4096


class SearchJournal(JournalFileBackend):
    """A journal locked by a symbolic link, as NFS needs it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._link = JournalFileSymlinkLock(str(path))
        super().__init__(str(path), self._link)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines after the last whole one."""
        self._link.acquire()
        try:
            remove_cut_line(self._path)
        finally:
            self._link.release()
        super().append_logs(logs)


def remove_cut_line(path: Path) -> None:
    """Remove what follows the last line break of a file."""
    with path.open("rb+") as stream:
        end = size = stream.seek(0, 2)
        while end > 0:
            start = max(0, end - _BLOCK)
            stream.seek(start)
            place = stream.read(end - start).rfind(b"\n")
            if place >= 0:
                end = start + place + 1
                break
            end = start
        if end < size:
            stream.truncate(end)
