"""Meters of the resources that the processes of a run use, from outside.

A control group where available (exact CPU time, shared memory counted once, the memory limit
enforced by the kernel); the process tree otherwise. The methods differ slightly, so
`memory_method` is recorded with every measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.profiling import cgroups
from voxcast.profiling.meter import MeterReading
from voxcast.profiling.processes import alive, marked
from voxcast.profiling.trees import TrafficMeter, TreeMeter

if TYPE_CHECKING:
    from voxcast.profiling.meter import Meter
    from voxcast.profiling.processes import Traffic


class GroupMeter:
    """Measures a run in its own control group."""

    def __init__(self, group: cgroups.ControlGroup, run_id: str) -> None:
        self.memory_method = self.cpu_method = f"cgroup{group.version}"
        self.folders = group.folders
        self._group = group
        self._run_id = run_id
        self._leader: set[int] = set()
        self._traffic = TrafficMeter()

    def limit_memory(self, limit_bytes: int) -> None:
        """Have the kernel enforce the limit too, which covers the time between samples."""
        self._group.limit_memory(limit_bytes)

    def follow(self, pid: int) -> None:
        """Remember the leader; it has joined the group before it became the command."""
        self._leader = {pid}

    def read(self) -> MeterReading:
        """Sample the group."""
        return MeterReading(*self._group.read(), self._group.threads())

    def traffic(self) -> Traffic:
        """Return input and output so far."""
        # A leader that has ended has left the group, but holds the counters of its children.
        return self._traffic.read(sorted(self.members() | self._leader))

    def members(self) -> set[int]:
        """Return the processes of the group."""
        return cgroups.members(self.folders[:1])

    def pids(self) -> set[int]:
        """Return the living processes of the group, and those of the run that left it."""
        return alive(cgroups.members(self.folders) | marked(self._run_id))

    def peak_bytes(self) -> int | None:
        """Return the kernel's peak, page cache included."""
        return self._group.peak_bytes()

    def oom_kills(self) -> int:
        """Return the number of processes that the kernel has killed for memory."""
        return self._group.oom_kills()

    def total_cpu_s(self, waited_s: float) -> float:
        """Return the group's CPU time, which includes all past processes."""
        return self._group.read()[1]

    def close(self) -> None:
        """Remove the group."""
        self._group.close()


def open_meter(run_id: str, *, groups: bool = True) -> Meter:
    """Return the best meter this machine allows; ``groups=False`` uses the process tree."""
    group = cgroups.make_group(run_id) if groups else None
    return TreeMeter(run_id) if group is None else GroupMeter(group, run_id)
