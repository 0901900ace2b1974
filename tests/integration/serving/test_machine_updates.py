"""Runs on record tell the speed of a machine, if all is known that their prediction needs."""

import math
from dataclasses import replace

import pytest

import planted
from voxcast.serving.bundle import Bundle
from voxcast.serving.machines import ProjectRuns, run_residuals


def on_record(factor: float, tilts: dict[str, float]) -> ProjectRuns:
    """Return runs of new volumes on another machine, ``factor`` times as long as planted."""
    profiles, catalogue, characteristics = planted.history(12, seed=5)
    profiles = profiles.assign(
        cell_key="new-" + profiles["cell_key"], host_id="new", sitting="1",
        cpu_s=factor * profiles["cpu_s"],
    )  # fmt: skip
    rows = catalogue.merge(characteristics, on="volume_id").to_dict("records")
    volumes = {
        row["volume_id"]: {**row, "tilt": tilts.get(row["volume_id"], math.nan)} for row in rows
    }
    return ProjectRuns(profiles, volumes)


@pytest.fixture
def of_lab(bundle: Bundle) -> Bundle:
    """Return a bundle whose application declares a characteristic of a laboratory."""
    names = ("foreground_voxels", "noise_ratio", "tilt")
    served = replace(bundle.apps["segment"], characteristics=names)
    return replace(bundle, apps={"segment": served})


def test_residuals_are_those_of_the_declared_characteristics(of_lab: Bundle) -> None:
    known = {f"v{n:04d}": 0.1 * n for n in range(1, 9)}
    residuals = run_residuals(of_lab, "segment", on_record(1.3, known), "new")
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
    of_lab: Bundle, version: str, counts: bool
) -> None:
    runs = on_record(1.3, {f"v{n:04d}": 0.1 * n for n in range(1, 9)})
    runs.runs["app_version"] = version
    assert bool(run_residuals(of_lab, "segment", runs, "new")) is counts


def test_a_volume_without_a_declared_characteristic_tells_nothing(of_lab: Bundle) -> None:
    assert run_residuals(of_lab, "segment", on_record(1.3, {}), "new") == []
    assert run_residuals(of_lab, "segment", on_record(1.3, {"v0001": 1.0}), "elsewhere") == []
