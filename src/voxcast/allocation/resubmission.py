"""What a simulated job asks for after it was killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Resubmission:
    """The next time after a timeout, the next memory after a lack of it; the other stays.

    As `voxcast.jobs.escalate` does it for jobs of a cluster.

    Attributes
    ----------
    times_s, memories_bytes : mapping of int to sequence of float
        Requests by job number, increasing; memory is that of each processor.
    factor : float
        By which a request grows where its sequence has ended.
    max_attempts : int
        After which a job is given up.
    """

    times_s: Mapping[int, Sequence[float]] = field(default_factory=dict)
    memories_bytes: Mapping[int, Sequence[float]] = field(default_factory=dict)
    factor: float = 1.5
    max_attempts: int = 10

    def following(
        self, number: int, requested_s: float, requested_bytes: float, is_short_of_memory: bool,
        attempt: int, most_bytes: float,
    ) -> tuple[float, float] | None:  # fmt: skip
        """Return time and memory of an attempt, or None if there is none.

        Parameters
        ----------
        attempt : int
            Its number; the first is 1.
        most_bytes : float
            The most memory that a processor can have.
        """
        if attempt > self.max_attempts:
            return None
        if not is_short_of_memory:
            return self._next(requested_s, self.times_s.get(number, ())), requested_bytes
        more = min(self._next(requested_bytes, self.memories_bytes.get(number, ())), most_bytes)
        return (requested_s, more) if more > requested_bytes else None

    def _next(self, value: float, sequence: Sequence[float]) -> float:
        return next((rung for rung in sequence if rung > value), self.factor * value)
