import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from small_disk import fill, mounted, remount
from small_pool import forked, wait_for
from synthetic_runs import cell, write_run
from voxcast import config
from voxcast.errors import RunError
from voxcast.measure import local
from voxcast.measure.campaign import failed_images
from voxcast.measure.local import run_campaign
from voxcast.measure.plan import CampaignPlan, CampaignSettings
from voxcast.measure.record import base_of
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Configuration
from voxcast.runs.series import load_records, read_record
from voxcast.runs.store import collect

PROJECT = Path(__file__).parents[3]
APPLICATION = """
import json, os, subprocess, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
todo = json.loads(given["--parameters"])
helper = subprocess.Popen(["sleep", "60"], start_new_session=True)  # outlives a killed leader
print("helper", helper.pid, flush=True)
with open(given["--out"] + "/labels.nii.gz", "wb") as labels:
    labels.write(b"x" * todo.get("write", 1000))
with open(given["--out"] + "/volumes.json", "w") as volumes:
    json.dump({"cores": sorted(os.sched_getaffinity(0))}, volumes)
if "meet" in todo:  # ends only beside another run of this kind
    open(f"{todo['meet']}/{os.getpid()}", "w").close()
    until = time.monotonic() + 60
    while len(os.listdir(todo["meet"])) < 2:
        if time.monotonic() > until:
            sys.exit("no other run began beside this one")
        time.sleep(0.02)
time.sleep(todo.get("sleep", 0.1))
sys.exit(todo.get("exit", 0))
"""


@pytest.fixture
def apps(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="voxcast")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "application_of_test.py").write_text(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=os.pathsep)
    (tmp_path / "T1w.nii.gz").write_bytes(b"")
    return {"test": App(name="test", module="application_of_test", version="1")}


def run(cells, paths, folder, **options):
    plan = CampaignPlan(
        {cell.key: cell for cell in cells},
        paths,
        expected_s=options.pop("expected_s", {}),
        local_runs=options.pop("local_runs", []),
    )
    recorded = options.pop("recorded", None)
    return run_campaign(CampaignSettings(runs=folder, **options), plan, recorded=recorded)


def _cells(count, **parameters):
    configuration = Configuration("cpu", 1)
    return [
        Cell("test", "1", parameters, "v", "1", configuration, "full_scale", repeat, "here")
        for repeat in range(count)
    ]


def _helpers(folder):
    pids = set()
    for log in (*folder.glob("*/app.log"), *folder.glob(".*/app.log")):
        with contextlib.suppress(FileNotFoundError):  # the folder was moved to its place meanwhile
            word, *numbers = (log.read_text() or "-").split()
            pids |= {int(number) for number in numbers if word == "helper"}
    return pids


def _alive(pids):
    alive = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name() == "sleep" and process.status() != psutil.STATUS_ZOMBIE:
                alive.add(pid)
    return alive


def _states(folder):
    return {run.name: (run / "run.json").stat().st_mtime_ns for run in folder.glob("[!.]*")}


def test_runs_are_recorded_once_and_only_small_results_kept(tmp_path, apps, caplog):
    folder, cells = tmp_path / "cpu", _cells(3)
    paths = {"v": tmp_path / "T1w.nii.gz"}
    run_folders = run(cells[:2], paths, folder, apps=apps).runs
    assert [run.name for run in run_folders] == [cell.key for cell in cells[:2]]
    file_names = {str(path.relative_to(run_folders[0])) for path in run_folders[0].rglob("*")}
    assert file_names == {"app.log", "samples.npz", "run.json", "out", "out/volumes.json"}
    before = _states(folder)
    assert run([*cells, *cells], paths, folder, apps=apps).runs == [folder / cells[2].key]
    assert before.items() <= _states(folder).items()
    assert "2 of 3 runs are on record" in caplog.text
    record = read_record(run_folders[0])
    assert record.cell == cells[0]
    assert record.run.sitting.endswith("-1")
    assert record.content["recipe"] is record.content["container"] is None
    assert record.run.outcome == "completed"
    assert not _alive(_helpers(folder))


