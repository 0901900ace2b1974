"""Speeds of machines: planted ones are found within their uncertainty, and bounds hold."""

import dataclasses
import json
import math
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import planted
import several_machines
from voxcast.evaluation.recorded_table import of_app, recorded_table
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, Forecaster
from voxcast.models.point_model import queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.speed_estimation import estimate, speeds_of
from voxcast.models.speeds import (
    MachineSpeed,
    RunResidual,
    SittingSpeed,
    SpeedEstimate,
    Speeds,
    for_another_application,
    updated,
    with_machines,
)
from voxcast.records import TARGETS

CPU = TARGETS.index("cpu_s")
RIDGE = FAMILIES["ridge"].defaults
RECORDED = Path(__file__).parents[3] / "data/history"


def calibrated_ridge(table: pd.DataFrame) -> CalibratedModel:
    return planted.calibrated(table)


def test_a_planted_speed_is_found_from_few_runs_on_other_subjects() -> None:
    table = several_machines.table({"slow": [-0.4], "usual": [0.0]}, {"slow": 4, "usual": 40})
    speeds = estimate(table)
    assert speeds.reference == "usual"
    assert speeds.machines["usual"].log_speed == 0.0
    slow = speeds.estimate("slow", "2026-01-01-slow-1")
    assert abs(slow.log_speed + 0.4) < 3 * slow.sd < 0.15
    assert speeds.runs("slow") == 8
    # A sitting to come deviates as sittings do; a machine that was never measured, as machines.
    assert slow.sd < speeds.estimate("slow").sd < speeds.estimate("another").sd
    assert speeds.estimate("another").sd > 0.25


def test_the_sitting_that_goes_on_is_that_of_the_last_run() -> None:
    table = several_machines.table({"a": [0.0, 0.1]}, {"a": 20})
    first, second = sorted(table["sitting"].unique())
    later = {first: "2026-01-05T09:00:00+00:00", second: "2026-01-05T08:00:00+00:00"}
    speeds = estimate(table.assign(started_at=table["sitting"].map(later)))
    noon = datetime.fromisoformat("2026-01-05T12:00:00+00:00")
    assert str(speeds.current_sitting("a", noon)).endswith(first)
    assert speeds.current_sitting("a", noon + timedelta(days=1)) is None
    assert speeds.current_sitting("never measured", noon) is None
    # A run that is dated in the future is passed over, and so is a time that is none.
    for last_at in ("2027-01-05T09:00:00+00:00", "2026-01-05T12:00:01", "yesterday"):
        machine = speeds.machines["a"]
        sittings = {**machine.sittings, "later": SittingSpeed(0.0, 0.01, 5, last_at)}
        machines = {"a": dataclasses.replace(machine, sittings=sittings)}
        wrong = dataclasses.replace(speeds, machines=machines)
        assert str(wrong.current_sitting("a", noon)).endswith(first)


def test_a_sitting_to_come_has_the_tails_of_as_many_days_as_are_on_record() -> None:
    two, six = (
        estimate(several_machines.table({"a": [0.05, -0.05] * half}, {"a": 48})) for half in (1, 3)
    )
    assert two.sitting_freedom == 3.0
    assert six.sitting_freedom == 7.0
    few, more = (speeds.estimate("a") for speeds in (two, six))
    assert few.deviation(0.95) == pytest.approx(2.353 * few.sd, rel=1e-3)
    assert more.deviation(0.95) == pytest.approx(1.895 * more.sd, rel=1e-3)
    assert few.deviation(0.5) == pytest.approx(0.0, abs=1e-9)
    on_record = two.estimate("a", "2026-01-01-a-1")
    assert on_record.deviation(0.95) == pytest.approx(1.645 * on_record.sd, rel=1e-3)
    assert two.knows("a", "2026-02-01-a-1")
    # Sittings of one day are alike, and tell little of another day.
    table = several_machines.table({"a": [0.0] * 6}, {"a": 48})
    one_day = estimate(table.assign(started_at="2026-01-01T00:00:00+00:00"))
    assert one_day.sitting_freedom == 2.0
    assert one_day.sitting_spread > estimate(table).sitting_spread
    assert one_day.knows("a", "2026-01-01-a-1")
    assert not one_day.knows("a", "2026-02-01-a-1")


