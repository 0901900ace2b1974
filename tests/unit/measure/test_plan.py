"""The cells of a campaign: keys, sweeps, designs; what is still to run, and how."""

import dataclasses
import math
import sys
import time

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_runs import cell, write_run
from voxcast.errors import ConfigError
from voxcast.measure.campaign import measure_smallest, outlook, overview, remaining, runs_elsewhere
from voxcast.measure.host import HostFacts
from voxcast.measure.local import PRIOR_S, LocalRunner, TimeLeft, run_campaign
from voxcast.measure.plan import (
    CampaignPlan,
    CampaignSettings,
    Sweep,
    draw_cells,
    fitting,
    good_volumes,
    latin_hypercube,
    local_run_cells,
    make_plan,
    points,
    sweep_cells,
)
from voxcast.measure.record import base_of
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Configuration
from voxcast.runs.series import load_records, runs_in

APPS = {
    "segment": App(
        name="segment",
        module="m",
        version="1",
        parameters={"classes": 3},
        expected_startup_s=1.0,
        expected_s_per_mvoxel=2.0,
    )
}
CPU = [Configuration("cpu", 1), Configuration("cpu", 2)]
CELL = Cell(
    app="segment",
    app_version="1+antspyx0.6.3",
    parameters={"tolerance": 1e-7, "classes": 3},
    volume_id="00ff",
    subject="0001",
    configuration=CPU[0],
    scale="full_scale",
    repeat=0,
    host_class="AMD EPYC, 2 cores, no GPU",
)


def _catalogue(sizes):
    """Volumes of so many megavoxels each."""
    rows = [
        {
            "volume_id": f"v{n:03d}",
            "subject": f"{n:04d}",
            "path": f"sub-{n:04d}.nii.gz",
            "problem": None,
            "shape_i": 100.0,
            "shape_j": 100.0,
            "shape_k": size * 100.0,
        }
        for n, size in enumerate(sizes)
    ]
    return pd.DataFrame(rows)


EVERY = Sweep(
    name="all",
    apps=(),
    parameters={},
    sample=None,
    scale="full_scale",
    volumes=None,
    volumes_offset=0,
    cpus=(),
    repeats=1,
    first_repeat=0,
    repeat_volumes=None,
)


def _draw(rows, configurations=CPU, *, apps=APPS, seed=1, **changes):
    sweep = dataclasses.replace(EVERY, **changes)
    return draw_cells([sweep], apps, good_volumes(rows), configurations, seed)


@pytest.mark.parametrize(
    "change",
    [
        {"app": "other"},
        {"app_version": "2"},
        {"parameters": {"tolerance": 1e-6, "classes": 3}},
        {"volume_id": "11ee"},
        {"configuration": CPU[1]},
        {"configuration": Configuration("cpu", 1, mem_limit_bytes=10**9)},
        {"configuration": Configuration("cpu", 1, node_type="fat")},
        {"scale": "scaled_down"},
        {"repeat": 1},
        {"host_class": "elsewhere"},
    ],
    ids=str,
)
def test_key_changes_with_every_defining_field(change):
    assert dataclasses.replace(CELL, **change).key != CELL.key


def test_key_does_not_change_with_the_subject_or_the_order_of_parameters():
    assert dataclasses.replace(CELL, subject="0002").key == CELL.key
    assert dataclasses.replace(CELL, parameters={"classes": 3, "tolerance": 1e-7}).key == CELL.key


def test_draw_depends_on_the_seed_alone():
    rows = _catalogue([1.0] * 12)
    keys = [cell.key for cell in _draw(rows)]
    assert keys == [cell.key for cell in _draw(rows.sample(frac=1, random_state=3))]
    assert keys != [cell.key for cell in _draw(rows, seed=2)]
    assert sorted(keys) == sorted(cell.key for cell in _draw(rows, seed=2))


def test_an_added_volume_keeps_the_order_of_the_others():
    before = [cell.key for cell in _draw(_catalogue([1.0] * 12))]
    after = [cell.key for cell in _draw(_catalogue([1.0] * 13))]
    assert [key for key in after if key in set(before)] == before


def test_invalid_and_duplicate_volumes_are_skipped():
    rows = _catalogue([1.0] * 4)
    rows.loc[1, "problem"] = "not a volume"
    rows.loc[1, "shape_i"] = None
    rows.loc[3, "volume_id"] = "v002"
    assert sorted(cell.volume_id for cell in _draw(rows, CPU[:1])) == ["v000", "v002"]
    assert _draw(rows.iloc[:0]) == []


def test_configurations_the_machine_lacks_are_dropped_with_the_reason():
    facts = HostFacts("CPU", 2, 10**9, (), "6.1", "node1")
    configurations = [*CPU, Configuration("cpu", 64), Configuration("gpu", 2, gpus=1)]
    fit, notes = fitting(configurations, facts)
    assert fit == CPU
    assert notes == [
        "cpu, 64 CPUs: left out, there are 2 CPUs here",
        "gpu, 2 CPUs, 1 GPU: left out, there is no GPU here",
    ]
    assert _draw(_catalogue([1.0]), [Configuration("gpu", 1)]) == []


