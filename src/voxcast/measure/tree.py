"""The processes of a run as ``/proc`` shows them: their marks, their end, and their meter.

Files are read unbuffered, as a whole tree is read ten times a second. Parsers take text, so that
they can be tested anywhere.

The mark of a run names the process that measures it, so that anything left by a dead process can
be recognised. Run ids, control groups and temporary folders begin with it.

The meter of a process tree is for machines where a run cannot have its own control group. Memory
is anonymous plus shared memory, as in a control group. For one process it is exact. Pages shared
by several count once where each is divided by its users (PSS). Reading PSS is expensive: it
happens as often as 1.5 % of a core allows, and at once when a large process has started or ended;
in between the sum follows the growth of each process. `memory_method` is then ``pss+rss``, and
``rss`` where the kernel does not report PSS and shared pages count once for each user.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from voxcast.apps.containers import RUN_VARIABLE

_TICKS = os.sysconf("SC_CLK_TCK")
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Stat:
    """``/proc/PID/stat``; `cpu_s` includes the children that the process has waited for."""

    state: str
    ppid: int
    cpu_s: float
    threads: int
    started: int  # ticks since boot: distinguishes processes that reused a process id


class Traffic(NamedTuple):
    """Input and output so far: from and to storage, and by all system calls."""

    read_bytes: float
    write_bytes: float
    called_bytes: float


def parse_stat(text: bytes) -> Stat:
    """Read ``/proc/PID/stat``.

    Examples
    --------
    >>> parse_stat(b"7 (a ) b) R 1 7 7 0 -1 0 0 0 0 0 150 50 100 0 20 0 4 0 99 0 0")
    Stat(state='R', ppid=1, cpu_s=3.0, threads=4, started=99)
    """
    fields = text[text.rindex(b")") + 2 :].split()  # the name may hold spaces and brackets
    ticks = sum(map(int, fields[11:15]))
    return Stat(
        fields[0].decode(), int(fields[1]), ticks / _TICKS, int(fields[17]), int(fields[19])
    )


def parse_resident(status: bytes) -> tuple[int, int]:
    """Return anonymous and shared memory in bytes from ``/proc/PID/status``.

    Pages of files are left out, as in a control group's sum: the kernel can drop them.
    """
    return _kilobytes(status, b"RssAnon:") or 0, _kilobytes(status, b"RssShmem:") or 0


class Shares(NamedTuple):
    """Memory of a process in bytes; in `_share` each page is divided by its users."""

    anonymous: int
    anonymous_share: int
    shared_share: int


def parse_shares(rollup: bytes) -> Shares | None:
    """Read ``/proc/PID/smaps_rollup``; None before Linux 5.4, which includes pages of files."""
    values = [_kilobytes(rollup, name) for name in (b"Anonymous:", b"Pss_Anon:", b"Pss_Shmem:")]
    readable = [value for value in values if value is not None]
    return Shares(*readable) if len(readable) == 3 else None


def parse_traffic(text: bytes) -> Traffic:
    """Read ``/proc/PID/io``; written means handed to storage, now or by the kernel later."""
    pairs = (line.split(b":") for line in text.splitlines())
    values = {name: int(value) for name, value in pairs}
    called = values[b"rchar"] + values[b"wchar"]
    return Traffic(values[b"read_bytes"], values[b"write_bytes"], called)


def read(pid: int, name: str) -> bytes | None:
    """Return ``/proc/PID/name``, or None if the process is gone.

    Raises
    ------
    PermissionError
        If it belongs to another user, or is a setuid program.
    """
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as stream:  # noqa: PTH123, ten times a second
            return stream.read(_READ_BYTES)
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_stat(pid: int) -> Stat | None:
    """Return the status of ``pid``, or None if it is gone; a zombie is not gone."""
    text = read(pid, "stat")
    return parse_stat(text) if text else None


def listed() -> set[int]:
    """Return the ids of all processes."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208


def alive(pids: set[int]) -> set[int]:
    """Return the part of ``pids`` that is neither gone nor a zombie."""
    return {pid for pid in pids if (stat := read_stat(pid)) and stat.state not in "ZX"}


def mark_of(pid: int) -> str | None:
    """Return the run id in the environment of ``pid``; None without one, or if unreadable."""
    name = f"{RUN_VARIABLE}=".encode()
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(name):
                return variable[len(name) :].decode(errors="replace")
    return None


def marked(run_id: str) -> set[int]:
    """Return the processes that carry ``run_id``, wherever they are."""
    return {pid for pid in listed() if pid != os.getpid() and mark_of(pid) == run_id}


