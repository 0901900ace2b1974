"""The processes of runs as ``/proc`` shows them: their marks, their end, what they leave behind.

The mark of a run names the process that measures it, so that anything left by a dead process can
be recognised. Run ids, control groups and temporary folders begin with it. Where that process is
killed the kernel ends the leader of the run. Processes that it started, the control group and the
temporary folder stay; they are removed before the next run, and by ``voxcast doctor --clean``.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from voxcast.apps.containers import RUN_VARIABLE
from voxcast.errors import VoxcastError
from voxcast.files import read_json, remove_folder

DRIVER_FILE = "driver.json"  # in the folder of a run while it runs
SELF = Path("/proc/self")
DRIVER = "voxcast-driver"  # our group inside a delegated group of version 2
_TICKS = os.sysconf("SC_CLK_TCK")
_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # opened here: not safe between fork and exec
PREFIX = "voxcast-"  # of control groups and temporary folders
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")
_MARK = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)-[0-9a-z_]+")
Kind = Literal["processes", "control group", "folder", "file"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stat:
    """``/proc/PID/stat``; `cpu_s` includes the children that the process has waited for."""

    state: str
    ppid: int
    cpu_s: float
    threads: int
    started: int  # ticks since boot: distinguishes processes that reused a process id


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


def read(pid: int, name: str) -> bytes | None:
    """Return ``/proc/PID/name``, or None if the process is gone.

    Raises
    ------
    PermissionError
        If it belongs to another user, or is a setuid program.
    """
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as stream:  # noqa: PTH123, ten times a second
            return stream.read(_READ_BYTES)
    except (FileNotFoundError, ProcessLookupError):
        return None


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


def mark_of(pid: int) -> str | None:
    """Return the run id in the environment of ``pid``; None without one, or if unreadable."""
    name = f"{RUN_VARIABLE}=".encode()
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(name):
                return variable[len(name) :].decode(errors="replace")
    return None


def marked(run_id: str) -> set[int]:
    """Return the processes that carry ``run_id``, wherever they are."""
    return {pid for pid in listed() if pid != os.getpid() and mark_of(pid) == run_id}


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


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
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


def groups_of_runs() -> list[Path]:
    """Return the groups of all runs on this machine that we can see, of other drivers too."""
    try:
        lines = (SELF / "mountinfo").read_text().splitlines()
    except OSError:
        return []
    mounts = {line.split()[4] for line in lines if line.partition(" - ")[2].startswith("cgroup")}
    return [
        Path(parent, name)
        for mount in sorted(mounts)
        for parent, names, _ in os.walk(mount)
        for name in names
        if name.startswith(PREFIX) and name != DRIVER
    ]


def members(folders: Iterable[Path]) -> set[int]:
    """Return the processes in the groups and below."""
    pids: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            # The link count shows whether there are folders inside: a search is costly.
            inner = folder.glob("**/*/cgroup.procs") if folder.stat().st_nlink > 2 else ()
            for path in (folder / "cgroup.procs", *inner):
                with contextlib.suppress(OSError):
                    pids |= {int(pid) for pid in path.read_text().split()}
    return pids


def remove_groups(folders: Iterable[Path], patience_s: float = 2.0) -> None:
    """Kill the processes left in the groups and remove them; missing groups are ignored."""
    folders = tuple(folders)
    deadline = time.monotonic() + patience_s
    while True:
        for pid in members(folders):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for folder in folders:
            with contextlib.suppress(OSError):
                for inner in sorted(folder.glob("**/*/"), reverse=True):
                    inner.rmdir()
                folder.rmdir()
        if not any(folder.exists() for folder in folders) or time.monotonic() > deadline:
            return
        time.sleep(0.01)


@dataclass(frozen=True)
class Leftover:
    """One thing to remove: `name` is a run's id for processes, else a path."""

    kind: Kind
    name: str
    pids: tuple[int, ...] = ()
    size_bytes: int = 0

    def __str__(self) -> str:
        if self.kind != "processes":
            return f"{self.kind} {self.name}"
        numbers = ", ".join(map(str, self.pids))
        return f"process{'es' if len(self.pids) > 1 else ''} {numbers} of a run that was abandoned"


def abandoned() -> list[Leftover]:
    """Return everything that dead drivers of this user left on this machine."""
    return [*_processes(), *_groups(), *_temporary_folders()]


def remove(leftover: Leftover) -> None:
    """Remove a leftover; nothing happens if it is gone already.

    Raises
    ------
    VoxcastError
        If it is still there afterwards.
    """
    path = Path(leftover.name)
    if leftover.kind == "processes":
        stop_all(lambda: alive(marked(leftover.name)), grace_s=0.0)
        stays = bool(alive(marked(leftover.name)))
    elif leftover.kind == "control group":
        remove_groups([path])
        stays = path.exists()
    else:
        with contextlib.suppress(OSError):
            remove_folder(path) if path.is_dir() else path.unlink(missing_ok=True)
        stays = path.exists()
    if stays:
        raise VoxcastError("cannot be removed", leftover, "it may belong to another user")


def sweep_abandoned() -> None:
    """Remove the leftovers of dead drivers, and log each; some may belong to another user."""
    for leftover in abandoned():
        try:
            remove(leftover)
            logger.info("removed %s", leftover)
        except VoxcastError as error:
            logger.warning("%s", error)


def sweep(folder: Path) -> None:
    """Remove the folder of a run whose driver is dead, and kill its remaining processes."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = read_json(folder / DRIVER_FILE)
        groups = map(Path, content["groups"])
        # The file may have been written by others: no other group is emptied.
        remove_groups(group for group in groups if group.name == f"{PREFIX}{content['run_id']}")
        stop_all(lambda: marked(content["run_id"]), grace_s=0.0)
    remove_folder(folder)


def was_abandoned(folder: Path) -> bool:
    """Return whether a folder is of a run whose driver is dead."""
    try:
        return is_abandoned(read_json(folder / DRIVER_FILE)["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def size_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder; links count nothing."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


def _processes() -> Iterator[Leftover]:
    by_run: dict[str, set[int]] = {}
    for pid in listed() - {os.getpid()}:
        if run_id := mark_of(pid):
            by_run.setdefault(run_id, set()).add(pid)
    for run_id, pids in by_run.items():
        if is_abandoned(run_id) and (left := alive(pids)):
            yield Leftover("processes", run_id, tuple(sorted(left)))


def _groups() -> Iterator[Leftover]:
    for folder in groups_of_runs():
        if is_abandoned(folder.name) and os.access(folder.parent, os.W_OK):
            yield Leftover("control group", str(folder))


def _temporary_folders() -> Iterator[Leftover]:
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        is_ours = path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
        if is_ours and is_abandoned(path.name):
            yield Leftover("folder", str(path), size_bytes=size_bytes(path))