def test_an_application_without_an_image_runs_as_often_as_requested():
    apps = {**APPS, "train": App(name="train", version="1", module="m", input="none")}
    cells = _draw(_catalogue([1.0] * 9), apps=apps, repeats=2, repeat_volumes=1)
    bare = [cell for cell in cells if cell.app == "train"]
    assert {(cell.volume_id, cell.subject) for cell in bare} == {("", "")}
    assert sorted((c.configuration.cpus, c.repeat) for c in bare) == [
        (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip


def test_sweeps_are_interleaved_so_that_a_part_is_balanced():
    apps = {name: dataclasses.replace(APPS["segment"], name=name) for name in ("a", "b")}
    every = dataclasses.replace(EVERY, cpus=(1,))
    some = dataclasses.replace(every, name="two", volumes=20, cpus=(2,))
    volumes = good_volumes(_catalogue([1.0] * 60))
    cells = draw_cells([every, some], apps, volumes, CPU, seed=3)
    assert len(cells) == 2 * (60 + 20)
    order = [(cell.app, cell.configuration.cpus) for cell in cells]
    for stop in (40, 80, 120):
        for group, share in ((("a", 1), 3), (("b", 1), 3), (("a", 2), 1), (("b", 2), 1)):
            assert abs(order[:stop].count(group) - stop * share / 8) <= 1
    by_app = [[c.volume_id for c in cells if c.app == a] for a in apps]
    assert by_app[0] != sorted(by_app[0])


def test_anchors_are_cheap_fixed_and_one_for_each_application():
    apps = {**APPS, "train": App(name="train", version="1", module="m", input="none")}
    rows = _catalogue([n / 10 for n in range(1, 41)])
    anchors = local_run_cells([EVERY], apps, good_volumes(rows), CPU, 1)
    assert [(c.app, c.volume_id, c.configuration.cpus, c.repeat) for c in anchors] == [
        ("segment", "v004", 1, 1000),
        ("train", "", 1, 1000),
    ]
    assert local_run_cells([EVERY], apps, good_volumes(rows), CPU, 0) == []
    only = dataclasses.replace(EVERY, apps=("train",))
    assert len(local_run_cells([only], apps, good_volumes(rows), CPU, 2)) == 1


SEGMENT = App(
    name="segment", version="1", module="m", parameters={"classes": 3, "smoothing": 0.5},
    scaled_down={"classes": 2},
)  # fmt: skip
TRAIN = App(
    name="train",
    version="1",
    module="m",
    input="none",
    parameters={"epochs": 4, "rate": 0.1, "net": "a", "batch": 8, "samples": 100},
    ranges={"epochs": (1, 5), "rate": (0.001, 1.0), "net": ("a", "b", "c")},
    scaled_down={"epochs": 1, "samples": 10},
)


def _sweep(**changes):
    plain = {
        "name": "s", "apps": (), "parameters": {}, "sample": None,
        "scale": "full_scale", "volumes": None, "volumes_offset": 0, "cpus": (), "repeats": 1,
        "first_repeat": 0, "repeat_volumes": None,
    }  # fmt: skip
    return Sweep(**(plain | changes))


def _volumes(count):
    names = [f"v{n:03d}" for n in range(count)]
    table = {"subject": [name[1:] for name in names], "mvoxels": [1.0 + n for n in range(count)]}
    return pd.DataFrame(table, index=pd.Index(names, name="volume_id"))


def _cells(sweep, app, count=30, configurations=CPU, seed=1):
    return sweep_cells(sweep, app, _volumes(count), configurations, seed)


def _ids(cells):
    return {cell.volume_id for cell in cells}


def test_volume_sets_are_nested_and_an_offset_skips_the_first():
    few, many = (_ids(_cells(_sweep(volumes=n), SEGMENT)) for n in (10, 20))
    assert len(few) == 10
    assert few < many
    assert _ids(_cells(_sweep(volumes=10, volumes_offset=10), SEGMENT)) == many - few
    assert _ids(_cells(_sweep(volumes=10), SEGMENT, count=31)) - few <= {"v030"}


def test_every_volume_runs_in_every_wanted_configuration_with_every_combination():
    sweep = _sweep(parameters={"classes": [2, 3], "smoothing": [0.1, 0.2]}, cpus=(2,))
    cells = _cells(sweep, SEGMENT, count=5)
    assert len(cells) == len({cell.key for cell in cells}) == 5 * 4
    assert {cell.configuration.cpus for cell in cells} == {2}
    assert _cells(_sweep(), SEGMENT, configurations=[Configuration("gpu", 1, 1)]) == []


def test_repeats_are_of_volumes_from_the_smaller_half_and_not_one_after_the_other():
    cells = _cells(_sweep(repeats=3, repeat_volumes=6, cpus=(1,)), SEGMENT, count=30)
    repeated = {cell.volume_id for cell in cells if cell.repeat}
    assert len(cells) == 30 + 2 * 6
    assert len(repeated) == 6
    assert max(repeated) < "v015"
    assert [c.repeat for c in cells] != sorted(c.repeat for c in cells)


def test_a_campaign_makes_the_runs_of_another_one_again_under_other_numbers():
    first, again = (_cells(_sweep(first_repeat=n, cpus=(1,)), SEGMENT, count=6) for n in (0, 50))
    assert {cell.repeat for cell in again} == {50}
    assert {c.key for c in first}.isdisjoint(c.key for c in again)
    assert {c.volume_id for c in first} == {c.volume_id for c in again}


def test_a_scaled_down_sweep_draws_the_same_points_and_scales_them_down():
    full, small = (
        points(_sweep(sample=12, scale=scale), TRAIN, 5) for scale in ("full_scale", "scaled_down")
    )
    assert {point["epochs"] for point in full} == {1, 2, 3, 4, 5}
    assert {(point["epochs"], point["samples"]) for point in small} == {(1, 10)}
    for name in ("rate", "net", "batch"):
        assert [point[name] for point in full] == [point[name] for point in small]
    assert sum(point["rate"] < 0.0316 for point in full) == 6  # drawn on a log scale
    assert full != points(_sweep(sample=12), TRAIN, 6)


def test_points_repeat_without_images_and_spread_over_volumes_with_them():
    cells = _cells(_sweep(sample=10, repeats=2, repeat_volumes=4, cpus=(1,)), TRAIN)
    assert len(cells) == 14
    assert _ids(cells) == {""}
    sampled = _sweep(sample=20, parameters={"smoothing": {"low": 0.0, "high": 1.0}}, cpus=(1,))
    cells = _cells(sampled, SEGMENT, count=10)
    assert sorted(cell.volume_id for cell in cells) == sorted([f"v{n:03d}" for n in range(10)] * 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {"clases": [1]}}, r"segment\.clases: unknown parameter"),
        ({"parameters": {"classes": {"low": 1, "high": 2}}}, "is a range"),
        ({"sample": 5}, "segment: has no ranges to draw from"),
    ],
)
def test_invalid_sweeps_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        _cells(_sweep(**changes), SEGMENT)


