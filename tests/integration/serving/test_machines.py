"""Machines that were measured after training: their file, their runs, and the answers for them."""

import dataclasses
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import planted
import synthetic_runs
from champions import HEADER_ROW, machines_bundle
from voxcast.allocation.recommendation import caveats, machine_line
from voxcast.errors import ModelError, RequestError
from voxcast.measure.host import host_facts
from voxcast.models.speeds import MachineSpeed, SittingSpeed, updated
from voxcast.runs.series import MEASURED
from voxcast.serving.bundle import Bundle
from voxcast.serving.machines import ProjectRuns, read_machines, run_residuals, write_machines
from voxcast.serving.prediction_service import PredictionService

SITTING = SittingSpeed(0.31, 0.02, 5, "2026-01-02T00:00:00+00:00")
MACHINE = MachineSpeed(0.3, 0.02, 5, {"s1": SITTING}, "CPU, 2 cores", "big")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "machines.json"
    assert read_machines(path) == {}
    by_kernels = replace(MACHINE, log_speed=0.1)
    machines = {("new", "segment", "0" * 64): replace(MACHINE, by_kernels=by_kernels)}
    write_machines(path, machines)
    assert read_machines(path) == machines


def test_answers_use_it_as_soon_as_it_is_written(tmp_path: Path) -> None:
    bundle = machines_bundle(tmp_path)
    path = tmp_path / "machines.json"
    service = PredictionService(bundle, path)
    row = {**HEADER_ROW, "host": "new"}
    (before,) = service.predict([row])
    assert not before["calibrated"]
    write_machines(path, {("new", "segment", "f" * 64): MACHINE})  # of another forecaster
    assert service.predict([row])[0]["cpu_s_median"] == before["cpu_s_median"]
    write_machines(path, {("new", "segment", bundle.apps["segment"].forecaster_sha256): MACHINE})
    (after,) = service.predict([row])
    assert after["calibrated"]
    assert after["host_runs"] == 5
    assert after["speed_median"] == pytest.approx(1.35, abs=0.01)
    width_before, width_after = (a["cpu_s_upper"] / a["cpu_s_median"] for a in (before, after))
    assert width_after < width_before


def damaged(**changes: object) -> str:
    entry = {"host": "a", "app": "b", "forecaster_sha256": "c"}
    return json.dumps(
        {"format": 1, "machines": [{**entry, "speed": {**dataclasses.asdict(MACHINE), **changes}}]}
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"format": 2, "machines": []}', '{"format": 1}', "[" * 100_000,
        damaged(sd=-1.0), damaged(log_speed="NaN"), damaged(log_speed=50.0), damaged(runs="3"),
        damaged(sittings={"s": {}}), damaged(sittings=3), damaged(runs=-1),
        damaged(sittings={"s": {**dataclasses.asdict(SITTING), "last_at": "yesterday"}}),
        damaged(sittings={"s": {**dataclasses.asdict(SITTING), "last_at": "2026-01-01"}}),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "machines.json"
    path.write_text(text)
    with pytest.raises(ModelError) as caught:
        read_machines(path)
    assert "\n" not in str(caught.value)
    assert "remove it" in str(caught.value)


def on_record(factor: float, asymmetries: dict[str, float]) -> ProjectRuns:
    """Return runs of new volumes on another machine, ``factor`` times as long as planted."""
    profiles, volumes = planted.history(12, seed=5)
    profiles = profiles.assign(
        cell_key="new-" + profiles["cell_key"], host_id="new", sitting="1",
        cpu_s=factor * profiles["cpu_s"],
    )  # fmt: skip
    rows = volumes.to_dict("records")
    volumes = {
        row["volume_id"]: {**row, "asymmetry": asymmetries.get(row["volume_id"], math.nan)}
        for row in rows
    }
    return ProjectRuns(profiles, volumes)


def declaring(bundle: Bundle, *names: str) -> Bundle:
    served = replace(bundle.apps["segment"], characteristics=names)
    return replace(bundle, apps={"segment": served})


@pytest.fixture
def with_asymmetry(bundle: Bundle) -> Bundle:
    """Return a bundle whose application declares a characteristic that a volume may lack."""
    return declaring(bundle, "foreground_voxels", "noise_ratio", "asymmetry")


def test_residuals_are_those_of_the_declared_characteristics(with_asymmetry: Bundle) -> None:
    known = {f"v{n:04d}": 0.1 * n for n in range(1, 9)}
    residuals = run_residuals(with_asymmetry, "segment", on_record(1.3, known), "new")
    subjects = {residual.subject for residual in residuals}
    assert subjects <= {name.removeprefix("v") for name in known}
    assert len(subjects) >= 6  # of eight; some may be out of range
    for residual in residuals:
        assert residual.log_residual == pytest.approx(math.log(1.3), abs=0.1)


@pytest.mark.parametrize(
    ("version", "counts"),
    [("1", True), ("1+antspyx0.6.3", True), ("", True), ("2", False), ("1.5+antspyx0.6.3", False)],
)
def test_runs_count_with_whatever_packages_of_the_declared_version(
    with_asymmetry: Bundle, version: str, counts: bool
) -> None:
    runs = on_record(1.3, {f"v{n:04d}": 0.1 * n for n in range(1, 9)})
    runs.runs["app_version"] = version
    assert bool(run_residuals(with_asymmetry, "segment", runs, "new")) is counts


