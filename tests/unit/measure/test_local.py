"""Running cells locally: order, repeats of noisy runs, deadlines, core sets, progress."""

import dataclasses
import logging
import math
import time

import pytest

from synthetic_runs import cell
from voxcast.measure.local import LocalRunner, ProgressBar, repeat_of
from voxcast.measure.record import base_of
from voxcast.records import Configuration


def keyed(*cells):
    return {cell.key: cell for cell in cells}


def run_of(of, noisy=False):
    return dataclasses.replace(base_of(of), noisy=noisy)


def done(cells, noisy=(), core_sets=(), **options):
    """Run cells; return them in the order in which they were run, and the runner."""
    made = []

    def work(taken, cores, metronome):
        made.append((taken, cores))
        return run_of(taken, taken in noisy)

    runner = LocalRunner(keyed(*cells), {}, work, metronome=False, **options)
    runner.run(core_sets)
    return made, runner


@pytest.mark.parametrize(("minutes", "repeated"), [(60, True), (-60, False)])
def test_noisy_runs_are_repeated_at_the_end_while_there_is_time(minutes, repeated):
    first, second = cell(0), cell(1)
    until = time.monotonic() + minutes
    made, runner = done([first, second], noisy=[first], repeat_until=until)
    assert [c for c, _ in made] == [first, second, *([repeat_of(first)] if repeated else [])]
    assert runner.ended == [c.key for c, _ in made]


def test_after_its_time_no_repeat_is_made_but_local_runs_are():
    waiting = [cell(1), repeat_of(cell(0)), cell(1001)]
    made, _ = done(waiting, repeat_until=time.monotonic() - 1)
    assert [c for c, _ in made] == [cell(1), cell(1001)]


def test_only_narrow_cpu_cells_run_beside_others():
    wide = cell(configuration=Configuration("cpu", 4))
    gpu = cell(configuration=Configuration("gpu", 1, gpus=1))
    made, _ = done([wide, gpu, cell()], core_sets=[[0], [1]])
    assert made[0][0] == cell()
    assert made[0][1] in ([0], [1])
    assert made[1:] == [(wide, None), (gpu, None)]


def test_no_cell_is_started_that_would_not_end_by_the_deadline():
    cells = keyed(cell(0), cell(1))
    expected = dict(zip(cells, (1000.0, 0.1), strict=True))
    runner = LocalRunner(
        cells, expected, lambda c, *_: run_of(c), deadline=time.monotonic() + 60, metronome=False
    )
    runner.run()
    assert (runner.ended, runner.left) == ([cell(1).key], 1)


def test_a_cell_that_was_stopped_unrecorded_stays_in_the_queue():
    runner = LocalRunner(keyed(cell(0), cell(1)), {}, lambda *_: None, metronome=False)
    runner.run()
    assert (runner.ended, runner.left) == ([], 2)


def test_an_error_in_one_thread_stops_the_rest():
    stopped = []

    def work(taken, *_):
        raise OSError("full")

    runner = LocalRunner(keyed(*(cell(n) for n in range(9))), {}, work, metronome=False)
    with pytest.raises(OSError, match="full"):
        runner.run([[0], [1]], stop=lambda: stopped.append(1))
    assert stopped == [1]
    assert runner.left >= 7


@pytest.mark.parametrize(("until", "more"), [(math.inf, (30, 10)), (0.0, (0, 0))])
def test_the_time_left_expects_as_many_disturbed_runs_as_so_far(until, more):
    cells, seen = keyed(*(cell(n) for n in range(4))), []

    def on_end(ended, run):
        seen.append((runner.expected_s() - runner.left_s, runner.left))

    runner = LocalRunner(
        cells, dict.fromkeys(cells, 10.0), lambda c, *_: run_of(c, c == cell(0)),
        repeat_until=until, on_end=on_end, metronome=False,
    )  # fmt: skip
    runner.run()
    factor = 20.0 / 10.0  # of times that are near zero here: see PRIOR_S
    assert seen[0][0] == pytest.approx(more[0] / factor, abs=1e-2)
    assert seen[0][1] == (4 if more[0] else 3)


@pytest.mark.parametrize(("every_s", "expected"), [(0.0, 3), (3600.0, 1)])
def test_without_a_terminal_the_runs_are_logged_now_and_then(every_s, expected, caplog):
    caplog.set_level(logging.INFO, logger="voxcast")
    progress = ProgressBar(30.0, every_s)
    for number in (1, 2, 3):
        progress.describe(f"{40 - 10 * number} s, run {number} of 3: tool, 1 CPU")
        progress.advance(10.0)
    progress.close()
    assert caplog.messages[0] == "left 30 s, run 1 of 3: tool, 1 CPU"
    assert len(caplog.messages) == expected