def test_sweeps_that_cannot_be_scaled_down_are_refused():
    with pytest.raises(ConfigError, match="cannot be scaled down"):
        points(_sweep(scale="scaled_down"), App(name="x", version="1", module="m"), 1)


@given(count=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_each_stratum_of_each_range_holds_one_point(count, seed):
    values = {
        "linear": {"low": -1.0, "high": 3.0},
        "log": {"low": 1e-4, "high": 1e2, "log": True},
    }
    points = latin_hypercube(values, count, seed)
    linear = sorted((point["linear"] + 1) / 4 * count for point in points)
    log = sorted((math.log10(point["log"]) + 4) / 6 * count for point in points)
    for stratum in range(count):
        for drawn in (linear[stratum], log[stratum]):
            assert stratum - 1e-3 <= drawn <= stratum + 1 + 1e-3  # values are rounded


@given(count=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_list_values_are_balanced_and_integers_stay_integers(count, seed):
    values = {"net": ["a", "b", "c"], "layers": {"low": 1, "high": 6}}
    points = latin_hypercube(values, count, seed)
    times = [sum(point["net"] == net for point in points) for net in "abc"]
    assert max(times) - min(times) <= 1
    assert {type(point["layers"]) for point in points} == {int}
    assert {point["layers"] for point in points} <= set(range(1, 7))
    if count % 6 == 0:
        assert {point["layers"] for point in points} == set(range(1, 7))


def test_points_are_fixed_by_seed_name_and_count():
    # Other numbers would be other cells, and recorded runs would not be found again.
    values = {"rate": {"low": 0.0, "high": 1.0}, "net": ["a", "b"]}
    assert latin_hypercube(values, 2, [1, "app"]) == [
        {"rate": 0.699493, "net": "a"},
        {"rate": 0.351137, "net": "b"},
    ]
    alone = latin_hypercube({"rate": values["rate"]}, 2, [1, "app"])
    assert [point["rate"] for point in alone] == [0.699493, 0.351137]


@pytest.mark.parametrize(
    "choice", [[], {"low": 2, "high": 1}, {"low": 0, "high": 1, "log": True}, 3, {"low": 1}, "ab"]
)
def test_values_that_are_neither_list_nor_range_are_refused(choice):
    with pytest.raises(ConfigError, match="rate"):
        latin_hypercube({"rate": choice}, 3, 1)


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
SWEEP = Sweep("images", (), {}, None, "full_scale", None, 0, (), 1, 0, None)


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
