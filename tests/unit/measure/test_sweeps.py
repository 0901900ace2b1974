import pandas as pd
import pytest

from voxcast.errors import ConfigError
from voxcast.measure.plan import Sweep, points, sweep_cells
from voxcast.records import App, Configuration

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
CPU = [Configuration("cpu", 1), Configuration("cpu", 2)]


def _sweep(**changes):
    plain = {
        "name": "s", "apps": (), "parameters": {}, "sample": None,
        "scale": "full_scale", "volumes": None, "volumes_offset": 0, "cpus": (), "repeats": 1,
        "repeat_volumes": None,
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