def stop_all(pids: Callable[[], set[int]], grace_s: float, patience_s: float = 10.0) -> None:
    """Send SIGTERM to all ``pids``, wait ``grace_s``, then SIGKILL until none is left."""
    start = time.monotonic()
    if grace_s:
        _signal(pids(), signal.SIGTERM)
    while left := pids():
        elapsed_s = time.monotonic() - start
        if elapsed_s >= grace_s:
            _signal(left, signal.SIGKILL)
        if elapsed_s > grace_s + patience_s:
            return  # stuck in the kernel, e.g. on a dead file server; it dies later
        time.sleep(0.01)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _kilobytes(text: bytes, name: bytes) -> int | None:
    start = text.find(b"\n" + name)
    if start < 0:
        return None
    start += len(name) + 1
    return 1024 * int(text[start : text.index(b"k", start)])


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # opened here: not safe between fork and exec
PREFIX = "voxcast-"  # of control groups and temporary folders
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")
_MARK = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)-[0-9a-z_]+")


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it was killed before prctl


def new_run_id() -> str:
    """Return an id for a run that this process measures."""
    return f"{_mark()}{uuid.uuid4().hex[:12]}"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder of this process; it is removed when its block ends."""
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}{_mark()}")


def is_abandoned(name: str) -> bool:
    """Return whether the process named by a mark is dead.

    False for other names, and for processes of another machine, start or container, which cannot
    be seen from here.

    Examples
    --------
    >>> is_abandoned(new_run_id()), is_abandoned("3f2b"), is_abandoned(f"{_machine()}-1-0-a")
    (False, False, True)
    """
    match = _MARK.fullmatch(name.removeprefix(PREFIX))
    if match is None or match[1] != _machine():
        return False
    stat = read_stat(int(match[2]))
    return stat is None or stat.state in "ZX" or stat.started != int(match[3])


def _mark() -> str:
    stat = read_stat(os.getpid())
    return f"{_machine()}-{os.getpid()}-{0 if stat is None else stat.started}-"


def _machine() -> str:
    # Eight digits for this boot and this container, as process ids are reused after either.
    namespace = NAMESPACE.stat().st_ino
    return hashlib.sha256(f"{BOOT_ID.read_text()}{namespace}".encode()).hexdigest()[:8]


class Throttle:
    """Decides when a reading is due, by the cost of the last one.

    Parameters
    ----------
    share : float
        Mean share of one core that the readings may use.
    pause_s, longest_pause_s : float
        Minimum and maximum time from the start of one reading to the next.
    """

    def __init__(
        self, share: float, pause_s: float = 0.0, longest_pause_s: float = math.inf
    ) -> None:
        self._share = share
        self._pause_s = pause_s
        self._longest_pause_s = longest_pause_s
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
            pause_s = max(self._pause_s, cost_s / self._share)
            self._next = start + min(pause_s, self._longest_pause_s)


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
        self._last: dict[int, tuple[Stat, tuple[float, ...]]] = {}

    def add_sample(
        self, processes: Mapping[int, tuple[Stat, tuple[float, ...]]]
    ) -> tuple[float, ...]:
        """Add a sample of all processes of the tree, zombies included; return the sums."""
        for pid, (last, values) in self._last.items():
            now = processes.get(pid)
            gone = now is None or now[0].started != last.started
            if gone and last.ppid not in self._last:  # else its parent has its counters
                self.lost = _added(self.lost, values)
        self._last = dict(processes)
        total = _added(self.lost, *(values for _, values in processes.values()))
        self.sums = tuple(map(max, self.sums, total))
        return self.sums


def _added(*counters: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*counters, strict=True)))


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
        self._cpu, self._traffic = TreeCounters(1), TreeCounters(3)
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
        self._cpu.add_sample({pid: (stat, (stat.cpu_s,)) for pid, stat in stats.items()})
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
            if stat and (stat.ppid in self._members or mark_of(pid) == self._run_id):
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
        return read_traffic(self._traffic, self._members)

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


def read_traffic(sums: TreeCounters, pids: Iterable[int]) -> Traffic:
    """Add the counters of ``pids`` in ``/proc/PID/io`` to their sums, and return these.

    Used with a control group too: version 1 counts no buffered writes, and version 2 counts them
    when they reach the disk, often after the run; a process is charged when it makes a page
    dirty. Setuid programs are unreadable and left out.
    """
    counters = {}
    for pid in pids:
        stat = read_stat(pid)
        try:
            text = read(pid, "io")
        except PermissionError:
            continue
        if stat and text:
            counters[pid] = stat, tuple(parse_traffic(text))
    return Traffic(*sums.add_sample(counters))
