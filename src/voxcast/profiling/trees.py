"""The meter of a process tree, for machines where a run cannot have its own control group.

Memory is anonymous plus shared memory, as a control group has it. One process is read exactly.
Pages shared by several count once where each is divided by its users (PSS), which is costly to
ask: that is done as often as 1.5 % of a core allows, and at once when a large process has come or
gone; in between the sum follows the growth of each process. `memory_method` is then ``pss+rss``,
and ``rss`` where the kernel does not say PSS and shared pages count as often as they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.profiling.meter import MeterReading
from voxcast.profiling.processes import (
    Shares,
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
from voxcast.profiling.throttle import Throttle
from voxcast.profiling.tree_counters import ProcessCounters, TreeCounters

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from voxcast.profiling.processes import Stat

PSS_SHARE = 0.015  # of a core
SEARCH_SHARE = 0.005  # of a core, for new processes: a node may have thousands of others
LARGE = 0.03  # part of the tree's memory that is worth a costly look at once


@dataclass(slots=True)
class _Member:
    """A process of the tree, and its memory at the last costly look."""

    started: int
    anonymous: int = 0
    share: int | None = None  # its part of that (PSS); None for one that was not there


class TreeMeter:
    """A run looked at process by process."""

    folders: tuple[Path, ...] = ()
    cpu_method = "rusage"

    def __init__(self, run_id: str) -> None:
        self.memory_method = "pss+rss"
        self._run_id = run_id
        self._others = listed()  # those there before the run are none of it
        self._known: dict[int, _Member] = {}
        self._cpu, self._traffic = TreeCounters(1), TrafficMeter()
        self._search, self._look = Throttle(SEARCH_SHARE), Throttle(PSS_SHARE)
        self._departed = self._shared = self._total = 0

    def limit_memory(self, limit_bytes: int) -> None:
        """Nothing to do: nobody but us watches over a tree."""

    def follow(self, pid: int) -> None:
        """Start from the leader ``pid``."""
        if stat := read_stat(pid):
            self._known[pid] = _Member(stat.started)

    def read(self) -> MeterReading:
        """Look at the tree now."""
        if self._search.due():
            with self._search.look():
                self._find()
        stats = self._stats()
        self._cpu.look(
            {pid: ProcessCounters(s.started, s.ppid, (s.cpu_s,)) for pid, s in stats.items()}
        )
        living = {pid: stat for pid, stat in stats.items() if stat.state not in "ZX"}
        rss_bytes = self._resident(living)
        return MeterReading(rss_bytes, self._cpu.sums[0], sum(s.threads for s in living.values()))

    def _find(self) -> None:
        now = listed()
        for pid in sorted(now - self._others - self._known.keys()):
            try:
                stat = read_stat(pid)
            except PermissionError:  # another user's, where /proc hides them
                continue
            # A parent may be gone already; what it gave its children to inherit is not.
            if stat and (stat.ppid in self._known or is_marked(pid, self._run_id)):
                self._known[pid] = _Member(stat.started)
        self._others = now

    def _stats(self) -> dict[int, Stat]:
        # Parents come first: a child that ends between the two looks is then missed once rather
        # than counted twice.
        stats = {}
        for pid, member in list(self._known.items()):
            stat = read_stat(pid)
            if stat and stat.started == member.started:
                stats[pid] = stat
            else:
                self._departed += member.anonymous
                del self._known[pid]
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
            anonymous if self._known[pid].share is None else
            max(0, self._known[pid].anonymous - anonymous)
            for pid, (anonymous, _) in now.items()
        )  # fmt: skip
        if self._look.due() or moved > LARGE * self._total:
            with self._look.look():
                self._take_shares(now)
        members = [(self._known[pid], anonymous) for pid, (anonymous, _) in now.items()]
        total = sum(
            anonymous if m.share is None else max(0, m.share + anonymous - m.anonymous)
            for m, anonymous in members
        )
        # Shared memory grows in all of its users at a time, and in each up to what others have.
        self._total = total + max(self._shared, *(shared for _, shared in now.values()))
        return self._total

    def _take_shares(self, now: dict[int, tuple[int, int]]) -> None:
        """Set each member's base, and bring ``now`` to the instant that this was read at."""
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
            member = self._known[pid]
            member.anonymous, member.share = shares.anonymous, shares.anonymous_share
            now[pid] = shares.anonymous, shared
            self._shared += shares.shared_share

    def traffic(self) -> Traffic:
        """Return input and output so far."""
        return self._traffic.read(self._known)

    def members(self) -> set[int]:
        """Return the processes seen at the last look."""
        return set(self._known)

    def pids(self) -> set[int]:
        """Return the living processes of the run."""
        self._find()
        return alive(set(self._stats()) | marked(self._run_id))

    def peak_bytes(self) -> int | None:
        """Return None: nobody has kept it."""

    def oom_kills(self) -> int:
        """Return 0: the kernel does not say whom it killed for memory."""
        return 0

    def total_cpu_s(self, waited_s: float) -> float:
        """Return the kernel's sum for the leader and what it misses, or the looks' if larger."""
        return max(waited_s + self._cpu.lost[0], self._cpu.sums[0])

    def close(self) -> None:
        """Nothing was made."""


class TrafficMeter:
    """Input and output of processes by ``/proc/PID/io``, with and without a control group.

    A version 1 group counts no buffered writes, and a version 2 group counts them when they reach
    the disk, often after the run; a process is charged when it makes a page dirty.
    """

    def __init__(self) -> None:
        self._counters = TreeCounters(3)

    def read(self, pids: Iterable[int]) -> Traffic:
        """Look at ``pids``; a setuid program's are not told to us and miss in the sums."""
        counters = {}
        for pid in pids:
            stat = read_stat(pid)
            try:
                text = read(pid, "io")
            except PermissionError:
                continue
            if stat and text:
                counters[pid] = ProcessCounters(stat.started, stat.ppid, parse_traffic(text))
        return Traffic(*self._counters.look(counters))
