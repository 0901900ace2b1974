"""Cores and memory of this machine, handed to tasks in the order in which they ask."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class CorePool:
    """Free cores and memory.

    A task that does not fit lets no later one pass: it would wait for ever behind small ones.
    """

    cores: list[int]
    memory_bytes: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _queue: deque[object] = field(default_factory=deque)

    @contextmanager
    def held(self, cpus: int, memory_bytes: int) -> Iterator[list[int]]:
        """Wait for cores and memory, and give them back at the end.

        Parameters
        ----------
        cpus, memory_bytes : int
            No more than all; else this waits for ever.
        """
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            self._changed.wait_for(
                lambda: (
                    self._queue[0] is ticket
                    and len(self.cores) >= cpus
                    and self.memory_bytes >= memory_bytes
                )
            )
            self._queue.popleft()
            chosen, self.cores = self.cores[:cpus], self.cores[cpus:]
            self.memory_bytes -= memory_bytes
            self._changed.notify_all()
        try:
            yield chosen
        finally:
            with self._changed:
                self.cores = sorted([*self.cores, *chosen])
                self.memory_bytes += memory_bytes
                self._changed.notify_all()
