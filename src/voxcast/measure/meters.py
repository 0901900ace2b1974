"""The meter of a run in its own control group, and the choice of a meter.

The kernel counts memory and CPU time of the whole group, shared memory once, and enforces the
memory limit. The group is created inside our own, so that limits set from outside stay in force.
Version 1 (one hierarchy per controller) and version 2 (one hierarchy) are supported. Where no
group can be created the process tree is sampled, see `voxcast.measure.tree`. The methods differ
slightly, so `memory_method` is recorded with every run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from voxcast.measure.tree import (
    PREFIX,
    MeterReading,
    Traffic,
    TreeCounters,
    TreeMeter,
    alive,
    marked,
    read_traffic,
)

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
    """Return anonymous + shared memory from the text of ``memory.stat``, without page cache."""
    wanted = ("total_rss", "total_shmem") if version == 1 else ("anon", "shmem")
    return sum(_value(memory_stat, name) for name in wanted)


def usage_s(cpu: str, version: int) -> float:
    """Return CPU seconds from ``cpuacct.usage`` (version 1) or ``cpu.stat`` (version 2)."""
    return int(cpu) / 1e9 if version == 1 else _value(cpu, "usage_usec") / 1e6


def oom_kills(events: str) -> int:
    """Return how many processes the kernel killed for memory.

    ``events`` is the text of ``memory.oom_control`` (version 1) or ``memory.events`` (version 2).
    """
    values = dict(line.split() for line in events.splitlines())
    return int(values.get("oom_kill", 0))


def _value(text: str, name: str) -> int:
    # Called ten times a second, so the forty lines are not all parsed.
    lines = "\n" + text
    start = lines.find(f"\n{name} ")
    if start < 0:
        raise KeyError(name)
    return int(lines[start + len(name) + 2 :].partition("\n")[0])


class GroupMeter:
    """Measures a run in its own control group; files read at each sample stay open until `close`.

    Parameters
    ----------
    memory, cpu : Path
        The folder for each controller; the same one in version 2.
    version : int
        1 or 2.
    run_id : str
        The mark of the run, by which processes that left the group are found.
    """

    def __init__(self, memory: Path, cpu: Path, version: int, run_id: str = "") -> None:
        self.folders = tuple(dict.fromkeys((memory, cpu)))
        self.memory_method = self.cpu_method = f"cgroup{version}"
        self._version, self._run_id = version, run_id
        self._handles: dict[Path, int] = {}
        self._leader: set[int] = set()
        self._traffic = TreeCounters(3)
        is_v1 = version == 1
        self._stat = memory / "memory.stat"
        self._cpu = cpu / ("cpuacct.usage" if is_v1 else "cpu.stat")
        self._peak = memory / ("memory.max_usage_in_bytes" if is_v1 else "memory.peak")
        self._events = memory / ("memory.oom_control" if is_v1 else "memory.events")
        self._threads = memory / ("tasks" if is_v1 else "cgroup.threads")

    def limit_memory(self, limit_bytes: int) -> None:
        """Have the kernel enforce the limit too, which covers the time between samples."""
        # Version 1 limits memory with swap, version 2 swap alone.
        limits = {"memory.max": limit_bytes, "memory.swap.max": 0}
        if self._version == 1:
            names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            limits = dict.fromkeys(names, limit_bytes)
        for name, value in limits.items():
            with contextlib.suppress(OSError):  # swap not accounted; sampling enforces the limit
                (self.folders[0] / name).write_text(str(value))

    def follow(self, pid: int) -> None:
        """Remember the leader; it joined the group before it became the command."""
        self._leader = {pid}

    def read(self) -> MeterReading:
        """Sample the group; CPU time includes all past processes."""
        resident = resident_bytes(self._text(self._stat), self._version)
        cpu_s = usage_s(self._text(self._cpu), self._version)
        # Not kept open: version 1 caches the list of an open file for up to a second.
        handle = os.open(self._threads, os.O_RDONLY)
        try:
            return MeterReading(resident, cpu_s, os.read(handle, _TEXT_BYTES).count(b"\n"))
        finally:
            os.close(handle)

    def traffic(self) -> Traffic:
        """Return input and output so far."""
        # A leader that has ended has left the group, but holds the counters of its children.
        return read_traffic(self._traffic, sorted(self.members() | self._leader))

    def members(self) -> set[int]:
        """Return the processes of the group."""
        return members(self.folders[:1])

    def pids(self) -> set[int]:
        """Return the living processes of the run, also where they left the group."""
        return alive(members(self.folders) | marked(self._run_id))

    def peak_bytes(self) -> int | None:
        """Return the kernel's peak, page cache included; version 2 has it since Linux 5.19."""
        return int(self._peak.read_text()) if self._peak.exists() else None

    def oom_kills(self) -> int:
        """Return the number of processes that the kernel has killed for memory."""
        return oom_kills(self._events.read_text()) if self._events.exists() else 0

    def total_cpu_s(self, waited_s: float) -> float:
        """Return the group's CPU time at the end."""
        return self.read().cpu_s

    def close(self) -> None:
        """Close the files and remove the group."""
        while self._handles:
            os.close(self._handles.popitem()[1])
        remove(self.folders)

    def _text(self, path: Path) -> str:
        if path not in self._handles:
            self._handles[path] = os.open(path, os.O_RDONLY)
        return os.pread(self._handles[path], _TEXT_BYTES, 0).decode()


Meter = GroupMeter | TreeMeter


def open_meter(run_id: str, group: GroupMeter | None) -> Meter:
    """Create a planned group, or return a meter of the process tree where that is not possible."""
    if group is not None:
        try:
            for folder in group.folders:
                folder.mkdir()
            group.read()  # version 2 creates folders without controllers that are not delegated
            for folder in group.folders:
                (folder / "cgroup.procs").open("wb").close()
            return group
        except (OSError, KeyError):
            group.close()
    return TreeMeter(run_id)


def planned_group(run_id: str) -> GroupMeter | None:
    """Return the group ``voxcast-<run_id>`` before it exists; None without control groups."""
    try:
        groups = current_groups((SELF / "mountinfo").read_text(), (SELF / "cgroup").read_text())
    except OSError:
        return None
    name = f"{PREFIX}{run_id}"
    if "memory" in groups and "cpuacct" in groups:
        return GroupMeter(groups["memory"] / name, groups["cpuacct"] / name, 1, run_id)
    if UNIFIED in groups:
        folder = delegated(groups[UNIFIED]) / name
        return GroupMeter(folder, folder, 2, run_id)
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


def remove(folders: Iterable[Path], patience_s: float = 2.0) -> None:
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
