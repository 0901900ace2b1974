import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pandas as pd
import psutil
import pytest

from voxcast.errors import RunError
from voxcast.profiling import campaign
from voxcast.profiling.campaign import run_campaign
from voxcast.profiling.history import load_records, read_record, write_profiles
from voxcast.records import App, Cell, Configuration

PROJECT = Path(__file__).parents[2]
APPLICATION = """
import json, os, subprocess, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
todo = json.loads(given["--parameters"])
helper = subprocess.Popen(["sleep", "60"], start_new_session=True)  # outlives a killed leader
print("helper", helper.pid, flush=True)
with open(given["--out"] + "/labels.nii.gz", "wb") as labels:
    labels.write(b"x" * todo.get("write", 1000))
with open(given["--out"] + "/volumes.json", "w") as volumes:
    volumes.write("{}")
time.sleep(todo.get("sleep", 0.1))
sys.exit(todo.get("exit", 0))
"""


@pytest.fixture
def apps(tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "application_of_test.py").write_text(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    (tmp_path / "T1w.nii.gz").write_bytes(b"")
    return {"test": App(name="test", module="application_of_test", version="1")}


def _cells(count, **parameters):
    one = Configuration("cpu", 1)
    return [
        Cell("test", "1", parameters, "v", "1", one, "full_scale", repeat, "here")
        for repeat in range(count)
    ]


def _forked(function):
    """Run ``function`` as another driver; a fork, so that it starts at once."""
    driver = os.fork()
    if driver:
        return driver
    status = 1
    try:
        function()
        status = 0
    except RunError:
        status = 2
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _helpers(folder):
    logs = folder.glob("*/app.log"), folder.glob(".*/app.log")
    texts = [log.read_text().split() for found in logs for log in found]
    return {int(text[1]) for text in texts if text[:1] == ["helper"] and len(text) > 1}


def _alive(pids):
    alive = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name() == "sleep" and process.status() != psutil.STATUS_ZOMBIE:
                alive.add(pid)
    return alive


def _states(folder):
    return {run.name: (run / "record.json").stat().st_mtime_ns for run in folder.glob("[!.]*")}


def test_runs_are_recorded_once_and_only_small_results_kept(tmp_path, apps, capsys):
    folder, cells = tmp_path / "cpu", _cells(3)
    paths = {"v": tmp_path / "T1w.nii.gz"}
    made = run_campaign(cells[:2], paths, folder, apps=apps)
    assert [run.name for run in made] == [cell.key for cell in cells[:2]]
    kept = {str(path.relative_to(made[0])) for path in made[0].rglob("*")}
    assert kept == {"app.log", "samples.parquet", "record.json", "out", "out/volumes.json"}
    before = _states(folder)
    assert run_campaign([*cells, *cells], paths, folder, apps=apps) == [folder / cells[2].key]
    assert before.items() <= _states(folder).items()
    assert "2 of 3 runs are on record" in capsys.readouterr().err
    cell, profile = read_record(made[0])
    assert cell == cells[0]
    assert profile.outcome == "completed"
    assert not _alive(_helpers(folder))


def test_a_failed_run_is_recorded_and_named(tmp_path, apps, capsys):
    run_campaign(_cells(1, exit=3), {"v": tmp_path / "T1w.nii.gz"}, tmp_path / "cpu", apps=apps)
    (row,) = load_records(tmp_path / "cpu").to_dict("records")
    assert (row["outcome"], row["exit_status"]) == ("failed", 3)
    assert "test sub-1, cpu, 1 CPU: failed" in capsys.readouterr().err


def test_a_broken_record_is_measured_again(tmp_path, apps):
    folder, cells = tmp_path / "cpu", _cells(1)
    (folder / cells[0].key).mkdir(parents=True)
    (folder / cells[0].key / "record.json").write_text('{"cell"')
    run_campaign(cells, {"v": tmp_path / "T1w.nii.gz"}, folder, apps=apps)
    assert read_record(folder / cells[0].key)[0] == cells[0]


def test_a_missing_volume_is_an_error_before_anything_runs(tmp_path, apps):
    with pytest.raises(RunError, match=r"gone\.nii\.gz: no such volume"):
        run_campaign(_cells(1), {"v": tmp_path / "gone.nii.gz"}, tmp_path / "cpu", apps=apps)
    assert list((tmp_path / "cpu").iterdir()) == []


def test_killed_at_any_moment_nothing_is_lost_double_or_half_written(tmp_path, apps):
    folder, cells = tmp_path / "cpu", _cells(12, sleep=0.1)
    paths = {"v": tmp_path / "T1w.nii.gz"}
    instants = random.Random(4)  # noqa: S311
    helpers, before, caught = set(), {}, 0
    for _ in range(10):
        driver = _forked(lambda: run_campaign(cells, paths, folder, apps=apps))
        time.sleep(instants.uniform(0.02, 0.35))
        helpers |= _helpers(folder)
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        helpers |= _helpers(folder)
        caught += bool(list(folder.glob(".partial-*")))
        after = _states(folder)
        assert before.items() <= after.items()  # what was recorded is there, as it was
        assert set(load_records(folder)["cell_key"]) == set(after)  # and every record is whole
        before = after
    assert caught >= 5  # in the middle of a run
    run_campaign(cells, paths, folder, apps=apps)
    assert before.items() <= _states(folder).items()
    profiles = write_profiles(folder)
    assert sorted(profiles["cell_key"]) == sorted(cell.key for cell in cells)
    assert (profiles["outcome"] == "completed").all()
    assert not list(folder.glob(".*"))
    assert helpers
    assert not _alive(helpers)


def test_two_drivers_do_not_work_on_one_folder(tmp_path, apps, monkeypatch):
    monkeypatch.setattr(campaign, "LOCK_PATIENCE_S", 0.1)
    folder, cells = tmp_path / "cpu", _cells(3)
    paths = {"v": tmp_path / "T1w.nii.gz"}
    drivers = [_forked(lambda: run_campaign(cells, paths, folder, apps=apps)) for _ in range(2)]
    statuses = {os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]) for driver in drivers}
    assert statuses == {0, 2}
    assert len(load_records(folder)) == 3


