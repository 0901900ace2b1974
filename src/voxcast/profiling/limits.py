"""The limits of a run: wall time, memory, and time without activity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.records import Outcome

IDLE_CORES = 0.01  # CPU use below which a run is idle; a waiting interpreter takes 0.001


@dataclass(frozen=True)
class RunLimits:
    """The limits at which a run is stopped; None for no limit."""

    time_limit_s: float | None = None
    mem_limit_bytes: int | None = None
    stall_s: float | None = None

    def reached(self, t_s: float, rss_bytes: int, idle_s: float, oom_kills: int) -> Outcome | None:
        """Return the outcome of a run that is stopped now, or None if it may continue.

        Parameters
        ----------
        t_s : float
            Seconds since the start.
        rss_bytes : int
            Memory of the tree.
        idle_s : float
            How long it has been idle, see `IdleTime`.
        oom_kills : int
            Number of processes that the kernel has killed: their parents may wait forever.
        """
        if oom_kills or (self.mem_limit_bytes is not None and rss_bytes > self.mem_limit_bytes):
            return "out_of_memory"
        if self.time_limit_s is not None and t_s >= self.time_limit_s:
            return "timeout"
        if self.stall_s is not None and idle_s >= self.stall_s:
            return "stalled"
        return None


@dataclass
class IdleTime:
    """How long a run has been idle: no I/O, no GPU, and CPU below `IDLE_CORES`.

    Parameters
    ----------
    stall_s : float or None
        Time over which CPU use is averaged; None without a limit.
    """

    stall_s: float | None
    _since_s: float = field(default=0.0, init=False)
    _cpu_s: float = field(default=0.0, init=False)
    _moved: float = field(default=0.0, init=False)

    def update(self, t_s: float, cpu_s: float, moved: float, *, gpu_busy: bool = False) -> float:
        """Add a sample; return for how many seconds the run has been idle.

        ``cpu_s`` and ``moved`` (bytes, of any kind) are sums since the start of the run.
        """
        if self.stall_s is None:
            return 0.0
        used_s = cpu_s - self._cpu_s
        if gpu_busy or moved > self._moved or used_s >= IDLE_CORES * self.stall_s:
            self._since_s, self._cpu_s, self._moved = t_s, cpu_s, moved
        return t_s - self._since_s
