"""The progress bar of a campaign, in expected seconds; none where tqdm is not installed."""

from __future__ import annotations

from typing import Any

FORMAT = "{percentage:3.0f}%|{bar:20}| {elapsed}, left {desc}"


class ProgressBar:
    """A bar on stderr, shown on a terminal only.

    Parameters
    ----------
    total_s : float
        Expected seconds of all runs.
    """

    def __init__(self, total_s: float) -> None:
        self._bar: Any = None
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:  # on a borrowed machine with a GPU
            return
        self._bar = tqdm(total=total_s, disable=None, bar_format=FORMAT)

    def describe(self, text: str) -> None:
        """Show ``text`` behind the bar."""
        if self._bar is not None:
            self._bar.set_description_str(text)

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
