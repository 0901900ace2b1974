"""Meters: memory and CPU of a run's process tree, looked at from outside.

Its own control group where one can be had (exact CPU time, shared memory counted once, about
0.1 % of a core at 10 Hz); the process tree by psutil otherwise. Methods do not agree to the
byte: `memory_method` goes with every measurement.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from voxcast.profiling import cgroups

# Inherited by every process of a run: finds those that left both tree and session.
RUN_VARIABLE = "VOXCAST_RUN"


@dataclass(frozen=True)
class Sample:
    """One instant of a run; `t_s` counts from its start, `cpu_s` is the tree's sum so far."""

    t_s: float
    rss_bytes: int
    cpu_s: float


class Meter(Protocol):
    """What a run is measured by."""

    memory_method: str
    cpu_method: str
    folders: tuple[Path, ...]

    def follow(self, pid: int) -> None:
        """Say which process leads the tree."""

    def read(self) -> tuple[int, float]:
        """Return resident bytes and CPU seconds of the tree now."""

    def pids(self) -> set[int]:
        """Return the living processes of the tree."""

    def peak_bytes(self) -> int | None:
        """Return the kernel's own peak."""

    def oom_kills(self) -> int:
        """Return how many processes the kernel has killed for memory."""

    def total_cpu_s(self, waited_s: float) -> float:
        """Return CPU seconds at the end; `waited_s` is what the kernel says of the leader."""

    def close(self) -> None:
        """Remove what the meter made."""


class GroupMeter:
    """A run in its own control group."""

    def __init__(self, group: cgroups.Group, run_id: str) -> None:
        self.memory_method = self.cpu_method = f"cgroup{group.version}"
        self.folders = group.folders
        self._group = group
        self._run_id = run_id

    def follow(self, pid: int) -> None:
        """Nothing to do: the leader has put itself into the group before it became the run."""

    def read(self) -> tuple[int, float]:
        """Return resident bytes and CPU seconds of the group."""
        return self._group.read()

    def pids(self) -> set[int]:
        """Return the living processes of the group, and of the run if one left the group."""
        return alive(cgroups.members(self.folders) | marked(self._run_id))

    def peak_bytes(self) -> int | None:
        """Return the kernel's own peak, page cache included."""
        return self._group.peak_bytes()

    def oom_kills(self) -> int:
        """Return how many processes the kernel has killed for memory."""
        return self._group.oom_kills()

    def total_cpu_s(self, waited_s: float) -> float:
        """Return the group's CPU time, which holds every process that ever was in it."""
        return self._group.read()[1]

    def close(self) -> None:
        """Remove the group."""
        cgroups.remove(self.folders)


class TreeMeter:
    """A run looked at process by process, where there is no control group to be had."""

    folders: tuple[Path, ...] = ()
    cpu_method = "rusage"

    def __init__(self, run_id: str) -> None:
        self.memory_method = "pss"
        self._run_id = run_id
        self._known: dict[int, psutil.Process] = {}
        self._cpu_s = 0.0

    def follow(self, pid: int) -> None:
        """Start from the leader ``pid``."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._known[pid] = psutil.Process(pid)

    def read(self) -> tuple[int, float]:
        """Return resident bytes and CPU seconds of the tree."""
        resident, cpu_s = 0, 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                # A parent's `children` are those it has waited for; the others are in the sum.
                cpu_s += times.user + times.system + times.children_user + times.children_system
                resident += self._resident(process)
        self._cpu_s = max(self._cpu_s, cpu_s)
        return resident, self._cpu_s

    def _tree(self) -> list[psutil.Process]:
        # Those once seen stay known: a child whose parent has died is nobody's child any more.
        self._known = {pid: p for pid, p in self._known.items() if p.is_running()}
        for process in list(self._known.values()):
            # Each look at children goes over all of /proc: once for the leader, once per orphan.
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.ppid() not in self._known:
                    for child in process.children(recursive=True):
                        self._known.setdefault(child.pid, child)
        return list(self._known.values())

    def _resident(self, process: psutil.Process) -> int:
        if self.memory_method == "pss":
            try:
                return int(process.memory_full_info().pss)
            except psutil.AccessDenied:
                self.memory_method = "rss"  # a setuid program; shared pages count twice from here
        return int(process.memory_info().rss)

    def pids(self) -> set[int]:
        """Return the living processes of the tree."""
        return alive({process.pid for process in self._tree()} | marked(self._run_id))

    def peak_bytes(self) -> int | None:
        """Return None: nobody has kept it."""

    def oom_kills(self) -> int:
        """Return 0: the kernel does not say whom it killed for memory."""
        return 0

    def total_cpu_s(self, waited_s: float) -> float:
        """Return the leader's and its waited-for children's CPU, or the samples' if larger."""
        return max(waited_s, self._cpu_s)

    def close(self) -> None:
        """Nothing was made."""


def open_meter(run_id: str, *, groups: bool = True) -> Meter:
    """Return the best meter this machine allows; ``groups=False`` takes the process tree."""
    group = cgroups.make_group(run_id) if groups else None
    return TreeMeter(run_id) if group is None else GroupMeter(group, run_id)


def alive(pids: set[int]) -> set[int]:
    """Return those of ``pids`` that are neither gone nor zombies."""
    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
    return found


def marked(run_id: str) -> set[int]:
    """Return the processes that carry ``run_id`` in their environment, wherever they went."""
    mark = f"{RUN_VARIABLE}={run_id}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found