def test_interrupt_from_the_keyboard_keeps_finished_runs_and_stops_the_other(tmp_path, apps):
    folder, cells = tmp_path / "cpu", [*_cells(1), *_cells(1, sleep=60)]
    paths = {"v": tmp_path / "T1w.nii.gz"}

    def drive():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            run_campaign(cells, paths, folder, apps=apps)

    driver = _forked(drive)
    while len(_helpers(folder)) < 2:
        time.sleep(0.01)
    helpers = _helpers(folder)
    os.kill(driver, signal.SIGINT)
    assert os.waitpid(driver, 0)[1] == 0
    assert [run.name for run in folder.iterdir()] == [cells[0].key]
    assert not _alive(helpers)


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root and the right to mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path, apps, small_disk):
    folder, paths = small_disk / "cpu", {"v": tmp_path / "T1w.nii.gz"}
    run_campaign(_cells(1), paths, folder, apps=apps)
    before, large = _states(folder), _cells(1, write=5_000_000)
    with pytest.raises(RunError, match="no space left"):  # the application fills it
        run_campaign(large, paths, folder, apps=apps)
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb") as full:
        full.write(b"x" * 2_000_000)
    assert shutil.disk_usage(small_disk).free == 0
    with pytest.raises((RunError, OSError), match=r"(?i)no space left"):  # it is full already
        run_campaign(_cells(2), paths, folder, apps=apps)
    assert _states(folder) == before
    assert len(load_records(folder)) == 1
    assert not list(folder.glob(".*"))
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    run_campaign([*_cells(2), *large], paths, folder, apps=apps)
    assert before.items() <= _states(folder).items()
    assert len(load_records(folder)) == 3


def test_the_stage_on_a_device_nothing_can_use_writes_an_empty_table_that_says_so(tmp_path):
    shutil.copy(PROJECT / "params.yaml", tmp_path)
    (tmp_path / "data" / "catalogue").mkdir(parents=True)
    shape = {"shape_i": [9.0], "shape_j": [9.0], "shape_k": [9.0]}
    row = {"volume_id": ["v"], "subject": ["1"], "path": ["T1w.nii.gz"], "problem": [None]}
    pd.DataFrame(row | shape).to_parquet(tmp_path / "data" / "catalogue" / "catalogue.parquet")
    command = [sys.executable, str(PROJECT / "pipelines" / "profile_runs.py"), "gpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    profiles = pd.read_parquet(tmp_path / "data" / "runs" / "gpu" / "profiles.parquet")
    assert len(profiles) == 0
    notes = profiles.attrs["notes"]
    assert "gpu: no application of this campaign can use it" in notes
    assert all(f"voxcast: {note}" in done.stderr for note in notes)
