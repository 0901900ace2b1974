"""Sums of counters over a tree of processes that come and go, such as CPU time or bytes read.

The kernel adds a process's counters to its parent's when the parent has waited for it, so the sum
over the living includes the dead. Two exceptions are handled: the last counters of a process whose
parent died first are kept here, and a sum never falls. Not counted are what an orphan does between
the last sample and its end, and children of a parent that ignores SIGCHLD, whose counters the
kernel drops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class ProcessCounters(NamedTuple):
    """One process at one sample; `started` distinguishes processes that reused a process id."""

    started: int
    ppid: int
    values: tuple[float, ...]


class TreeCounters:
    """The sums of ``width`` counters so far.

    Attributes
    ----------
    sums : tuple of float
        Over all processes so far.
    lost : tuple of float
        The part of it that no living process holds.
    """

    def __init__(self, width: int) -> None:
        self.sums: tuple[float, ...] = (0.0,) * width
        self.lost: tuple[float, ...] = (0.0,) * width
        self._last: dict[int, ProcessCounters] = {}

    def add_sample(self, processes: Mapping[int, ProcessCounters]) -> tuple[float, ...]:
        """Add a sample of all processes of the tree, zombies included; return the sums."""
        for pid, last in self._last.items():
            now = processes.get(pid)
            gone = now is None or now.started != last.started
            if gone and last.ppid not in self._last:  # else its parent has its counters
                self.lost = _added(self.lost, last.values)
        self._last = dict(processes)
        total = self.lost
        for counted in processes.values():
            total = _added(total, counted.values)
        self.sums = tuple(map(max, self.sums, total))
        return self.sums


def _added(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))