def test_a_class_of_machines_is_known_by_its_machines_not_by_their_runs() -> None:
    days = {day: SittingSpeed(0.0, 0.02, 5, day) for day in ("2026-01-01", "2026-01-02")}

    def of_class(machines: dict[str, MachineSpeed]) -> Speeds:
        other = {"z": MachineSpeed(0.0, 0.02, 10, days)}
        return Speeds("a", machines | other, SpeedEstimate(0.0, 0.25), 0.05, 0.07, 0.05)

    two = of_class(
        {
            "a": MachineSpeed(0.0, 0.02, 1000, {}, "CPU", "big"),
            "b": MachineSpeed(0.7, 0.02, 3, {}, "CPU", "big"),
        }
    )
    for name in ("CPU", "big"):
        assert two.estimate(name).log_speed == pytest.approx(0.35)
        assert two.estimate(name).sd > 0.3
        assert not two.knows(name)
    single = of_class({"a": MachineSpeed(0.0, 0.02, 1000, {}, "CPU", "big")})
    assert single.knows("a")
    assert not single.knows("CPU")
    alike = {f"h{n}": MachineSpeed(0.0, 0.02, 10, {}, "CPU", "") for n in range(12)}
    assert of_class(alike).knows("CPU")
    assert of_class(alike).estimate("CPU").sd < 0.075


def test_large_runs_in_sittings_of_their_own_are_not_taken_for_a_slow_machine() -> None:
    # Fits of a study: their time grows with the square of a parameter, but for one kind of them,
    # and the largest were made last.
    rng = np.random.default_rng(3)
    parcels, squares = 2.0 ** rng.uniform(4, 10, 120), rng.random(120) < 0.5
    order = np.argsort(parcels)
    parcels, squares = parcels[order], squares[order]
    seconds = 2 + np.where(squares, (parcels / 50) ** 2, parcels / 100)
    table = pd.DataFrame({
        "app": "fits", "parameter.parcels": parcels, "parameter.kind": np.where(squares, "a", "b"),
        "subject": [f"s{n}" for n in range(120)], "host_id": "here",
        "sitting": ["small"] * 50 + ["usual"] * 60 + ["large"] * 10,
        "started_at": "2026-01-01T00:00:00+00:00", "cpu_s": seconds * rng.lognormal(0, 0.03, 120),
    })  # fmt: skip
    (machine,) = estimate(table).machines.values()
    speeds = [sitting.log_speed for sitting in machine.sittings.values()]
    assert max(speeds) - min(speeds) < 0.1
    # A day on which all was twice as slow is found all the same.
    slower = rng.random(120) < 0.4
    table.loc[slower, "cpu_s"] *= 2
    table.loc[slower, ["sitting", "started_at"]] = "slow", "2026-01-02T00:00:00+00:00"
    (machine,) = estimate(table).machines.values()
    difference = machine.sittings["usual"].log_speed - machine.sittings["slow"].log_speed
    assert difference == pytest.approx(np.log(2), abs=0.2)


def test_standard_deviations_are_those_of_the_errors() -> None:
    rng = np.random.default_rng(5)
    scores = []
    for draw in range(24):
        log_speed = float(rng.normal(0, 0.3))
        machines = {"ref": [0.0], "new": [log_speed]}
        k = (1, 2, 4)[draw % 3]
        table = several_machines.table(machines, {"ref": 15, "new": k}, noise=0.1, seed=draw)
        new = estimate(table).estimate("new", "2026-01-01-new-1")
        scores.append((new.log_speed - log_speed) / new.sd)
    assert 0.6 < np.std(scores) < 1.5
    assert np.mean(np.abs(scores) < 1.96) > 0.85


def test_speeds_of_a_fold_are_those_of_its_training_runs() -> None:
    table = several_machines.table({"a": [0.0], "b": [0.5]}, {"a": 12, "b": 6})
    validation = Validation(table, None, 3, 0)
    before = validation.out_of_fold("ridge", RIDGE, "volume")
    train, held_out = validation.folds()[0]
    changed = table.copy()
    changed.loc[held_out, ["cpu_s", "runtime_s"]] *= 7.0
    after = Validation(changed, None, 3, 0).out_of_fold("ridge", RIDGE, "volume")
    assert (after[held_out] == before[held_out]).all()
    assert (after[train] != before[train]).any()
    fold = validation.fold_speeds[train.tobytes()]
    assert fold == speeds_of(table.iloc[train])


