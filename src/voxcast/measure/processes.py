"""Single processes as ``/proc`` shows them, their marks, and how several are stopped at once.

Files are read with plain system calls: at ten samples a second of a whole tree, Python's file
objects would cost more than the kernel. Parsers take text, so that they can be tested anywhere.

The mark of a run names the process that measures it, so that whatever a dead process left behind
can be recognised. Run ids, control groups and temporary folders begin with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from voxcast.apps.containers import RUN_VARIABLE

_TICKS = os.sysconf("SC_CLK_TCK")
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Stat:
    """``/proc/PID/stat``; `cpu_s` includes the children that the process has waited for."""

    state: str
    ppid: int
    cpu_s: float
    threads: int
    started: int  # ticks since boot: distinguishes processes that reused a process id


class Traffic(NamedTuple):
    """Input and output so far: from and to storage, and by all system calls."""

    read_bytes: float
    write_bytes: float
    called_bytes: float


def parse_stat(text: bytes) -> Stat:
    """Read ``/proc/PID/stat``.

    Examples
    --------
    >>> parse_stat(b"7 (a ) b) R 1 7 7 0 -1 0 0 0 0 0 150 50 100 0 20 0 4 0 99 0 0")
    Stat(state='R', ppid=1, cpu_s=3.0, threads=4, started=99)
    """
    fields = text[text.rindex(b")") + 2 :].split()  # the name may hold spaces and brackets
    ticks = sum(map(int, fields[11:15]))
    return Stat(
        fields[0].decode(), int(fields[1]), ticks / _TICKS, int(fields[17]), int(fields[19])
    )


def parse_resident(status: bytes) -> tuple[int, int]:
    """Return anonymous and shared memory in bytes from ``/proc/PID/status``.

    Pages of files are left out, as in a control group's sum: the kernel can drop them.
    """
    return _kilobytes(status, b"RssAnon:") or 0, _kilobytes(status, b"RssShmem:") or 0


class Shares(NamedTuple):
    """Memory of a process in bytes; in `_share` each page is divided by its users."""

    anonymous: int
    anonymous_share: int
    shared_share: int


def parse_shares(rollup: bytes) -> Shares | None:
    """Read ``/proc/PID/smaps_rollup``; None before Linux 5.4, which includes pages of files."""
    values = [_kilobytes(rollup, name) for name in (b"Anonymous:", b"Pss_Anon:", b"Pss_Shmem:")]
    readable = [value for value in values if value is not None]
    return Shares(*readable) if len(readable) == 3 else None


def parse_traffic(text: bytes) -> Traffic:
    """Read ``/proc/PID/io``; written means handed to storage, now or by the kernel later."""
    pairs = (line.split(b":") for line in text.splitlines())
    values = {name: int(value) for name, value in pairs}
    called = values[b"rchar"] + values[b"wchar"]
    return Traffic(values[b"read_bytes"], values[b"write_bytes"], called)


def read(pid: int, name: str) -> bytes | None:
    """Return ``/proc/PID/name``, or None if the process is gone.

    Raises
    ------
    PermissionError
        If it belongs to another user, or is a setuid program.
    """
    try:
        handle = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return os.read(handle, _READ_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(handle)


def read_stat(pid: int) -> Stat | None:
    """Return the status of ``pid``, or None if it is gone; a zombie is not gone."""
    text = read(pid, "stat")
    return parse_stat(text) if text else None


def listed() -> set[int]:
    """Return the ids of all processes."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208


def alive(pids: set[int]) -> set[int]:
    """Return the part of ``pids`` that is neither gone nor a zombie."""
    return {pid for pid in pids if (stat := read_stat(pid)) and stat.state not in "ZX"}


def is_marked(pid: int, run_id: str) -> bool:
    """Return whether ``pid`` carries ``run_id`` in its environment."""
    mark, text = f"{RUN_VARIABLE}={run_id}".encode(), b""
    try:
        handle = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return False
    try:
        while part := os.read(handle, _READ_BYTES):
            text += part
    except OSError:
        return False
    finally:
        os.close(handle)
    return mark in text and mark in text.split(b"\0")


def marked(run_id: str) -> set[int]:
    """Return the processes that carry ``run_id``, wherever they are."""
    return {pid for pid in listed() if pid != os.getpid() and is_marked(pid, run_id)}


def stop_all(pids: Callable[[], set[int]], grace_s: float, patience_s: float = 10.0) -> None:
    """Send SIGTERM to all ``pids``, wait ``grace_s``, then SIGKILL until none is left."""
    start = time.monotonic()
    if grace_s:
        _signal(pids(), signal.SIGTERM)
    while left := pids():
        elapsed_s = time.monotonic() - start
        if elapsed_s >= grace_s:
            _signal(left, signal.SIGKILL)
        if elapsed_s > grace_s + patience_s:
            return  # stuck in the kernel, e.g. on a dead file server; it dies later
        time.sleep(0.01)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _kilobytes(text: bytes, name: bytes) -> int | None:
    start = text.find(b"\n" + name)
    if start < 0:
        return None
    start += len(name) + 1
    return 1024 * int(text[start : text.index(b"k", start)])


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # opened here: not safe between fork and exec
PREFIX = "voxcast-"  # of control groups and temporary folders
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")
_MARK = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)-[0-9a-z_]+")


def end_with(driver: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; before ``exec``."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:
        os._exit(1)  # it was killed before prctl


def new_run_id() -> str:
    """Return an id for a run that this process measures."""
    return f"{_mark()}{uuid.uuid4().hex[:12]}"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder of this process; it is removed when its block ends."""
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}{_mark()}")


def is_abandoned(name: str) -> bool:
    """Return whether the process named by a mark is dead.

    False for other names, and for processes of another machine, start or container, which cannot
    be seen from here.

    Examples
    --------
    >>> is_abandoned(new_run_id()), is_abandoned("3f2b"), is_abandoned(f"{_machine()}-1-0-a")
    (False, False, True)
    """
    match = _MARK.fullmatch(name.removeprefix(PREFIX))
    if match is None or match[1] != _machine():
        return False
    stat = read_stat(int(match[2]))
    return stat is None or stat.state in "ZX" or stat.started != int(match[3])


def _mark() -> str:
    stat = read_stat(os.getpid())
    return f"{_machine()}-{os.getpid()}-{0 if stat is None else stat.started}-"


def _machine() -> str:
    # Eight digits for this boot and this container, as process ids are reused after either.
    namespace = NAMESPACE.stat().st_ino
    return hashlib.sha256(f"{BOOT_ID.read_text()}{namespace}".encode()).hexdigest()[:8]
