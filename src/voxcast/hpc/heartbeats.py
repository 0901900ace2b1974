"""Signs of life of workers: the times of their files, by the clock of the file system.

Clocks of machines differ by minutes; times of files on one file system are of one clock.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)


def modified_s(path: Path) -> float | None:
    """Return when a file was last changed, by the clock of its file system; None if it is gone.

    Opened first: an NFS client may answer for a minute from its memory otherwise.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)


class Heartbeat:
    """Touches a file at intervals during its block, from a thread.

    Parameters
    ----------
    path : Path
        An existing file.
    period_s : float
    on_beat : callable
        Called after each beat, in the thread.
    """

    def __init__(self, path: Path, period_s: float, on_beat: Callable[[], None]) -> None:
        self._path, self._period_s, self._on_beat = path, period_s, on_beat
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        is_beating = True
        while not self._ended.wait(self._period_s):
            try:
                os.utime(self._path)
                self._on_beat()
                is_beating = True
            except OSError as error:  # a file server that is away comes back, mostly
                if is_beating:
                    logger.warning("no sign of life can be given: %s", error)
                is_beating = False