def _of_images(names, **parameters):
    (cell,) = _cells(1, **parameters)
    return [dataclasses.replace(cell, volume_id=name) for name in names]


def test_an_application_that_only_fails_is_not_run_to_the_end(tmp_path, apps):
    cells = _of_images("abcdefgh", exit=3)
    cells.insert(1, dataclasses.replace(cells[0], repeat=1))  # the same image counts once
    paths = dict.fromkeys("abcdefgh", tmp_path / "T1w.nii.gz")
    for _ in range(2):  # failed runs are tried again, but last
        with pytest.raises(RunError, match="test failed on 5 images and never completed"):
            run(cells, paths, tmp_path / "cpu", apps=apps)
    assert len(load_records(tmp_path / "cpu")) == 9


def test_an_image_that_always_fails_stops_nothing_and_comes_last(tmp_path, apps):
    folder, paths = tmp_path / "cpu", dict.fromkeys("abcdefgh", tmp_path / "T1w.nii.gz")
    bad, good = _of_images("abcdef", exit=3), _of_images("gh")
    with pytest.raises(RunError):
        run(bad, paths, folder, apps=apps)
    before = _states(folder)
    measured = run([*bad, good[0]], paths, folder, apps=apps).runs
    assert [path.name for path in measured] == [c.key for c in (bad[5], good[0], *bad[:5])]
    assert len(before) == 5
    # With a completed run on record none of them ends the campaign, and nothing else is delayed.
    measured = run([*bad, *good], paths, folder, apps=apps).runs
    assert [path.name for path in measured] == [c.key for c in (good[1], *bad)]


def test_failed_images_are_named_with_their_cause(tmp_path, apps):
    script = "print('step 1', flush=True); exit('no AC point in ' + __import__('sys').argv[1][-1])"
    tool = App("test", "1", argv=(sys.executable, "-c", script, "{image}"))
    cells = _of_images("ab")
    cells.append(dataclasses.replace(cells[0], repeat=1))
    paths = {name: tmp_path / name for name in "ab"}
    for path in paths.values():
        path.touch()
    run(cells, paths, tmp_path / "cpu", apps={"test": tool})
    plan = CampaignPlan({cell.key: cell for cell in cells}, paths)
    of_a, of_b = failed_images(tmp_path / "cpu", plan)
    assert (of_a["image"], of_a["runs"], of_b["runs"]) == (str(paths["a"]), 2, 1)
    assert of_b["cause"] == "no AC point in b, exit status 1"


def test_a_broken_record_is_measured_again(tmp_path, apps):
    folder, cells = tmp_path / "cpu", _cells(1)
    (folder / cells[0].key).mkdir(parents=True)
    (folder / cells[0].key / "run.json").write_text('{"cell"')
    run(cells, {"v": tmp_path / "T1w.nii.gz"}, folder, apps=apps)
    assert read_record(folder / cells[0].key).cell == cells[0]


def test_a_missing_volume_is_an_error_before_anything_runs(tmp_path, apps):
    with pytest.raises(RunError, match=r"gone\.nii\.gz: no such volume"):
        run(_cells(1), {"v": tmp_path / "gone.nii.gz"}, tmp_path / "cpu", apps=apps)
    assert list((tmp_path / "cpu").iterdir()) == []


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_loses_duplicates_and_truncates_no_run(tmp_path, apps, kills):
    folder = tmp_path / "cpu"
    cells = [cell for n in range(kills + 2) for cell in _cells(1, sleep=0.1, number=n)]
    paths = {"v": tmp_path / "T1w.nii.gz"}
    instants = random.Random(4)  # noqa: S311
    conditions = Conditions(metronome=False)  # its start would come before each first run
    helpers, before, caught = set(), {}, 0
    for number in range(kills):
        driver = forked(lambda: run(cells, paths, folder, apps=apps, conditions=conditions))
        if number % 2:  # in the middle of a run, however long a busy machine takes to begin it
            wait_for(lambda known=helpers: _helpers(folder) - known)
        time.sleep(instants.uniform(0.0, 0.05 if number % 2 else 0.35))
        helpers |= _helpers(folder)
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        helpers |= _helpers(folder)
        caught += bool(list(folder.glob(".partial-*")))
        after = _states(folder)
        assert before.items() <= after.items()  # every earlier record is there, unchanged
        assert set(load_records(folder)["cell_key"]) == set(after)  # and every record is whole
        before = after
    assert caught >= kills // 4  # in the middle of a run
    run(cells[: len(before) + 2], paths, folder, apps=apps)
    assert before.items() <= _states(folder).items()
    profiles = load_records(folder)
    assert profiles["cell_key"].is_unique
    assert {cell.key for cell in cells[: len(before) + 2]} <= set(profiles["cell_key"])
    assert (profiles["outcome"] == "completed").all()
    assert not list(folder.glob(".*"))
    assert helpers
    assert not _alive(helpers)


