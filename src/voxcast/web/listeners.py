"""The process that listens on a port, as ``/proc`` shows it."""

from __future__ import annotations

import contextlib
import datetime
import os
from dataclasses import dataclass
from pathlib import Path

from voxcast.measure import tree

LISTENING = "0A"  # state of a socket in /proc/net/tcp
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


@dataclass(frozen=True)
class Listener:
    """A process with a listening socket, its argument list, and when it was started."""

    pid: int
    command: tuple[str, ...]
    started_at: datetime.datetime


def listeners(port: int) -> list[Listener]:
    """Return the processes that listen on a TCP port of this machine, oldest first.

    Processes of other users cannot be seen, unless we are root.
    """
    inodes: set[str] = set()
    for table in TABLES:
        with contextlib.suppress(OSError):
            inodes |= listening_inodes(table.read_text(), port)
    if not inodes:
        return []
    sockets = {f"socket:[{inode}]" for inode in inodes}
    holders = (_listener(pid) for pid in tree.listed() if sockets & _open_files(pid))
    return sorted(filter(None, holders), key=lambda holder: (holder.started_at, holder.pid))


def listening_inodes(table: str, port: int) -> set[str]:
    """Return the sockets that listen on a port, from the text of ``/proc/net/tcp``.

    Examples
    --------
    >>> header = "  sl  local_address rem_address   st tx rx tr when retrnsmt uid timeout inode"
    >>> line = "   0: 0100007F:1389 00000000:0000 0A 0:0 00:0 00000000 0 0 12345 1"
    >>> listening_inodes(header + chr(10) + line, 5001)
    {'12345'}
    """
    rows = (line.split() for line in table.splitlines()[1:])
    return {
        row[9]
        for row in rows
        if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port
    }


def _open_files(pid: int) -> set[str]:
    names = set()
    with contextlib.suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.add(str(handle.readlink()))
    return names


def _listener(pid: int) -> Listener | None:
    try:
        stat = tree.read_stat(pid)
        command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
    except OSError:
        return None
    if stat is None:
        return None
    words = command.decode(errors="replace").split("\0")
    return Listener(pid, tuple(words), _started_at(stat.started))


def _started_at(ticks: int) -> datetime.datetime:
    """Return the local time of some clock ticks after the machine was started."""
    lines = Path("/proc/stat").read_text().splitlines()
    boot_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    seconds = boot_s + ticks / os.sysconf("SC_CLK_TCK")
    return datetime.datetime.fromtimestamp(seconds).astimezone()