@pytest.mark.parametrize("runs", [0, 2, 8])
def test_bounds_hold_on_a_new_machine_and_narrow_with_its_runs(runs: int) -> None:
    rng = np.random.default_rng(runs)
    inside, widths, calibrated = [], [], []
    for draw in range(8):
        # Machines as the prior has them; the local runs are of subjects of their own.
        first, second = rng.normal(0, 0.25, 2)
        machines = {"ref": [float(first)], "new": [float(second)]}
        table = several_machines.table(
            machines, {"ref": 30, "new": runs // 2 + 10}, noise=0.06, seed=draw
        )
        at_new = np.flatnonzero(table["host_id"] == "new")
        test = table.iloc[at_new[runs:]]
        model = calibrated_ridge(table.drop(index=at_new[runs:]).reset_index(drop=True))
        quantiles, is_calibrated = model.quantiles(queries_of(test), 0.05, 0.95)
        cpu = quantiles[:, CPU, :]
        inside.append(np.mean(test["cpu_s"].to_numpy() <= cpu[:, 2]))
        widths.append(np.mean(np.log(cpu[:, 2] / cpu[:, 1])))
        calibrated.append(is_calibrated.all())
    assert np.mean(inside) >= 0.9
    assert not any(calibrated) if runs < 3 else any(calibrated)
    narrowest, widest = {0: (0.4, 0.9), 2: (0.1, 0.4), 8: (0.08, 0.22)}[runs]
    assert narrowest < np.median(widths) < widest


def test_memory_has_no_speed() -> None:
    table = several_machines.table({"a": [0.0], "b": [0.5]}, {"a": 20, "b": 6})
    model = calibrated_ridge(table)
    queries = queries_of(table.head(3).assign(host_id="nowhere"))
    unknown, calibrated = model.quantiles(queries, 0.05, 0.95)
    known, _ = model.quantiles(queries_of(table.head(3)), 0.05, 0.95)
    assert not calibrated.any()
    targets = list(model.model.targets)
    memory, cpu, wall = map(targets.index, ("peak_rss_bytes", "cpu_s", "runtime_s"))
    assert (unknown[:, memory] == known[:, memory]).all()
    for time in (cpu, wall):
        assert (unknown[:, time, 2] > 1.3 * known[:, time, 2]).all()


def test_speeds_are_saved_as_json_with_the_forecaster(tmp_path: Path) -> None:
    table = several_machines.table({"a": [0.0], "b": [0.5]}, {"a": 20, "b": 6})
    forecaster = Forecaster({"volume": calibrated_ridge(table)})
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    speeds = again.speeds
    assert speeds == forecaster.speeds
    assert Speeds.from_json(json.loads(json.dumps(speeds.to_json()))) == speeds
    query = queries_of(table.tail(1))[0]
    (prediction,) = again.predict([query])
    assert prediction.host_runs == 12
    assert prediction.speed[0] < prediction.speed[1] < prediction.speed[2]
    # With a single sitting on each, part of the difference may be that of the sittings.
    assert prediction.speed[1] == pytest.approx(math.exp(0.5), rel=0.08)
    # Another speed changes the answer by its factor.
    machine = speeds.machines["b"]
    slower = Speeds.from_json(
        {
            **speeds.to_json(),
            "machines": {"b": {**machine.__dict__, "log_speed": 0.0, "sittings": {}}},
        }
    )
    (later,) = again.with_speeds(slower).predict([query])
    ratio = later.quantiles["cpu_s"][1] / prediction.quantiles["cpu_s"][1]
    assert ratio == pytest.approx(prediction.speed[1])


def test_a_sitting_left_out_of_the_recorded_runs_is_predicted_within_its_bounds() -> None:
    table = recorded_table([RECORDED / "reference"], lambda subject: False)
    runs = of_app(table, "ants_segment", "full_scale")
    for sitting in sorted(set(runs["sitting"]))[::3]:
        here = runs["sitting"] == sitting
        model = calibrated_ridge(runs[~here].reset_index(drop=True))
        queries = queries_of(runs[here])
        quantiles, calibrated = model.quantiles(queries, 0.05, 0.95)
        # All sittings on record are of one day: of another nothing is known.
        assert not calibrated.any()
        cpu_s = runs.loc[here, "cpu_s"].to_numpy()
        assert np.mean(cpu_s <= quantiles[:, CPU, 2]) > 0.9


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


def timed(slow: list[float]) -> pd.DataFrame:
    """Return runs of one machine, in sittings that are slower by these logarithms."""
    table = several_machines.table({"a": [-value for value in slow]}, {"a": 12 * len(slow)})
    return several_machines.timed(table)


def test_a_reading_tells_the_speed_of_a_day_that_was_not_measured() -> None:
    speeds = estimate(timed([0.4, -0.4, 0.2, -0.2, 0.0]))
    assert speeds.gauge is not None
    assert speeds.gauge.speeds.sitting_spread < 0.06 < 0.2 < speeds.sitting_spread
    for slower in (0.9, 0.0, -0.9):  # beyond all days on record, too
        reading = 0.002 * math.exp(slower)
        now = speeds.estimate("a", "today", reading)
        assert now.basis == "reading"
        assert now.log_speed - speeds.estimate("a").log_speed == pytest.approx(-slower, abs=0.06)
        assert 2 * now.sd < speeds.estimate("a").sd
        assert speeds.knows("a", "today", reading)
    # A machine that was never measured is less uncertain too, but not known.
    assert speeds.estimate("b", None, 0.002).sd < speeds.estimate("b").sd
    assert not speeds.knows("b", None, 0.002)
    on_record = speeds.estimate("a", "2026-01-01-a-1", 0.004)
    assert on_record.basis in ("sitting", "reading")


def test_kernels_that_have_nothing_to_do_with_the_work_are_not_believed() -> None:
    table = timed([0.0] * 5)
    days = {name: n for n, name in enumerate(sorted(table["sitting"].unique()))}
    slower = table["sitting"].map(days).map({0: 0.8, 1: -0.8, 2: 0.5, 3: -0.5, 4: 0.0})
    speeds = estimate(table.assign(kernel_s=0.002 * np.exp(slower.astype(float))))
    assert speeds.estimate("a", "today", 0.005).basis == "machine"


def test_without_readings_there_is_no_gauge() -> None:
    table = timed([0.1, -0.1])
    assert estimate(table.drop(columns="kernel_s")).gauge is None
    assert estimate(table.assign(kernel_s=np.nan)).gauge is None
    half = table["kernel_s"].where(table["sitting"] == table["sitting"].min())
    gauge = estimate(table.assign(kernel_s=half)).gauge
    assert gauge is not None
    assert gauge.speeds.runs("a") == half.notna().sum()


def test_local_runs_and_a_reading_tell_more_than_either() -> None:
    speeds = estimate(timed([0.4, -0.4, 0.2, -0.2, 0.0]))
    # The work itself is 0.1 slower on that day than the kernels say.
    runs = [
        RunResidual("today", str(n), "2026-02-01T00:00:00+00:00", 0.6, 0.002 * math.exp(0.5))
        for n in range(4)
    ]
    after = updated(speeds, "a", runs)
    assert after.gauge is not None
    assert after.gauge.speeds.runs("a") == speeds.runs("a") + 4
    usual = speeds.estimate("a").log_speed
    for slower in (0.5, 0.3):  # the day goes on, and becomes quicker
        now = after.estimate("a", "today", 0.002 * math.exp(slower))
        assert now.log_speed - usual == pytest.approx(-slower - 0.08, abs=0.06)
    restored = Speeds.from_json(json.loads(json.dumps(after.to_json())))
    assert restored == after
    passed_on = with_machines(speeds, {"a": after.measured("a")})
    assert passed_on.gauge is not None
    assert passed_on.gauge.speeds.machines == after.gauge.speeds.machines
    assert passed_on.machines["a"].by_kernels is None