def test_two_drivers_do_not_work_on_one_folder(tmp_path, apps, monkeypatch):
    monkeypatch.setattr(local, "LOCK_PATIENCE_S", 0.1)
    folder, cells = tmp_path / "cpu", _cells(3)
    paths = {"v": tmp_path / "T1w.nii.gz"}
    drivers = [forked(lambda: run(cells, paths, folder, apps=apps)) for _ in range(2)]
    statuses = {os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]) for driver in drivers}
    assert statuses == {0, 1}
    assert len(load_records(folder)) == 3


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path, apps):
    paths = {"v": tmp_path / "T1w.nii.gz"}
    with mounted(tmp_path / "disk", "1m") as disk:
        folder = disk / "cpu"
        run(_cells(1), paths, folder, apps=apps)
        before, large = _states(folder), _cells(1, write=5_000_000)
        with pytest.raises(RunError, match="no space left"):  # the application fills it
            run(large, paths, folder, apps=apps)
        filler = fill(disk)
        with pytest.raises((RunError, OSError), match=r"(?i)no space left"):  # it is full already
            run(_cells(2), paths, folder, apps=apps)
        assert _states(folder) == before
        assert len(load_records(folder)) == 1
        assert not list(folder.glob(".*"))
        filler.unlink()
        remount(disk, "size=20m")
        run([*_cells(2), *large], paths, folder, apps=apps)
        assert before.items() <= _states(folder).items()
        assert len(load_records(folder)) == 3


def _stage(folder, device, *overrides):
    """Run the stage in a project of two volumes."""
    config.compose(folder / "params.yaml", list(overrides), PROJECT / "conf")
    (folder / "data" / "catalogue").mkdir(parents=True, exist_ok=True)
    shape = {"shape_i": 9.0, "shape_j": 9.0, "shape_k": 9.0, "problem": None}
    rows = [{"volume_id": v, "subject": "1", "path": f"{v}.nii.gz", **shape} for v in ("v", "v1")]
    pd.DataFrame(rows).to_parquet(folder / "data" / "catalogue" / "catalogue.parquet")
    command = [sys.executable, str(PROJECT / "pipelines" / "profile_runs.py"), device]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return pd.read_parquet(folder / "data" / "runs" / device / "runs.parquet"), completed.stderr


def test_the_stage_on_an_unused_device_writes_an_empty_table_with_a_note(tmp_path):
    profiles, errors = _stage(tmp_path, "gpu")
    assert len(profiles) == 0
    notes = profiles.attrs["notes"]
    assert "gpu: no application of this campaign can use it" in notes
    assert all(f"voxcast: {note}" in errors for note in notes)


def test_the_stage_takes_a_recorded_history_and_measures_nothing(tmp_path):
    batch = tmp_path / "data" / "history" / "batch"
    write_run(tmp_path / "runs", cell(app="ants_segment"), samples=5)
    collect(tmp_path / "runs", batch)
    recorded = (
        "campaign.history=[data/history/batch]",
        "~campaign.sweeps.one_cpu",
        "~campaign.sweeps.two_cpus",
    )
    profiles, _ = _stage(tmp_path, "cpu", *recorded)
    assert profiles["cell_key"].tolist() == [cell(app="ants_segment").key]
    assert profiles.attrs["notes"] == []
    assert (tmp_path / "data" / "runs" / "cpu" / "phases.parquet").is_file()


