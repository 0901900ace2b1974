"""The next request of a task whose attempt did not complete, by the cause of its end.

A pure function of the attempts so far, so that any process that resumes a submission decides
alike. Too little time takes the next time of the sequence and leaves the memory, and the reverse;
a fault of the cluster does not change the request.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Outcome, Request

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task that has ended; `runtime_s` is 0 if it was never started."""

    request: Request
    outcome: Outcome
    runtime_s: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True)
class RequestSequence:
    """The times and memories that a task requests, both increasing; the rest never changes."""

    walltimes_s: tuple[float, ...]
    memories_bytes: tuple[int, ...]
    cpus: int
    gpus: int = 0
    partition: str = ""
    device: str = "cpu"

    @property
    def first(self) -> Request:
        """The request of the first attempt."""
        return Request(
            self.walltimes_s[0], self.memories_bytes[0], self.cpus, self.gpus, self.partition,
            self.device,
        )  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Where the attempts of a task end.

    Attributes
    ----------
    max_walltime_s, max_memory_bytes : float
        The largest request of the partition.
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


def next_request(
    sequence: RequestSequence, attempts: Sequence[Attempt], limits: Limits
) -> Request | Stop:
    """Return the request of the next attempt, or the reason to stop; attempts are in order."""
    if not attempts:
        return sequence.first
    last, request = attempts[-1], attempts[-1].request
    if last.outcome == "completed":
        return Stop(completed=True)
    if last.outcome == "cancelled":
        return Stop(completed=False, reason="it was cancelled by a user")
    if reason := _reached(attempts, limits):
        return Stop(completed=False, reason=reason)
    if last.outcome == "timeout":
        following = (s for s in sequence.walltimes_s if s > request.walltime_s)
        walltime_s = next(following, limits.factor * request.walltime_s)
        walltime_s = min(walltime_s, limits.max_walltime_s)
        if walltime_s <= request.walltime_s:
            longest = format_seconds(request.walltime_s)
            return Stop(completed=False, reason=f"no request is longer than {longest}")
        return replace(request, walltime_s=walltime_s)
    if last.outcome == "out_of_memory":
        larger = (m for m in sequence.memories_bytes if m > request.memory_bytes)
        memory = next(larger, limits.factor * request.memory_bytes)
        memory_bytes = int(min(memory, limits.max_memory_bytes))
        if memory_bytes <= request.memory_bytes:
            largest = format_bytes(request.memory_bytes)
            return Stop(completed=False, reason=f"no request is larger than {largest}")
        return replace(request, memory_bytes=memory_bytes)
    return request


def _reached(attempts: Sequence[Attempt], limits: Limits) -> str:
    """Return which limit the attempts have reached; empty if none."""
    counts = Counter(attempt.outcome for attempt in attempts)
    if counts["failed"] >= limits.max_failures:
        return f"the application failed{_times(counts['failed'])}"
    if counts["stalled"] >= limits.max_stalls:
        return f"it did nothing and was stopped{_times(counts['stalled'])}"
    if len(attempts) >= limits.max_attempts:
        return f"{len(attempts)} attempts were made"
    if (usd := sum(attempt.usd for attempt in attempts)) >= limits.max_usd:
        return f"its attempts have cost {usd:.3g} USD"
    if (hours := sum(attempt.runtime_s for attempt in attempts) / 3600) >= limits.max_hours:
        return f"its attempts have taken {hours:.3g} h"
    return ""


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""
