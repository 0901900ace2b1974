"""What to ask for after an attempt that did not complete, by the cause of its end.

A pure function of the attempts so far: whoever resumes a submission decides as the one before.
Too little time takes the next time of the sequence and leaves the memory, and the reverse; what
the cluster did to the job is no reason to ask for more.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.hpc.attempts import Request
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.hpc.attempts import Attempt

BY_THE_CLUSTER = ("preempted", "node_failure")


@dataclass(frozen=True)
class Ladder:
    """The times and the memories that a task asks for, each taken after the one before failed.

    Attributes
    ----------
    walltimes_s : tuple of float
        Increasing, at least one; a sequence of `voxcast.allocation.requests`.
    memories_bytes : tuple of int
        Increasing, at least one.
    cpus, gpus : int
        The same in every attempt.
    """

    walltimes_s: tuple[float, ...]
    memories_bytes: tuple[int, ...]
    cpus: int
    gpus: int = 0

    @property
    def first(self) -> Request:
        """What the first attempt asks for."""
        return Request(self.walltimes_s[0], self.memories_bytes[0], self.cpus, self.gpus)


@dataclass(frozen=True)
class Bounds:
    """Where attempts end.

    Attributes
    ----------
    max_walltime_s, max_memory_bytes : float
        The largest request of the partition.
    max_attempts : int
        Of all kinds.
    max_failures : int
        Attempts that the application itself failed.
    max_stalls : int
        Attempts that were stopped because they did nothing.
    max_usd, max_hours : float
        Of all attempts of a task together.
    factor : float
        By which a request grows where the sequence has ended.
    """

    max_walltime_s: float = math.inf
    max_memory_bytes: float = math.inf
    max_attempts: int = 10
    max_failures: int = 1
    max_stalls: int = 2
    max_usd: float = math.inf
    max_hours: float = math.inf
    factor: float = 1.5


@dataclass(frozen=True)
class Stop:
    """No further attempt: the task has completed, or is given up for a reason."""

    completed: bool
    reason: str = ""


def next_request(ladder: Ladder, attempts: Sequence[Attempt], bounds: Bounds) -> Request | Stop:
    """Return what the next attempt asks for, or why there is none.

    Parameters
    ----------
    attempts : sequence of Attempt
        All that have ended, in order.

    Returns
    -------
    Request or Stop
    """
    if not attempts:
        return ladder.first
    last = attempts[-1]
    if last.outcome == "completed":
        return Stop(completed=True)
    if last.outcome == "cancelled":
        return Stop(completed=False, reason="it was cancelled by a user")
    if reason := _beyond(attempts, bounds):
        return Stop(completed=False, reason=reason)
    request = last.request
    if last.outcome == "timeout":
        walltime_s = _next(request.walltime_s, ladder.walltimes_s, bounds.max_walltime_s, bounds)
        if walltime_s <= request.walltime_s:
            limit = format_seconds(request.walltime_s)
            return Stop(completed=False, reason=f"no request is longer than {limit}")
        request = Request(walltime_s, request.memory_bytes, request.cpus, request.gpus)
    elif last.outcome == "out_of_memory":
        largest = bounds.max_memory_bytes
        memory = int(_next(request.memory_bytes, ladder.memories_bytes, largest, bounds))
        if memory <= request.memory_bytes:
            limit = format_bytes(request.memory_bytes)
            return Stop(completed=False, reason=f"no request is larger than {limit}")
        request = Request(request.walltime_s, memory, request.cpus, request.gpus)
    return request


def _next(value: float, rungs: Sequence[float], largest: float, bounds: Bounds) -> float:
    """Return the first rung above a value, or else a multiple of it, at most the largest."""
    above = next((rung for rung in rungs if rung > value), bounds.factor * value)
    return min(above, largest)


def _beyond(attempts: Sequence[Attempt], bounds: Bounds) -> str:
    """Return which bound the attempts have reached; empty if none."""
    counts = Counter(attempt.outcome for attempt in attempts)
    if counts["failed"] >= bounds.max_failures:
        return f"the application failed{_times(counts['failed'])}"
    if counts["stalled"] >= bounds.max_stalls:
        return f"it did nothing and was stopped{_times(counts['stalled'])}"
    if len(attempts) >= bounds.max_attempts:
        return f"{len(attempts)} attempts were made"
    if (usd := sum(attempt.usd for attempt in attempts)) >= bounds.max_usd:
        return f"its attempts have cost {usd:.3g} USD"
    if (hours := sum(attempt.runtime_s for attempt in attempts) / 3600) >= bounds.max_hours:
        return f"its attempts have taken {hours:.3g} h"
    return ""


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""