def test_it_stops_before_a_run_that_exceeds_the_budget_and_resumes_later(tmp_path, apps):
    folder, cells = tmp_path / "cpu", _cells(3)
    paths, expected = {"v": tmp_path / "T1w.nii.gz"}, {("test", "v"): 50.0}
    stopped = run(cells, paths, folder, apps=apps, expected_s=expected, stop_after_s=49.0)
    assert (stopped.runs, stopped.left, stopped.left_s) == ([], 3, 150.0)
    # After the first it is known how long they really take.
    stopped = run(cells, paths, folder, apps=apps, expected_s=expected, stop_after_s=100.0)
    assert (len(stopped.runs), stopped.left) == (3, 0)
    assert run(cells, paths, folder, apps=apps, stop_after_s=0.0).left == 0


def test_anchors_are_run_again_at_the_start_of_each_sitting_that_measures(tmp_path, apps):
    folder, paths = tmp_path / "cpu", {"v": tmp_path / "T1w.nii.gz"}
    cells, anchor = _cells(2), _cells(1001)[-1]
    for count in (1, 1, 2):  # the second finds nothing to do
        run(cells[:count], paths, folder, apps=apps, local_runs=[anchor])
    rows = load_records(folder)
    assert rows["repeat"].tolist() == [1001, 0, 1002, 1]
    assert rows["sitting"].str[-2:].tolist() == ["-1", "-1", "-2", "-2"]


def test_runs_recorded_elsewhere_are_not_repeated(tmp_path, apps):
    folder, cells = tmp_path / "cpu", _cells(3)
    elsewhere = {cells[0].key: dataclasses.replace(base_of(cells[0]), sitting="2026-01-01-host-7")}
    paths = {"v": tmp_path / "T1w.nii.gz"}
    run(cells, paths, folder, apps=apps, recorded=elsewhere)
    assert set(_states(folder)) == {cell.key for cell in cells[1:]}
    assert load_records(folder)["sitting"].str[-2:].tolist() == ["-8", "-8"]


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@two_cores
def test_parallel_runs_have_disjoint_cores_and_wide_ones_run_alone(tmp_path, apps):
    every = len(os.sched_getaffinity(0))
    wide = Cell("test", "1", {}, "v", "1", Configuration("cpu", every), "full_scale", 0, "here")
    (tmp_path / "meeting").mkdir()
    folder, cells = tmp_path / "cpu", [wide, *_cells(2, meet=str(tmp_path / "meeting"))]
    run(cells, {"v": tmp_path / "T1w.nii.gz"}, folder, apps=apps, parallel=2)
    rows = load_records(folder)
    assert rows["outcome"].tolist() == ["completed"] * 3
    assert rows["cell_key"].iloc[-1] == wide.key
    cores = [
        set(pd.read_json(folder / key / "out" / "volumes.json", typ="series")["cores"])
        for key in rows["cell_key"]
    ]
    assert cores[0].isdisjoint(cores[1])


@pytest.mark.parametrize("parallel", [1, pytest.param(2, marks=two_cores)])
def test_an_interrupt_keeps_finished_runs_and_stops_the_others(tmp_path, apps, parallel):
    folder, paths = tmp_path / "cpu", {"v": tmp_path / "T1w.nii.gz"}
    cells = [*_cells(1), *_cells(2 * parallel - 1, sleep=60)]

    def drive():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            run(cells, paths, folder, apps=apps, parallel=parallel)

    driver = forked(drive)
    while len(_helpers(folder)) < 1 + parallel:
        time.sleep(0.01)
    helpers = _helpers(folder)
    os.kill(driver, signal.SIGINT)
    assert os.waitpid(driver, 0)[1] == 0
    assert [path.name for path in folder.iterdir()] == [cells[0].key]
    assert not _alive(helpers)
