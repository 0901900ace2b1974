"""How often each client may ask: one bucket of tokens a client, in a table of bounded size."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BURST_S = 2.0  # seconds of the rate that a client may use at once
MAX_CLIENTS = 10_000


@dataclass
class RateLimit:
    """A token bucket for each client.

    Attributes
    ----------
    rate : float
        Requests a second; 0 for no limit.
    clock : callable
        Time in seconds.
    """

    rate: float
    clock: Callable[[], float] = time.monotonic
    # Tokens left, and when; the client that asked last is at the end.
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait_s(self, client: str) -> float:
        """Take a token; return 0, or the seconds until there is one.

        Examples
        --------
        >>> limit = RateLimit(1.0, clock=lambda: 0.0)
        >>> [limit.wait_s("10.0.0.1") for _ in range(3)]
        [0.0, 0.0, 1.0]
        """
        if not self.rate:
            return 0.0
        now, capacity = self.clock(), max(1.0, BURST_S * self.rate)
        tokens, since = self._buckets.pop(client, (capacity, now))
        tokens = min(capacity, tokens + (now - since) * self.rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - allowed, now)
        if len(self._buckets) > MAX_CLIENTS:  # the one that has been silent for longest
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self.rate
