"""Time left, and how far a campaign is."""

import dataclasses
import time

import pytest

from synthetic_runs import cell, write_run
from voxcast.campaigns.cell_queue import CellQueue
from voxcast.campaigns.cells import repeat_of
from voxcast.campaigns.overview import overview, rows_elsewhere
from voxcast.campaigns.time_left import PRIOR_S, TimeLeft
from voxcast.history.run_folders import load_records, record_rows
from voxcast.records import Configuration


def test_time_left_follows_measured_runs_of_the_same_kind():
    cells = {str(n): cell(n, app="slow" if n % 2 else "quick") for n in range(6)}
    times = TimeLeft(cells, dict.fromkeys(cells, 10.0))
    assert times.total_s() == pytest.approx(60)
    times.finish("1", cells["1"], 30.0)  # of the other kind nothing better is known yet
    factor = (30 + PRIOR_S) / (10 + PRIOR_S)
    assert times.total_s() == pytest.approx(50 * factor)
    times.finish("0", cells["0"], 10.0)
    assert times.total_s() == pytest.approx(20 * factor + 20)
    assert times.cell_s("3", cells["3"]) == pytest.approx(10 * factor)


def test_noisy_runs_are_repeated_at_the_end_while_there_is_time(tmp_path):
    first, second = cell(0), cell(1)
    for minutes, expected in ((60, [first, second, repeat_of(first)]), (-60, [first, second])):
        taken = []
        with CellQueue(
            _keyed(first, second), {}, repeat_until=time.monotonic() + minutes
        ) as queue:
            while (entry := queue.take()) is not None:
                taken.append(entry[1])
                with queue.finished(*entry, 1.0, entry[1] != second, tmp_path):
                    pass
        assert taken == expected
    waiting = _keyed(second, repeat_of(first), cell(1001))
    with CellQueue(waiting, {}, repeat_until=time.monotonic() - 1) as queue:
        assert queue.take()[1] == second
        assert queue.take()[1] == cell(1001)  # an anchor is no repeat of a noisy run
        assert queue.take() is None


def test_only_narrow_cpu_cells_run_in_parallel():
    wide = cell(configuration=Configuration("cpu", 4))
    gpu = cell(configuration=Configuration("gpu", 1, gpus=1))
    with CellQueue(_keyed(wide, gpu, cell()), {}) as queue:
        assert queue.take(1)[1] == cell()
        assert queue.take(1) is None
        assert [queue.take()[1], queue.take()[1]] == [wide, gpu]


def _keyed(*cells):
    return {cell.key: cell for cell in cells}


def test_overview_counts_cells_outcomes_and_the_noise_of_quiet_repeats(tmp_path):
    cells = _keyed(*(cell(n) for n in range(3)), cell(app="other"), cell(5, app="other"))
    for n, runtime_s in enumerate((1.0, 1.1, 9.0)):
        write_run(tmp_path, cell(n), runtime_s=runtime_s, cpu_s=1.0, noisy=n == 2)
    write_run(tmp_path, cell(app="other"), outcome="timeout")
    rows = overview(cells, dict.fromkeys(cells, 2.0), record_rows(tmp_path))
    app, other = rows
    assert (app["app"], app["done"], app["left"], app["noisy"]) == ("app", 3, 1, 1)
    assert (app["outcomes"], other["outcomes"]) == ({"completed": 3}, {"timeout": 1})
    assert (other["done"], other["left"]) == (1, 1)
    assert app["repeated"] == 1
    assert app["cv_runtime"] == pytest.approx(0.0673, abs=1e-4)
    assert app["cv_cpu"] == 0.0
    assert other["cv_cpu"] is None
    assert other["left_s"] == pytest.approx(2.0 * (2.0 + PRIOR_S) / (2.0 + PRIOR_S))
    again = overview(cells, {}, record_rows(tmp_path), [cell(app="other").key])[1]
    assert (again["done"], again["left"], again["outcomes"]) == (0, 2, {"timeout": 1})
    write_run(tmp_path, repeat_of(cell(2)))  # the noisy one, once more
    assert overview(cells, {}, record_rows(tmp_path))[0]["left"] == 0


def test_runs_on_other_hardware_count_only_on_request(tmp_path):
    here = _keyed(cell(0), cell(1))
    for n in (0, 1):
        write_run(tmp_path, dataclasses.replace(cell(n), host_class="there"), noisy=True)
    history = load_records(tmp_path)
    assert not set(rows_elsewhere(here, history)) & set(here)
    all_rows = rows_elsewhere(here, history, any_host=True)
    assert set(here) <= set(all_rows)
    assert overview(here, {}, all_rows)[0]["left"] == 0  # noise of other hardware is not ours
    same = rows_elsewhere(_keyed(*(dataclasses.replace(c, host_class="there")
                                    for c in here.values())), history)  # fmt: skip
    assert all(row["noisy"] for row in same.values())
