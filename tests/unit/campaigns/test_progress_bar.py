"""The progress of a campaign where there is no terminal."""

import logging

import pytest

from voxcast.campaigns.progress_bar import ProgressBar


@pytest.mark.parametrize(("every_s", "expected"), [(0.0, 3), (3600.0, 1)])
def test_without_a_terminal_the_runs_are_logged_now_and_then(
    every_s: float, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="voxcast")
    bar = ProgressBar(30.0, every_s)
    for number in (1, 2, 3):
        bar.describe(f"{40 - 10 * number} s, run {number} of 3: tool, 1 CPU")
        bar.advance(10.0)
    bar.close()
    assert caplog.messages[0] == "left 30 s, run 1 of 3: tool, 1 CPU"
    assert len(caplog.messages) == expected
