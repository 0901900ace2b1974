import dataclasses

import pandas as pd
import pytest

from voxcast.measure.host import HostFacts
from voxcast.measure.plan import (
    Sweep,
    draw_cells,
    fitting,
    good_volumes,
    local_run_cells,
)
from voxcast.records import App, Cell, Configuration

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
    repeat_volumes=None,
)


def _draw(rows, configurations=CPU, *, apps=APPS, seed=1, **changes):
    sweep = dataclasses.replace(EVERY, **changes)
    return draw_cells([sweep], apps, good_volumes(rows), configurations, seed)


def test_key_is_the_recorded_one():
    # A change of this hash would measure every history again: it must be intended.
    assert CELL.key == "5092b43a7ed07303d5542ce473aee2a19e2b1e435f669377721ba7b801b541c5"


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
