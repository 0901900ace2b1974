"""The interface of meters, which measure the processes of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.profiling.processes import Traffic


class MeterReading(NamedTuple):
    """One sample: present memory and threads, CPU seconds of all present and past processes."""

    rss_bytes: int
    cpu_s: float
    threads: int


class Meter(Protocol):
    """Measures the processes of a run."""

    memory_method: str
    cpu_method: str
    folders: tuple[Path, ...]

    def limit_memory(self, limit_bytes: int) -> None:
        """Have the kernel stop the run at this many bytes, where it can."""

    def follow(self, pid: int) -> None:
        """Set the leader of the process tree."""

    def read(self) -> MeterReading:
        """Sample the tree."""

    def traffic(self) -> Traffic:
        """Return input and output so far."""

    def members(self) -> set[int]:
        """Return the processes known to belong to the run; quick."""

    def pids(self) -> set[int]:
        """Return the living processes of the run, searched among all processes; slow."""

    def peak_bytes(self) -> int | None:
        """Return the kernel's peak."""

    def oom_kills(self) -> int:
        """Return the number of processes that the kernel has killed for memory."""

    def total_cpu_s(self, waited_s: float) -> float:
        """Return CPU seconds at the end; `waited_s` is the kernel's figure for the leader."""

    def close(self) -> None:
        """Remove what the meter created."""
