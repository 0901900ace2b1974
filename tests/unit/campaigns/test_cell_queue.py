"""The queue of a sitting: its time left, with the repeats that disturbed runs cause."""

from pathlib import Path

import pytest

from voxcast.campaigns.cell_queue import CellQueue
from voxcast.records import Cell, Configuration


def cell(volume):
    return Cell(
        app="tool", app_version="1", parameters={}, volume_id=volume, subject=volume,
        configuration=Configuration("cpu", 1), scale="full_scale", repeat=0, host_class="h",
    )  # fmt: skip


def finish(queue, noisy):
    key, taken = queue.take()
    with queue.finished(key, taken, 10.0, noisy, Path(key)):
        pass


def queue_of(count, **limits):
    cells = {c.key: c for c in map(cell, map(str, range(count)))}
    return CellQueue(cells, dict.fromkeys(cells, 10.0), **limits)


def test_the_time_left_expects_as_many_disturbed_runs_as_so_far():
    with queue_of(4) as queue:
        assert queue.expected_s() == pytest.approx(40)
        finish(queue, noisy=True)
        assert queue.left_s() == pytest.approx(40)  # three, and the repeat of the first
        assert queue.expected_s() == pytest.approx(40 + 30)
        finish(queue, noisy=False)
        assert queue.expected_s() == pytest.approx(30 + 20 / 2)


def test_no_repeats_are_expected_where_none_are_made():
    with queue_of(2, repeat_until=0.0) as queue:
        finish(queue, noisy=True)
        assert queue.expected_s() == queue.left_s() == pytest.approx(10)
