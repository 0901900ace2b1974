"""The file of measured machines: read by every answer, refused in one line when damaged."""

import dataclasses
import json
from pathlib import Path

import pytest
from test_served_machines import machines_bundle

from champions import HEADER_ROW
from voxcast.errors import ModelError
from voxcast.models.speed.speeds import MachineSpeed, SittingSpeed
from voxcast.serving.machines import read_machines, write_machines
from voxcast.serving.prediction_service import PredictionService

SITTING = SittingSpeed(0.31, 0.02, 5, "2026-01-02T00:00:00+00:00")
MACHINE = MachineSpeed(0.3, 0.02, 5, {"s1": SITTING}, "CPU, 2 cores", "big")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "machines.json"
    assert read_machines(path) == {}
    machines = {("new", "segment", "0" * 64): MACHINE}
    write_machines(path, machines)
    assert read_machines(path) == machines


def test_a_lasting_change_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "machines.json"
    changed = dataclasses.replace(MACHINE, since="2026-01-02")
    write_machines(path, {("new", "segment", "0" * 64): changed})
    assert read_machines(path)["new", "segment", "0" * 64] == changed


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
        damaged(since="yesterday"),
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
