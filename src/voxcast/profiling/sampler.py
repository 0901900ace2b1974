"""Meters: what a run's processes take, looked at from outside.

Its own control group where one can be had (exact CPU time, shared memory counted once, the memory
limit kept by the kernel); the process tree otherwise. Methods do not agree to the byte:
`memory_method` goes with every measurement.
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
    """A run in its own control group."""

    def __init__(self, group: cgroups.ControlGroup, run_id: str) -> None:
        self.memory_method = self.cpu_method = f"cgroup{group.version}"
        self.folders = group.folders
        self._group = group
        self._run_id = run_id
        self._leader: set[int] = set()
        self._traffic = TrafficMeter()

    def limit_memory(self, limit_bytes: int) -> None:
        """Have the kernel keep the limit too: it sees what happens between two looks."""
        self._group.limit_memory(limit_bytes)

    def follow(self, pid: int) -> None:
        """Remember the leader; it has put itself into the group before it became the run."""
        self._leader = {pid}

    def read(self) -> MeterReading:
        """Look at the group now."""
        return MeterReading(*self._group.read(), self._group.threads())

    def traffic(self) -> Traffic:
        """Return input and output so far."""
        # A leader that has ended is not in the group any more, but holds what its children did.
        return self._traffic.read(sorted(self.members() | self._leader))

    def members(self) -> set[int]:
        """Return the processes of the group."""
        return cgroups.members(self.folders[:1])

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
        self._group.close()


def open_meter(run_id: str, *, groups: bool = True) -> Meter:
    """Return the best meter this machine allows; ``groups=False`` takes the process tree."""
    group = cgroups.make_group(run_id) if groups else None
    return TreeMeter(run_id) if group is None else GroupMeter(group, run_id)
