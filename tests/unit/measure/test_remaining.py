"""What a campaign would still run, how far it is, and how its cells are run here."""

from __future__ import annotations

import dataclasses
import sys
import time

import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.measure.campaign import measure_smallest, outlook, overview, remaining, runs_elsewhere
from voxcast.measure.local import PRIOR_S, LocalRunner, TimeLeft, run_campaign
from voxcast.measure.plan import CampaignPlan, CampaignSettings, Sweep, make_plan
from voxcast.measure.record import base_of
from voxcast.measure.trace import Conditions
from voxcast.records import App, Configuration
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


def test_nothing_is_left_of_a_plan_without_runs():
    table = outlook(CampaignPlan({}, {}), {})
    assert table[table["left"]]["expected_s"].sum() == 0
    assert overview(CampaignPlan({}, {}), {}) == []


SCRIPT = "import sys, time; time.sleep(0.05); sys.exit('b.nii' in sys.argv[1] and {code})"
SWEEP = Sweep("images", (), {}, None, "full_scale", None, 0, (), 1, None)


@pytest.fixture
def catalogue(tmp_path):
    names = ["a.nii", "b.nii", "c.nii"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    sizes = [30, 20, 10]
    return pd.DataFrame(
        {
            "volume_id": names, "subject": names, "problem": None,
            "path": [str(tmp_path / name) for name in names],
            "shape_i": sizes, "shape_j": sizes, "shape_k": sizes,
        }
    )  # fmt: skip


def settings_of(tmp_path, code=0, **values):
    app = App("tool", "1", argv=(sys.executable, "-c", SCRIPT.format(code=code), "{image}"))
    return CampaignSettings(
        apps={"tool": dataclasses.replace(app, **values)},
        runs=tmp_path / "runs",
        sweeps=(SWEEP,),
        configurations=(Configuration("cpu", 1),),
        conditions=Conditions(time_limit_s=60, metronome=False),
    )


def test_times_of_an_application_that_states_none_are_not_trusted_before_a_run(
    tmp_path, catalogue
):
    settings = settings_of(tmp_path)
    plan = make_plan(settings, catalogue)
    before = remaining(settings, plan)
    assert (before.total, before.left, before.trusted) == (3, 3, False)
    stated = settings_of(tmp_path, expected_startup_s=20.0)
    assert remaining(stated, make_plan(stated, catalogue)).trusted

    row = measure_smallest(settings, plan)
    assert row.volume_id == "c.nii"
    assert row.outcome == "completed"
    after = remaining(settings, plan)
    assert (after.total, after.left, after.trusted) == (3, 2, True)
    assert 0 < after.shortest_s <= after.left_s < before.left_s


def test_the_same_voxels_in_two_files_are_one_run(tmp_path, catalogue):
    again = pd.concat([catalogue, catalogue.head(1).assign(path=str(tmp_path / "copy.nii"))])
    settings = settings_of(tmp_path)
    assert make_plan(settings, again).cells == make_plan(settings, catalogue).cells


def test_where_the_smallest_image_fails_the_next_one_tells_the_time(tmp_path, catalogue):
    settings = settings_of(tmp_path, code=3)
    small_and_bad = catalogue.assign(shape_i=[30, 1, 10])
    plan = make_plan(settings, small_and_bad)
    assert measure_smallest(settings, plan).volume_id == "c.nii"
    ahead = remaining(settings, plan)
    assert (ahead.left, ahead.failed, ahead.trusted) == (2, 1, True)
    assert 0 < ahead.failed_s < ahead.left_s
    rows = runs_in(settings.runs)
    assert sorted(row.outcome for row in rows.values()) == ["completed", "failed"]


def test_a_run_stopped_at_a_shorter_limit_is_measured_again(tmp_path, catalogue):
    settings = settings_of(tmp_path, argv=("sleep", "1"), input="none")
    short = dataclasses.replace(settings, conditions=Conditions(0.2, metronome=False))
    plan = make_plan(short, catalogue)
    run_campaign(short, plan)
    assert [row.outcome for row in runs_in(short.runs).values()] == ["timeout"]
    assert run_campaign(short, plan).runs == []
    assert remaining(settings, plan).left == 1
    run_campaign(settings, plan)
    assert [row.outcome for row in runs_in(short.runs).values()] == ["completed"]


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
