"""The progress of a campaign: a bar on a terminal, in expected seconds, elsewhere plain lines."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

EVERY_S = 60.0  # between two lines
FORMAT = "{percentage:3.0f}%|{bar:20}| {elapsed}, left {desc}"


logger = logging.getLogger(__name__)


class ProgressBar:
    """A bar on stderr; without a terminal, or without tqdm, log messages at the start of runs.

    Parameters
    ----------
    total_s : float
        Expected seconds of all runs.
    every_s : float
        Least time between two messages. The first run is always announced.
    """

    def __init__(self, total_s: float, every_s: float = EVERY_S) -> None:
        self._bar: Any = None
        self._every_s, self._last_s = every_s, -math.inf
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:  # on a borrowed machine with a GPU
            return
        self._bar = tqdm(total=total_s, disable=None, bar_format=FORMAT)

    def describe(self, text: str) -> None:
        """Show ``text`` behind the bar; without one, log it if enough time has passed."""
        if self._bar is not None and not self._bar.disable:
            self._bar.set_description_str(text)
        elif time.monotonic() - self._last_s >= self._every_s:
            self._last_s = time.monotonic()
            logger.info("left %s", text)

    def advance(self, expected_s: float) -> None:
        """Count a run as finished."""
        if self._bar is not None:
            self._bar.update(expected_s)

    def extend(self, expected_s: float) -> None:
        """Add one more run."""
        if self._bar is not None:
            self._bar.total = (self._bar.total or 0) + expected_s

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