def test_runs_tell_the_speed_in_times_of_the_kernels_too(tmp_path: Path) -> None:
    timed = declaring(machines_bundle(tmp_path, timed=True), "foreground_voxels", "noise_ratio")
    gauge = timed.forecaster("segment").speeds.gauge
    # The kernels took a third longer than at the average speed, and so did the runs.
    runs = on_record(1.33, {})
    runs.runs["kernel_s"] = 1.33 * gauge.kernel_s
    residuals = run_residuals(timed, "segment", runs, "new")
    speeds = updated(timed.forecaster("segment").speeds, "new", residuals)
    assert speeds.machines["new"].log_speed == pytest.approx(-math.log(1.33), abs=0.1)
    assert speeds.gauge.speeds.machines["new"].log_speed == pytest.approx(0, abs=0.1)


def test_runs_of_a_project_are_read_with_what_the_kernels_took(tmp_path: Path) -> None:
    before = {"compute": 0.001, "copy": 0.002, "gather": 0.004, "interpreter": 0.008}
    timed = {f"before_{name}_s": seconds for name, seconds in before.items()}
    folder = tmp_path / MEASURED / "cpu"
    synthetic_runs.write_run(folder, synthetic_runs.cell(repeat=0), **timed)
    synthetic_runs.write_run(folder, synthetic_runs.cell(repeat=1))
    runs = ProjectRuns.read(tmp_path).runs.set_index("repeat")
    assert runs["kernel_s"][0] == pytest.approx((1 * 2 * 4 * 8) ** 0.25 / 1000)
    assert math.isnan(runs["kernel_s"][1])


def test_a_volume_without_a_declared_characteristic_tells_nothing(with_asymmetry: Bundle) -> None:
    assert run_residuals(with_asymmetry, "segment", on_record(1.3, {}), "new") == []
    assert (
        run_residuals(with_asymmetry, "segment", on_record(1.3, {"v0001": 1.0}), "elsewhere") == []
    )


def test_an_answer_is_for_the_machine_that_was_asked_about(tmp_path: Path) -> None:
    service = PredictionService(machines_bundle(tmp_path))
    rows = [{**HEADER_ROW, "host": name} for name in ("a", "b", "fast", "big", "nowhere")]
    slow, fast, by_class, by_node, unknown = service.predict(rows)
    assert slow["cpu_s_median"] / fast["cpu_s_median"] == pytest.approx(1.65, rel=0.08)
    assert fast["host"] == "b"
    assert fast["host_runs"] == by_node["host_runs"] == 12
    assert by_class["cpu_s_median"] == by_node["cpu_s_median"] == fast["cpu_s_median"]
    assert slow["calibrated"]
    assert fast["calibrated"]
    assert slow["peak_rss_bytes_upper"] == unknown["peak_rss_bytes_upper"]
    assert not unknown["calibrated"]
    assert unknown["cpu_s_upper"] / unknown["cpu_s_median"] > 1.3
    (reason,) = caveats(unknown, 0.95)
    assert "voxcast measure --host" in reason
    assert "the speed of nowhere is" in reason
    assert re.match(r"for machine b: speed 1\.[56]", machine_line(fast))


def test_by_default_an_answer_is_for_this_machine(tmp_path: Path) -> None:
    (unknown,) = PredictionService(machines_bundle(tmp_path / "other")).predict([HEADER_ROW])
    assert unknown["host"] == host_facts().host_id
    assert not unknown["calibrated"]
    bundle = machines_bundle(tmp_path / "here", host_facts().host_id, today=True)
    (here,) = PredictionService(bundle).predict([HEADER_ROW])
    assert here["calibrated"]
    assert here["host_runs"] == 12
    # The sitting goes on, so its speed is known better than that of a new one.
    another_day = machines_bundle(tmp_path / "later", host_facts().host_id)
    (later,) = PredictionService(another_day).predict([HEADER_ROW])
    assert here["speed_upper"] < later["speed_upper"]


def test_a_reading_tells_how_fast_the_machine_is_now(tmp_path: Path) -> None:
    service = PredictionService(machines_bundle(tmp_path, timed=True))
    assert service.champion().reads_kernels
    usual, slow, fast = service.predict(
        [{**HEADER_ROW, "host": "b", "kernel_s": value} for value in (None, 0.004, 0.001)]
    )
    assert usual["speed_basis"] == "machine"
    assert slow["speed_basis"] == fast["speed_basis"] == "reading"
    assert slow["cpu_s_median"] / fast["cpu_s_median"] == pytest.approx(4, rel=1e-9)
    width = slow["cpu_s_upper"] / slow["cpu_s_median"]
    assert width < usual["cpu_s_upper"] / usual["cpu_s_median"]
    assert slow["calibrated"]
    assert machine_line(slow).endswith("runs, as it is just now)")
    assert slow["peak_rss_bytes_median"] == fast["peak_rss_bytes_median"]
    for wrong in (0.0, -1.0, 11.0, math.inf):
        with pytest.raises(RequestError, match="kernel_s"):
            service.predict([{**HEADER_ROW, "kernel_s": wrong}])


def test_a_model_that_learned_nothing_of_the_kernels_does_without(tmp_path: Path) -> None:
    service = PredictionService(machines_bundle(tmp_path))
    assert not service.champion().reads_kernels
    with_reading, without = service.predict(
        [{**HEADER_ROW, "host": "a", "kernel_s": value} for value in (0.004, None)]
    )
    assert with_reading == without
