"""Phases of a run of several processes, logged once for all of them.

Each process takes the times of its phases. At the end one process logs its times with the CPU time
of all, which the processes have added up.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.apps.phase_log import process_cpu_s, process_start, write_phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class PhaseTimes:
    """A phase of one process: `start` and `end` in seconds of ``CLOCK_MONOTONIC``."""

    name: str
    start: float
    end: float
    cpu_s: float


class RankPhases:
    """The phases of this process so far; the first is its start."""

    def __init__(self) -> None:
        self.times = [PhaseTimes("start", process_start(), time.monotonic(), process_cpu_s())]

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Take the times of the block as the phase ``name``."""
        start, cpu_s = time.monotonic(), process_cpu_s()
        yield
        end = time.monotonic()
        self.times.append(PhaseTimes(name, start, end, process_cpu_s() - cpu_s))

    @property
    def cpu_s(self) -> list[float]:
        """CPU seconds of each phase in this process."""
        return [times.cpu_s for times in self.times]


def log_phases(times: Sequence[PhaseTimes], cpu_s: Sequence[float]) -> None:
    """Log the phases of a run with the CPU time of all its processes.

    Parameters
    ----------
    times : sequence of PhaseTimes
        Of one process; the others went through the same phases.
    cpu_s : sequence of float
        Of each phase, the sum over the processes.
    """
    for phase, total_s in zip(times, cpu_s, strict=True):
        write_phase(phase.name, phase.start, phase.end, float(total_s))
