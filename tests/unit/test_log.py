"""The package's messages go to stderr once an entry point has set that up."""

import logging
import time

import pytest

from voxcast import log

logger = logging.getLogger("voxcast.some.module")


def test_messages_go_to_the_current_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure()
    logger.info("3 of %d runs are on record", 4)
    logger.debug("not shown")
    captured = capsys.readouterr()
    assert captured.err == "voxcast: 3 of 4 runs are on record\n"
    assert not captured.out


def test_progress_is_a_line_now_and_then_where_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "LINE_EVERY_S", 0.01)
    with caplog.at_level(logging.INFO, logger=log.PACKAGE):
        for _ in log.progress(range(5), desc="reading volumes", unit="volumes"):
            time.sleep(0.02)
    assert any(" of 5 volumes" in message for message in caplog.messages)
    caplog.clear()
    monkeypatch.undo()
    with caplog.at_level(logging.INFO, logger=log.PACKAGE):
        assert list(log.progress(range(5), desc="reading volumes")) == list(range(5))
    assert not caplog.messages  # a short step has no line
