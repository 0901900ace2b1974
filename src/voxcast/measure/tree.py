"""The meter of a process tree, for machines where a run cannot have its own control group.

Memory is anonymous plus shared memory, as in a control group. For one process it is exact. Pages
shared by several count once where each is divided by its users (PSS). Reading PSS is expensive:
it happens as often as 1.5 % of a core allows, and at once when a large process has started or
ended; in between the sum follows the growth of each process. `memory_method` is then ``pss+rss``,
and ``rss`` where the kernel does not report PSS and shared pages count once for each user.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from voxcast.measure.processes import (
    Shares,
    Stat,
    Traffic,
    alive,
    is_marked,
    listed,
    marked,
    parse_resident,
    parse_shares,
    parse_traffic,
    read,
    read_stat,
)


class Throttle:
    """Decides when a reading is due, by the cost of the last one.

    Parameters
    ----------
    share : float
        Mean share of one core that the readings may use.
    pause_s : float
        Minimum time from one reading to the next.
    """

    def __init__(self, share: float, pause_s: float = 0.0) -> None:
        self._share = share
        self._pause_s = pause_s
        self._next = float("-inf")

    def due(self) -> bool:
        """Return whether the next reading is due."""
        return time.monotonic() >= self._next

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Measure the CPU time of the block in this thread."""
        start, spent_s = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            cost_s = time.thread_time() - spent_s
            self._next = start + max(self._pause_s, cost_s / self._share)


class ProcessCounters(NamedTuple):
    """One process at one sample; `started` distinguishes processes that reused a process id."""

    started: int
    ppid: int
    values: tuple[float, ...]


