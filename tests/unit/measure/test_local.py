"""Running cells locally: deadlines, core sets, progress."""

import logging
import time

import pytest

from synthetic_runs import cell
from voxcast.measure import local
from voxcast.measure.local import LocalRunner, TimeLeft
from voxcast.measure.record import base_of
from voxcast.records import Configuration


def keyed(*cells):
    return {cell.key: cell for cell in cells}


def done(cells, core_sets=(), **options):
    """Run cells; return them in the order in which they were run."""
    made = []

    def work(taken, cores, metronome):
        made.append((taken, cores))
        return base_of(taken)

    runner = LocalRunner(TimeLeft(keyed(*cells), {}), work, metronome=False, **options)
    runner.run(core_sets)
    return made


def test_only_narrow_cpu_cells_run_beside_others():
    wide = cell(configuration=Configuration("cpu", 4))
    gpu = cell(configuration=Configuration("gpu", 1, gpus=1))
    made = done([wide, gpu, cell()], core_sets=[[0], [1]])
    assert made[0][0] == cell()
    assert made[0][1] in ([0], [1])
    assert made[1:] == [(wide, None), (gpu, None)]


def test_no_cell_is_started_that_would_not_end_by_the_deadline():
    long, short = cell(volume_id="large"), cell(volume_id="small")
    times = TimeLeft(keyed(long, short), {("app", "large"): 1000.0, ("app", "small"): 0.1})
    runner = LocalRunner(
        times, lambda c, *_: base_of(c), deadline=time.monotonic() + 60, metronome=False
    )
    runner.run()
    assert (runner.ended, times.left) == ([short.key], keyed(long))


def test_an_error_in_one_thread_stops_the_rest():
    def work(taken, *_):
        raise OSError("full")

    times = TimeLeft(keyed(*(cell(n) for n in range(9))), {})
    runner = LocalRunner(times, work, metronome=False)
    with pytest.raises(OSError, match="full"):
        runner.run([[0], [1]])
    assert runner.stopping.is_set()
    assert len(times.left) >= 7


@pytest.mark.parametrize(("every_s", "expected"), [(0.0, 3), (3600.0, 1)])
def test_the_time_left_is_logged_now_and_then(every_s, expected, caplog, monkeypatch):
    monkeypatch.setattr(local, "EVERY_S", every_s)
    caplog.set_level(logging.INFO, logger="voxcast")
    done([cell(n) for n in range(3)])
    assert caplog.messages[0] == "left 3.00 s, run 1 of 3: app sub-s1, cpu, 1 CPU"
    assert len(caplog.messages) == expected
