"""Runs after training update the speed of their machine, and nothing else."""

import numpy as np
import pytest

import several_machines
from voxcast.models.speed.estimation import estimate
from voxcast.models.speed.speeds import SpeedEstimate, Speeds
from voxcast.models.speed.updates import RunResidual, for_another_application, updated


@pytest.fixture(scope="module")
def speeds() -> Speeds:
    """Return the speeds of one machine, ``ref``."""
    table = several_machines.table({"ref": [0.0, 0.02]}, {"ref": 30}, noise=0.06)
    return estimate(table)


def residuals(
    log_speed: float, runs: int, sitting: str = "s1", *, noise: float = 0.06, seed: int = 0
) -> list[RunResidual]:
    rng = np.random.default_rng(seed)
    return [
        RunResidual(sitting, f"sub{n % 4}", f"2026-02-01T00:{n:02}:00+00:00", float(value))
        for n, value in enumerate(-log_speed + rng.normal(0, noise, runs))
    ]


def test_a_machine_becomes_known_by_its_runs(speeds: Speeds) -> None:
    before = speeds.estimate("new")
    sds = [before.sd]
    for count in (2, 4, 8):
        after = updated(speeds, "new", residuals(-0.3, count), host_class="slow")
        here = after.estimate("new", "s1")
        assert abs(here.log_speed + 0.3) < 3 * here.sd
        assert after.runs("new") == count
        assert here.sd < after.estimate("new").sd  # a sitting to come deviates
        sds.append(here.sd)
        assert after.knows("new", "s1") == (count >= 3)
    assert sds == sorted(sds, reverse=True)
    assert after.machines["ref"] == speeds.machines["ref"]
    assert after.estimate("slow") == after.estimate("new")
    assert not speeds.knows("new")


def test_runs_in_several_sittings_tell_more_than_as_many_in_one(speeds: Speeds) -> None:
    together = updated(speeds, "new", residuals(0.2, 9))
    apart = [run for n in range(3) for run in residuals(0.2, 3, f"s{n}", seed=n)]
    spread = updated(speeds, "new", apart)
    assert spread.machines["new"].sd < together.machines["new"].sd


def test_a_disturbed_run_hardly_counts(speeds: Speeds) -> None:
    runs = residuals(0.1, 8)
    disturbed = RunResidual("s1", "sub9", "2026-02-01T01:00:00+00:00", 2.0)
    calm, shaken = (
        updated(speeds, "new", rows).estimate("new", "s1").log_speed
        for rows in (runs, [*runs, disturbed])
    )
    assert abs(shaken - calm) < 0.03  # a mean would move by 0.23


def test_another_day_on_the_reference_machine_is_a_sitting_of_its_own(speeds: Speeds) -> None:
    after = updated(speeds, "ref", residuals(-0.15, 10, "today"))
    today = after.estimate("ref", "today")
    assert today.log_speed == pytest.approx(-0.13, abs=0.05)
    assert abs(after.machines["ref"].log_speed) < abs(today.log_speed) / 2
    assert set(after.machines["ref"].sittings) > set(speeds.machines["ref"].sittings)


def test_other_applications_tell_what_they_can(speeds: Speeds) -> None:
    assert for_another_application([]) is None
    elsewhere = for_another_application([SpeedEstimate(0.4, 0.05), SpeedEstimate(0.5, 0.05)])
    assert elsewhere is not None
    assert elsewhere.log_speed == pytest.approx(0.45)
    after = updated(speeds, "new", [], elsewhere=elsewhere)
    assert after.runs("new") == 0
    assert not after.knows("new")
    assert after.estimate("new").log_speed == pytest.approx(0.45)
    assert after.estimate("new").sd < speeds.estimate("new").sd
