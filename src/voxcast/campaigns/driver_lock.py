"""A lock that allows one driver at a time in a folder of runs."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.files import HeldError, process_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 3.0  # a driver that was just killed may hold its lock a little longer


@contextlib.contextmanager
def driver_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``. Its file is beside the folder, which is a stage's output.

    Raises
    ------
    RunError
        If another process holds it, naming that process.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(process_lock(_lock_file(folder), PATIENCE_S))
        except HeldError as held:
            reason = f"another campaign (process {held.pid}) works here"
            raise RunError(reason, folder, "wait for it, or stop it") from None
        yield


def is_locked(folder: Path) -> bool:
    """Tell whether a driver works in ``folder``; nothing is created."""
    try:
        with _lock_file(folder).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no lock was ever taken here
    return False


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"
