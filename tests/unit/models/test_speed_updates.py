"""Runs after training update the speed of their machine, and nothing else."""

import numpy as np
import pytest

import several_machines
from voxcast.models.speed_estimation import estimate
from voxcast.models.speeds import (
    RunResidual,
    SpeedEstimate,
    Speeds,
    for_another_application,
    updated,
    with_machines,
)


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
    # Another machine of its class may differ from it.
    assert after.estimate("slow").log_speed == after.estimate("new").log_speed
    assert after.estimate("slow").sd > after.estimate("new").sd + 0.05
    assert not after.knows("slow")
    assert not speeds.knows("new")


def test_a_disturbed_run_hardly_counts(speeds: Speeds) -> None:
    runs = residuals(0.1, 8)
    disturbed = RunResidual("s1", "sub9", "2026-02-01T01:00:00+00:00", 2.0)
    calm, shaken = (
        updated(speeds, "new", rows).estimate("new", "s1").log_speed
        for rows in (runs, [*runs, disturbed])
    )
    assert abs(shaken - calm) < 0.03  # a mean would move by 0.23


@pytest.mark.parametrize(
    "log_speeds",
    [[-1.5, 0.0, 1.5], [1.0, -1.0] * 4, [0.0, 5.0, 5.2], [0.0, 0.01, 5.0], [0.0, 4.0]],
)
@pytest.mark.parametrize("host", ["new", "ref"])
def test_runs_that_disagree_do_not_tell_a_speed(
    speeds: Speeds, host: str, log_speeds: list[float]
) -> None:
    runs = [
        RunResidual("s1", f"sub{n}", f"2026-02-01T00:{n:02}:00+00:00", -value)
        for n, value in enumerate(log_speeds)
    ]
    after = updated(speeds, host, runs)
    assert not after.knows(host, "s1")
    assert not after.knows(host, "s2")
    # The smaller group of runs cannot move the speed as surely as runs that agree.
    agreeing = updated(speeds, host, residuals(0.1, len(runs)))
    assert after.estimate(host, "s1").sd > 2 * agreeing.estimate(host, "s1").sd


def test_a_sitting_in_conflict_with_the_record_is_doubted_until_another_confirms_it(
    speeds: Speeds,
) -> None:
    for host, log_speed in (("ref", -0.7), ("new", -2.3)):
        first = updated(speeds, host, residuals(log_speed, 8))
        assert first.estimate(host, "s1").log_speed == pytest.approx(log_speed, abs=0.1)
        assert not first.knows(host, "s1")
        assert not first.knows(host, "s2")
        runs = [
            RunResidual(
                f"s{n}", run.subject, f"2026-02-{n + 1:02}T00:00:00+00:00", run.log_residual
            )
            for n in range(4)
            for run in residuals(log_speed, 8, seed=n)
        ]
        confirmed = updated(speeds, host, runs)
        assert confirmed.knows(host, "s3")
    # A sitting as far from the record as sittings are is not doubted.
    assert updated(speeds, "ref", residuals(-0.12, 8)).knows("ref", "s1")


def test_many_sittings_outweigh_the_record_and_tell_what_sittings_differ_by(
    speeds: Speeds,
) -> None:
    def in_days(log_speeds: list[float]) -> Speeds:
        runs = [
            RunResidual(
                f"s{n}", run.subject, f"2026-02-{n + 1:02}T00:00:00+00:00", run.log_residual
            )
            for n, log_speed in enumerate(log_speeds)
            for run in residuals(log_speed, 8, seed=n)
        ]
        return updated(speeds, "ref", runs)

    slower = in_days([-0.69] * 10)
    assert slower.machines["ref"].log_speed == pytest.approx(-0.69, abs=0.06)
    assert slower.sitting_freedom == speeds.sitting_freedom + 10
    restless = in_days([-0.3, 0.3] * 5)
    assert restless.sitting_spread == pytest.approx(0.3, abs=0.08)
    assert not restless.knows("ref")
    calm = in_days([0.0] * 10)
    assert calm.sitting_spread < speeds.sitting_spread
    # Machines that are read from a file change the spread as the update did.
    read = with_machines(speeds, {"ref": restless.machines["ref"]})
    assert read == restless


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
