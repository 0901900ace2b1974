"""A control group for each run: the kernel then counts memory and CPU of the whole tree.

It is created inside our own group, so that limits set from outside stay in force. Version 1 (a
hierarchy for each controller) and version 2 (one hierarchy) are supported; the kernel's files are
parsed by functions of text, so that both can be tested on any machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.profiling.run_marks import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

SELF = Path("/proc/self")
UNIFIED = "unified"
DRIVER = "voxcast-driver"  # our group inside a delegated group of version 2
_TEXT_BYTES = 1 << 16


def current_groups(mountinfo: str, membership: str) -> dict[str, Path]:
    """Return the folder of our control group by controller; ``unified`` for version 2.

    Parameters
    ----------
    mountinfo, membership : str
        Texts of ``/proc/self/mountinfo`` and ``/proc/self/cgroup``.
    """
    mounts: dict[str, tuple[str, Path]] = {}
    for line in mountinfo.splitlines():
        fields, _, filesystem = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = filesystem.split(" ", 2)
        names = [UNIFIED] if kind == "cgroup2" else options.split()[-1].split(",")
        if kind in ("cgroup", "cgroup2"):
            mounts |= {name: (root, Path(mount)) for name in names}
    groups = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else [UNIFIED]:
            if name in mounts:
                root, folder = mounts[name]
                # A container has only a part of the tree mounted, but may see the full path.
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

    Called ten times a second, so the forty lines are not all parsed.
    """
    lines = "\n" + text
    start = lines.find(f"\n{name} ")
    if start < 0:
        raise KeyError(name)
    return int(lines[start + len(name) + 2 :].partition("\n")[0])


class ControlGroup:
    """The control group of one run; files read at each sample stay open until `close`.

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
        is_v1 = version == 1
        self._stat = memory / "memory.stat"
        self._cpu = cpu / ("cpuacct.usage" if is_v1 else "cpu.stat")
        self._peak = memory / ("memory.max_usage_in_bytes" if is_v1 else "memory.peak")
        self._events = memory / ("memory.oom_control" if is_v1 else "memory.events")
        self._threads = memory / ("tasks" if is_v1 else "cgroup.threads")
        self._limits = (
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            if is_v1
            else ("memory.max", "memory.swap.max")
        )

    def read(self) -> tuple[int, float]:
        """Return resident bytes and CPU seconds of all present and past processes of the group."""
        resident = resident_bytes(self._text(self._stat), self.version)
        return resident, usage_s(self._text(self._cpu), self.version)

    def threads(self) -> int:
        """Return the number of threads in the group."""
        # Reopened: version 1 caches the list of an open file for up to a second.
        handle = os.open(self._threads, os.O_RDONLY)
        try:
            return os.read(handle, _TEXT_BYTES).count(b"\n")
        finally:
            os.close(handle)

    def limit_memory(self, limit_bytes: int) -> None:
        """Set the kernel's memory limit; swap does not raise it."""
        for name, value in zip(self._limits, self._limit_values(limit_bytes), strict=True):
            with contextlib.suppress(OSError):  # swap not accounted; sampling enforces the limit
                (self.folders[0] / name).write_text(str(value))

    def _limit_values(self, limit_bytes: int) -> tuple[int, int]:
        # Version 1 limits memory with swap, version 2 swap alone.
        return limit_bytes, limit_bytes if self.version == 1 else 0

    def peak_bytes(self) -> int | None:
        """Return the kernel's peak, page cache included; version 2 has it since Linux 5.19."""
        return int(self._peak.read_text()) if self._peak.exists() else None

    def oom_kills(self) -> int:
        """Return the number of processes of the group that the kernel has killed for memory."""
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
    """Return the group ``voxcast-<run_id>``, not created yet; None without control groups."""
    try:
        groups = current_groups((SELF / "mountinfo").read_text(), (SELF / "cgroup").read_text())
    except OSError:
        return None
    name = f"{PREFIX}{run_id}"
    if "memory" in groups and "cpuacct" in groups:
        return ControlGroup(groups["memory"] / name, groups["cpuacct"] / name, 1)
    if UNIFIED in groups:
        folder = delegated(groups[UNIFIED]) / name
        return ControlGroup(folder, folder, 2)
    return None


def delegated(group_folder: Path) -> Path:
    """Return the group of version 2 in which the groups of runs can count memory.

    A group that holds processes cannot delegate controllers. If we are alone in our group, as in
    ``systemd-run --user --scope -p Delegate=yes voxcast …``, we therefore move to a group inside
    it, and the groups of runs are created beside that. Any other group is unchanged, and runs are
    then measured by their process tree.
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
    """Create the group ``voxcast-<run_id>``, or return None where that is not possible."""
    group = planned_group(run_id)
    return None if group is None else _create(group)


def groups_of_runs() -> list[Path]:
    """Return the groups of all runs on this machine that can be seen, also of other drivers."""
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


def _create(group: ControlGroup) -> ControlGroup | None:
    try:
        for folder in group.folders:
            folder.mkdir()
        group.read()  # version 2 creates folders without controllers that are not delegated
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
            # The link count shows whether there are folders inside: a search is costly.
            for inner in folder.glob("**/*/cgroup.procs") if folder.stat().st_nlink > 2 else ():
                with contextlib.suppress(OSError):
                    pids |= {int(pid) for pid in inner.read_text().split()}
    return pids


def remove(folders: Iterable[Path], patience_s: float = 2.0) -> None:
    """Kill what is left in the groups and remove them; missing groups are ignored."""
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
