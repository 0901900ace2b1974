"""Phases of a run of several processes, logged once for all of them.

Each process takes the times of its phases. When they have been gathered, one process logs them:
the times are its, and the CPU time is that of all.
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


def log_phases(ranks: Sequence[Sequence[PhaseTimes]]) -> None:
    """Log the phases of all processes, which went through the same ones.

    Parameters
    ----------
    ranks : sequence of sequence of PhaseTimes
        Of each process; the times of the first are logged, as processes wait for each other.
    """
    for times in zip(*ranks, strict=True):
        first = times[0]
        write_phase(first.name, first.start, first.end, sum(rank.cpu_s for rank in times))