class TreeCounters:
    """Sums of ``width`` counters over a tree of processes that come and go, such as CPU time.

    The kernel adds a process's counters to its parent's once the parent has waited for it, so the
    sum over living processes includes the dead. Two exceptions are handled: the last counters of a
    process whose parent died first are kept here, and a sum never falls. Missed is the work of an
    orphan between the last sample and its end, and of children whose parent ignores SIGCHLD.

    Attributes
    ----------
    sums : tuple of float
        Over all processes so far.
    lost : tuple of float
        The part that no living process holds.
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


PSS_SHARE = 0.015  # of a core
SEARCH_SHARE = 0.005  # of a core, for new processes: a node may have thousands of others
LARGE = 0.03  # share of the tree's memory whose change triggers a reading of PSS


class MeterReading(NamedTuple):
    """One sample: present memory and threads, CPU seconds of all present and past processes."""

    rss_bytes: int
    cpu_s: float
    threads: int


@dataclass(slots=True)
class _Member:
    """A process of the tree, and its memory at the last reading of PSS."""

    started: int
    anonymous: int = 0
    share: int | None = None  # its PSS; None for a process that started later


class TreeMeter:
    """Measures a run process by process."""

    folders: tuple[Path, ...] = ()
    cpu_method = "rusage"

    def __init__(self, run_id: str) -> None:
        self.memory_method = "pss+rss"
        self._run_id = run_id
        self._others = listed()  # processes older than the run
        self._members: dict[int, _Member] = {}
        self._cpu, self._traffic = TreeCounters(1), TrafficMeter()
        self._search_throttle, self._pss_throttle = Throttle(SEARCH_SHARE), Throttle(PSS_SHARE)
        self._departed = self._shared = self._total = 0

    def limit_memory(self, limit_bytes: int) -> None:
        """Do nothing: the kernel cannot limit a tree."""

    def follow(self, pid: int) -> None:
        """Start from the leader ``pid``."""
        if stat := read_stat(pid):
            self._members[pid] = _Member(stat.started)

    def read(self) -> MeterReading:
        """Sample the tree."""
        if self._search_throttle.due():
            with self._search_throttle.reading():
                self._find()
        stats = self._stats()
        self._cpu.add_sample(
            {pid: ProcessCounters(s.started, s.ppid, (s.cpu_s,)) for pid, s in stats.items()}
        )
        living = {pid: stat for pid, stat in stats.items() if stat.state not in "ZX"}
        rss_bytes = self._resident(living)
        return MeterReading(rss_bytes, self._cpu.sums[0], sum(s.threads for s in living.values()))

    def _find(self) -> None:
        now = listed()
        for pid in sorted(now - self._others - self._members.keys()):
            try:
                stat = read_stat(pid)
            except PermissionError:  # another user's, where /proc hides them
                continue
            # The parent may be gone; the environment that its children inherited is not.
            if stat and (stat.ppid in self._members or is_marked(pid, self._run_id)):
                self._members[pid] = _Member(stat.started)
        self._others = now

    def _stats(self) -> dict[int, Stat]:
        # Parents come first: a child that ends between the two reads is then missed once rather
        # than counted twice.
        stats = {}
        for pid, member in list(self._members.items()):
            stat = read_stat(pid)
            if stat and stat.started == member.started:
                stats[pid] = stat
            else:
                self._departed += member.anonymous
                del self._members[pid]
        return stats

    def _resident(self, living: Iterable[int]) -> int:
        now = {}
        for pid in living:
            if status := read(pid, "status"):
                now[pid] = parse_resident(status)
        plain = sum(anonymous + shared for anonymous, shared in now.values())
        if len(now) < 2 or self.memory_method == "rss":
            self._total, self._departed = plain, 0
            return plain
        moved = self._departed + sum(
            anonymous if self._members[pid].share is None else
            max(0, self._members[pid].anonymous - anonymous)
            for pid, (anonymous, _) in now.items()
        )  # fmt: skip
        if self._pss_throttle.due() or moved > LARGE * self._total:
            with self._pss_throttle.reading():
                self._take_shares(now)
        members = [(self._members[pid], anonymous) for pid, (anonymous, _) in now.items()]
        total = sum(
            anonymous if m.share is None else max(0, m.share + anonymous - m.anonymous)
            for m, anonymous in members
        )
        # Shared memory grows in all of its users at a time, and in each up to what others have.
        self._total = total + max(self._shared, *(shared for _, shared in now.values()))
        return self._total

    def _take_shares(self, now: dict[int, tuple[int, int]]) -> None:
        """Set the PSS of each member, and update ``now`` to the time of this reading."""
        self._departed = self._shared = 0
        for pid, (anonymous, shared) in now.items():
            try:
                rollup = read(pid, "smaps_rollup")
                shares = parse_shares(rollup) if rollup else Shares(0, 0, 0)
            except PermissionError:  # a setuid program
                shares = None
            if shares is None:
                self.memory_method = "rss"
                shares = Shares(anonymous, anonymous, shared)
            member = self._members[pid]
            member.anonymous, member.share = shares.anonymous, shares.anonymous_share
            now[pid] = shares.anonymous, shared
            self._shared += shares.shared_share

    def traffic(self) -> Traffic:
        """Return input and output so far."""
        return self._traffic.read(self._members)

    def members(self) -> set[int]:
        """Return the processes at the last sample."""
        return set(self._members)

    def pids(self) -> set[int]:
        """Return the living processes of the run."""
        self._find()
        return alive(set(self._stats()) | marked(self._run_id))

    def peak_bytes(self) -> int | None:
        """Return None: the kernel keeps no peak of a tree."""

    def oom_kills(self) -> int:
        """Return 0: the kernel does not report here which processes it killed for memory."""
        return 0

    def total_cpu_s(self, waited_s: float) -> float:
        """Return the kernel's sum for the leader plus lost counters, or the sampled sum."""
        return max(waited_s + self._cpu.lost[0], self._cpu.sums[0])

    def close(self) -> None:
        """Do nothing."""


class TrafficMeter:
    """Input and output of processes by ``/proc/PID/io``, with and without a control group.

    A version 1 group counts no buffered writes, and a version 2 group counts them when they reach
    the disk, often after the run; a process is charged when it makes a page dirty.
    """

    def __init__(self) -> None:
        self._counters = TreeCounters(3)

    def read(self, pids: Iterable[int]) -> Traffic:
        """Read the counters of ``pids``; setuid programs are unreadable and left out."""
        counters = {}
        for pid in pids:
            stat = read_stat(pid)
            try:
                text = read(pid, "io")
            except PermissionError:
                continue
            if stat and text:
                counters[pid] = ProcessCounters(stat.started, stat.ppid, parse_traffic(text))
        return Traffic(*self._counters.add_sample(counters))
