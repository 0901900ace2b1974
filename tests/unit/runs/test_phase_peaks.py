"""Peaks of phases from the samples of their run."""

import pytest

from voxcast.runs.series import MAX_SAMPLES, phase_peak, without_sample

SECONDS, MEMORY = [1.0, 2.0, 3.0], [100, 300, 200]


@pytest.mark.parametrize(
    ("start_s", "end_s", "peak"),
    [
        (1.5, 2.5, 300),  # a sample inside
        (2.2, 2.4, 280),  # between two samples: the higher end
        (2.5, 3.5, 200),  # its own sample, whatever the phase before it held
        (3.2, 3.3, 200),  # after the last sample, within a pause
        (0.5, 0.6, 100),  # before the first
        (4.5, 5.0, None),  # the samples say nothing of it
        (-3.0, -2.0, None),
        (-9.0, 9.0, 300),
    ],
)
def test_a_phase_without_a_sample_has_the_readings_at_its_ends(start_s, end_s, peak) -> None:
    assert phase_peak(SECONDS, MEMORY, start_s, end_s) == peak


def test_a_phase_has_no_sample_where_none_can_have_been_dropped() -> None:
    start_s, end_s = [0.0, 3.2, 3.2], [1.0, 3.8, 6.8]
    assert without_sample([1.0, 2.0, 3.0, 7.0], start_s, end_s).tolist() == [False, True, True]
    thinned = [*range(4), *range(7, MAX_SAMPLES + 3)]
    assert without_sample(thinned, start_s, end_s).tolist() == [False, True, False]
    assert not without_sample([], start_s, end_s).any()
