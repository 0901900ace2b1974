"""What a meter reads of a run, and what every meter can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.profiling.processes import Traffic


class MeterReading(NamedTuple):
    """One look: memory and threads now, CPU seconds of all there ever was."""

    rss_bytes: int
    cpu_s: float
    threads: int


class Meter(Protocol):
    """What a run is measured by."""

    memory_method: str
    cpu_method: str
    folders: tuple[Path, ...]

    def limit_memory(self, limit_bytes: int) -> None:
        """Have the kernel stop the run at this many bytes, where it can."""

    def follow(self, pid: int) -> None:
        """Say which process leads the tree."""

    def read(self) -> MeterReading:
        """Look at the tree now."""

    def traffic(self) -> Traffic:
        """Return input and output so far."""

    def members(self) -> set[int]:
        """Return the processes known to belong to the run; quick."""

    def pids(self) -> set[int]:
        """Return the living processes of the run, searched for everywhere; slow."""

    def peak_bytes(self) -> int | None:
        """Return the kernel's own peak."""

    def oom_kills(self) -> int:
        """Return how many processes the kernel has killed for memory."""

    def total_cpu_s(self, waited_s: float) -> float:
        """Return CPU seconds at the end; `waited_s` is what the kernel says of the leader."""

    def close(self) -> None:
        """Remove what the meter made."""
