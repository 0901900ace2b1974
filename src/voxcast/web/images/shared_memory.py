"""The memory that the readers of a service may take together."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class SharedMemory:
    """Lends a number of bytes to threads, in the order in which they ask.

    Parameters
    ----------
    total_bytes : int
        Lent at a time at most.

    Examples
    --------
    >>> memory = SharedMemory(100)
    >>> with memory.lent(60), memory.lent(40):
    ...     memory.free_bytes
    0
    """

    def __init__(self, total_bytes: int) -> None:
        self.free_bytes = total_bytes
        self._turn = threading.Lock()  # whoever waits for much is not overtaken for ever
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def lent(self, size_bytes: int) -> Iterator[None]:
        """Wait for some bytes, and hold them for the block."""
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self.free_bytes >= size_bytes)
            self.free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self.free_bytes += size_bytes
                self._changed.notify_all()
