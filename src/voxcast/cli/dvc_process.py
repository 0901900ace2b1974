"""DVC as a process of ``voxcast learn``: it ends with its stages when that process is gone."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

# What ends the stages, and the time that each signal has: runs that are measured end first.
ENDINGS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PATIENCE_S = 5.0
LOOK_EVERY_S = 0.5
LOCKED = 75  # exit status where another DVC works in the project
INTERRUPTED = ("exited with -2", "exited with 130")


def main(arguments: list[str]) -> int:
    """Run ``dvc`` with the arguments after the first, which is the process that started it."""
    import dvc.cli
    import dvc.cli.parser
    import dvc.commands.repro
    import dvc.repo.open_repo

    parent, *rest = arguments
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    errors = _Errors()
    for handler in logging.getLogger("dvc").handlers:
        handler.addFilter(errors)
    status = int(dvc.cli.main(rest))
    return LOCKED if errors.locked else status


class _Errors(logging.Filter):
    """Leaves out interruptions, and the advice to delete a lock in use."""

    locked = False

    def filter(self, record: logging.LogRecord) -> bool:
        from dvc.lock import LockError

        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            if isinstance(error, LockError):
                self.locked = True
                return False
            if str(error).endswith(INTERRUPTED):
                return False
            error = error.__cause__
        return True


def _end_with(parent: int) -> None:
    """Interrupt all processes of the group, ever more firmly, once ``parent`` was killed."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    for signal_number in ENDINGS:
        os.killpg(0, signal_number)
        time.sleep(PATIENCE_S)
