"""Messages and progress of the library: on stderr, set up in one place for every entry point.

Modules log with ``logging.getLogger(__name__)``. Nothing is configured on import, so a program
that uses voxcast as a library keeps control of its logging.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tqdm import tqdm

PACKAGE = "voxcast"
LINE_EVERY_S = 30.0  # where progress is a line and not a bar
logger = logging.getLogger(__name__)


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


class _Lines:
    """A file for a progress bar, whose states become messages."""

    def write(self, text: str) -> None:
        if line := text.strip():
            logger.info("%s", line)

    def flush(self) -> None:
        """Do nothing: messages are written at once."""


def progress(items: Iterable[Any] | None = None, **options: Any) -> tqdm[Any]:
    """Return a progress bar on a terminal, and else one that writes a line every 30 s.

    Parameters
    ----------
    items : iterable, optional
        Iterated over by the bar; without them, call its ``update``.
    **options
        Options of `tqdm.tqdm`, such as ``desc``, ``total`` and ``unit``.
    """
    from tqdm import tqdm

    if sys.stderr.isatty():
        return tqdm(items, delay=2, **options)
    options |= {"delay": LINE_EVERY_S, "mininterval": LINE_EVERY_S, "leave": False}
    form = "{desc}: {n_fmt} of {total_fmt} {unit}, {elapsed} elapsed, {remaining} left"
    return tqdm(items, file=_Lines(), maxinterval=LINE_EVERY_S, bar_format=form, **options)
