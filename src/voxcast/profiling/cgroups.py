"""A control group of its own for a run: the kernel then counts memory and CPU of the whole tree.

It is made inside the group we are in ourselves, so that limits set from outside stay in force.
Version 1 (a hierarchy for each controller) and version 2 (one hierarchy) are read alike; what
the kernel's text means is in functions of text, so that each can be tested where it is not had.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SELF = Path("/proc/self")
UNIFIED = "unified"
DRIVER = "voxcast-driver"  # where we are ourselves, in a group of version 2
_TEXT_BYTES = 1 << 16


def own_groups(mountinfo: str, membership: str) -> dict[str, Path]:
    """Return the folder of the group we are in for each controller; ``unified`` for version 2.

    Parameters
    ----------
    mountinfo, membership : str
        Texts of ``/proc/self/mountinfo`` and ``/proc/self/cgroup``.
    """
    mounts: dict[str, tuple[str, Path]] = {}
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        names = [UNIFIED] if kind == "cgroup2" else options.split()[-1].split(",")
        if kind in ("cgroup", "cgroup2"):
            mounts |= {name: (root, Path(mount)) for name in names}
    groups = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else [UNIFIED]:
            if name in mounts:
                root, folder = mounts[name]
                # A container has its own part of the tree mounted, but may be told the whole path.
                groups[name] = folder / path.removeprefix(root).lstrip("/")
    return groups


def resident_bytes(memory_stat: str, version: int) -> int:
    """Return anonymous + shared memory from the text of ``memory.stat``, page cache left out."""
    wanted = ("total_rss", "total_shmem") if version == 1 else ("anon", "shmem")
    return sum(_value(memory_stat, name) for name in wanted)


def usage_s(cpu: str, version: int) -> float:
    """Return CPU seconds from ``cpuacct.usage`` (version 1) or ``cpu.stat`` (version 2)."""
    if version == 1:
        return int(cpu) / 1e9
    return _value(cpu, "usage_usec") / 1e6


def oom_kills(events: str) -> int:
    """Return the kernel's count of processes killed for memory.

    ``events`` is the text of ``memory.oom_control`` (version 1) or ``memory.events`` (version 2).
    """
    values = dict(line.split() for line in events.splitlines())
    return int(values.get("oom_kill", 0))


def _value(text: str, name: str) -> int:
    """Return the number after ``name`` at the start of a line; KeyError if there is none.

    Ten times a second: not worth reading all forty lines.
    """
    lines = "\n" + text
    start = lines.find(f"\n{name} ")
    if start < 0:
        raise KeyError(name)
    return int(lines[start + len(name) + 2 :].partition("\n")[0])


class ControlGroup:
    """The control group of one run; files read at each look stay open until `close`.

    Parameters
    ----------
    memory, cpu : Path
        The folder for each controller; the same one in version 2.
    version : int
        1 or 2.
    """

    def __init__(self, memory: Path, cpu: Path, version: int) -> None:
        self.folders = tuple(dict.fromkeys((memory, cpu)))
        self.version = version
        self._handles: dict[Path, int] = {}
        first = version == 1
        self._stat = memory / "memory.stat"
        self._cpu = cpu / ("cpuacct.usage" if first else "cpu.stat")
        self._peak = memory / ("memory.max_usage_in_bytes" if first else "memory.peak")
        self._events = memory / ("memory.oom_control" if first else "memory.events")
        self._threads = memory / ("tasks" if first else "cgroup.threads")
        self._limits = (
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            if first
            else ("memory.max", "memory.swap.max")
        )

    def read(self) -> tuple[int, float]:
        """Return resident bytes and CPU seconds of all that is or was in the group."""
        resident = resident_bytes(self._text(self._stat), self.version)
        return resident, usage_s(self._text(self._cpu), self.version)

    def threads(self) -> int:
        """Return how many threads there are in the group now."""
        # Opened anew: version 1 keeps an open file's list as it was for up to a second.
        handle = os.open(self._threads, os.O_RDONLY)
        try:
            return os.read(handle, _TEXT_BYTES).count(b"\n")
        finally:
            os.close(handle)

    def limit_memory(self, limit_bytes: int) -> None:
        """Set the limit at which the kernel kills; swapping does not raise it."""
        for name, value in zip(self._limits, self._limit_values(limit_bytes), strict=True):
            with contextlib.suppress(OSError):  # no swap accounted; sampling keeps the limit too
                (self.folders[0] / name).write_text(str(value))

    def _limit_values(self, limit_bytes: int) -> tuple[int, int]:
        # Version 1 limits memory with swap, version 2 swap alone.
        return limit_bytes, limit_bytes if self.version == 1 else 0

    def peak_bytes(self) -> int | None:
        """Return the kernel's own peak, page cache included; version 2 has it since Linux 5.19."""
        return int(self._peak.read_text()) if self._peak.exists() else None

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel has killed for memory."""
        return oom_kills(self._events.read_text()) if self._events.exists() else 0

    def close(self) -> None:
        """Close the files and remove the group."""
        while self._handles:
            os.close(self._handles.popitem()[1])
        remove(self.folders)

    def _text(self, path: Path) -> str:
        if path not in self._handles:
            self._handles[path] = os.open(path, os.O_RDONLY)
        return os.pread(self._handles[path], _TEXT_BYTES, 0).decode()


def planned_group(run_id: str) -> ControlGroup | None:
    """Return the group ``voxcast-<run_id>``, which is not there yet; None without groups."""
    try:
        groups = own_groups((SELF / "mountinfo").read_text(), (SELF / "cgroup").read_text())
    except OSError:
        return None
    name = f"voxcast-{run_id}"
    if "memory" in groups and "cpuacct" in groups:
        return ControlGroup(groups["memory"] / name, groups["cpuacct"] / name, 1)
    if UNIFIED in groups:
        folder = delegated(groups[UNIFIED]) / name
        return ControlGroup(folder, folder, 2)
    return None


def delegated(group_folder: Path) -> Path:
    """Return the group of version 2 inside which the memory of other groups is counted.

    There a group that holds processes hands no controller down. A group that is ours alone, as
    ``systemd-run --user --scope -p Delegate=yes voxcast …`` makes one, is therefore left for one
    inside it, beside which the runs get theirs. Any other stays as it is, and runs are then
    measured by their process tree.
    """
    if group_folder.name == DRIVER:
        return group_folder.parent
    with contextlib.suppress(OSError):
        alone = (group_folder / "cgroup.procs").read_text().split() == [str(os.getpid())]
        control = group_folder / "cgroup.subtree_control"
        if alone and "memory" not in control.read_text().split():
            (group_folder / DRIVER).mkdir(exist_ok=True)
            (group_folder / DRIVER / "cgroup.procs").write_text(str(os.getpid()))
            control.write_text("+memory")
    return group_folder


def make_group(run_id: str) -> ControlGroup | None:
    """Make the group ``voxcast-<run_id>``, or return None where that cannot be had."""
    group = planned_group(run_id)
    return None if group is None else _create(group)


def _create(group: ControlGroup) -> ControlGroup | None:
    try:
        for folder in group.folders:
            folder.mkdir()
        group.read()  # version 2 makes folders without the controllers that were not delegated
        for folder in group.folders:
            with (folder / "cgroup.procs").open("wb"):
                pass
    except (OSError, KeyError):
        group.close()
        return None
    return group


def members(folders: Iterable[Path]) -> set[int]:
    """Return the processes in the groups and below."""
    pids: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            pids |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
            # A folder has a link for each folder in it: searching is dear, and seldom needed.
            for inner in folder.glob("**/*/cgroup.procs") if folder.stat().st_nlink > 2 else ():
                with contextlib.suppress(OSError):
                    pids |= {int(pid) for pid in inner.read_text().split()}
    return pids


def remove(folders: Iterable[Path], patience_s: float = 2.0) -> None:
    """Kill what is left in the groups and remove them; groups may be gone already."""
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
