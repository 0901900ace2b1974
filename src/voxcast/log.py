"""Messages of the library: written to stderr, set up in one place for every entry point.

Modules log with ``logging.getLogger(__name__)``. Nothing is configured on import, so a program
that uses voxcast as a library keeps control of its logging.
"""

from __future__ import annotations

import logging
import sys

PACKAGE = "voxcast"


class StderrHandler(logging.Handler):
    """Writes records to the current ``sys.stderr``, even if it is replaced after set-up."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def configure(level: int = logging.INFO) -> None:
    """Write the package's messages from ``level`` upwards to stderr, prefixed ``voxcast:``.

    Calling it again changes the level only.
    """
    logger = logging.getLogger(PACKAGE)
    logger.setLevel(level)
    if any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        return
    handler = StderrHandler()
    handler.setFormatter(logging.Formatter(f"{PACKAGE}: %(message)s"))
    logger.addHandler(handler)
