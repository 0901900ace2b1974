import math

import pytest

from voxcast.apps.phase_log import FORMS, stamp_seconds, unwrapped

EXAMPLES = (
    "2024-05-01 12:00:00,123",
    "2024:05:01:12:00:00",
    "240501-12:00:00,123",
    "Wed May  1 12:00:00 UTC 2024",
    "12:00:00.123",
)


def test_every_form_is_read_anywhere_in_a_line():
    assert len(EXAMPLES) == len(FORMS)
    for example in EXAMPLES:
        assert stamp_seconds(f"[{example}] message") % 86400 == pytest.approx(43200, abs=0.5)


def test_dates_count():
    first, later = "2024-02-28T23:59:59.5", "2024/02/29 00:00:00"
    assert stamp_seconds(later) - stamp_seconds(first) == pytest.approx(0.5)
    assert stamp_seconds("Feb 29 00:00:00 2024") == stamp_seconds("240229-00:00:00")


@pytest.mark.parametrize("text", ["", "24:00:00", "12:61:00", "1:2:3"])
def test_numbers_that_are_no_time_are_skipped(text):
    assert math.isnan(stamp_seconds(text))


def test_a_bare_clock_goes_on_after_midnight():
    assert unwrapped([86399.0, 1.0, 2.0, 86399.0, 3.0]) == [
        86399.0, 86401.0, 86402.0, 2 * 86400 - 1, 2 * 86400 + 3,
    ]  # fmt: skip
