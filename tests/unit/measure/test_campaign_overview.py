"""Time left, and how far a campaign is."""

import dataclasses

import pytest

from synthetic_runs import cell, write_run
from voxcast.measure.campaign import overview, runs_elsewhere
from voxcast.measure.local import PRIOR_S, TimeLeft
from voxcast.measure.plan import CampaignPlan
from voxcast.runs.series import load_records, runs_in


def test_time_left_follows_measured_runs_of_the_same_kind():
    cells = {str(n): cell(n, app="slow" if n % 2 else "quick") for n in range(6)}
    times = TimeLeft(cells, {("slow", "v1"): 10.0, ("quick", "v1"): 10.0})
    assert times.total_s() == pytest.approx(60)
    times.finish("1", 30.0)  # of the other kind nothing better is known yet
    factor = (30 + PRIOR_S) / (10 + PRIOR_S)
    assert times.total_s() == pytest.approx(50 * factor)
    times.finish("0", 10.0)
    assert times.total_s() == pytest.approx(20 * factor + 20)
    assert times.cell_s(cells["3"]) == pytest.approx(10 * factor)


def _keyed(*cells):
    return {cell.key: cell for cell in cells}


def test_overview_counts_cells_and_outcomes(tmp_path):
    cells = _keyed(*(cell(n) for n in range(3)), cell(app="other"), cell(5, app="other"))
    for n, runtime_s in enumerate((1.0, 1.1, 9.0)):
        write_run(tmp_path, cell(n), runtime_s=runtime_s, cpu_s=1.0, noisy=n == 2)
    write_run(tmp_path, cell(app="other"), outcome="timeout", limit_s=9.0)
    plan = CampaignPlan(cells, {}, {("app", "v1"): 2.0, ("other", "v1"): 2.0})
    rows = overview(plan, runs_in(tmp_path), 9.0)
    app, other = rows
    assert (app["app"], app["done"], app["left"], app["noisy"]) == ("app", 3, 0, 1)
    assert (app["outcomes"], other["outcomes"]) == ({"completed": 3}, {"timeout": 1})
    assert (other["done"], other["left"]) == (1, 1)
    assert other["left_s"] == pytest.approx(2.0 * (2.0 + PRIOR_S) / (2.0 + PRIOR_S))
    again = overview(plan, runs_in(tmp_path), 10.0)[1]
    assert (again["done"], again["left"], again["outcomes"]) == (0, 2, {"timeout": 1})


def test_runs_on_other_hardware_count_only_on_request(tmp_path):
    here = _keyed(cell(0), cell(1))
    for n in (0, 1):
        write_run(tmp_path, dataclasses.replace(cell(n), host_class="there"), noisy=True)
    history = load_records(tmp_path)
    assert not set(runs_elsewhere(here, history)) & set(here)
    all_rows = runs_elsewhere(here, history, any_host=True)
    assert set(here) <= set(all_rows)
    assert overview(CampaignPlan(here, {}), {}, None, all_rows)[0]["left"] == 0
