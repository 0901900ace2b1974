"""``voxcast campaign`` and ``voxcast profile`` in a project of two small images."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from commands import attempt
from training_project import write_volume

PROJECT = Path(__file__).parents[3]
APPLICATION = """
import json, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("voxcast phase: ignored", flush=True)
todo = json.loads(given["--parameters"])
with open(given["--out"] + "/result.json", "w") as result:
    json.dump(todo, result)
time.sleep(todo["sleep_s"])
sys.exit(todo["status"])
"""
PLAIN = {
    "version": "1", "module": "application_of_project", "argv": [], "input": "volume",
    "parameters": {"sleep_s": 0.05, "status": 0}, "ranges": {"sleep_s": [0.01, 0.05]},
    "scaled_down": {"sleep_s": 0.01}, "packages": [], "files": [], "programs": [],
    "devices": ["cpu"], "characteristics": None, "phase_drivers": {},
    "phases": [], "phase_patterns": {}, "container": {}, "binds": {}, "verify_gpu": False,
    "expected_startup_s": 0.1, "expected_s_per_mvoxel": 0.0,
}  # fmt: skip
SWEEP = {
    "apps": ["waits"], "parameters": {}, "sample": None,
    "scale": "full_scale", "volumes": None, "volumes_offset": 0, "cpus": [1], "repeats": 2,
    "first_repeat": 0, "repeat_volumes": None,
}  # fmt: skip
CAMPAIGN = {
    "name": "two", "seed": 1, "budget_s": None, "time_limit_s": 60, "stall_s": None, "parallel": 1,
    "anchors": 1, "metronome": True, "history": [],
    "sweeps": {"images": SWEEP, "bare": {**SWEEP, "apps": ["bare"], "sample": 3, "repeats": 1}},
}  # fmt: skip
DEFAULTS = [
    {"override /app@_global_.app": ["waits", "bare"]},
    {"override /device@_global_.device": ["cpu"]},
    "_self_",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("voxcast") / "project"
    shutil.copytree(PROJECT / "conf", folder / "conf")
    (folder / "params.yaml").write_text("")
    (folder / "modules").mkdir()
    (folder / "modules" / "application_of_project.py").write_text(APPLICATION)
    for name, app in (("waits", PLAIN), ("bare", {**PLAIN, "input": "none"})):
        (folder / "conf" / "app" / f"{name}.yaml").write_text(yaml.safe_dump({name: app}))
    campaign = yaml.safe_dump({"defaults": DEFAULTS, **CAMPAIGN}, sort_keys=False)
    (folder / "conf" / "campaign" / "two.yaml").write_text(campaign)
    for subject in "12":
        name = f"mri/sub-{subject}/anat/sub-{subject}_T1w.nii.gz"
        write_volume(folder / name, int(subject))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "modules"), prepend=os.pathsep)
        patch.syspath_prepend(folder / "modules")
        yield folder


def _command(project, *arguments):
    """Return a call in a process of its own, for what is to be stopped."""
    return {
        "args": [sys.executable, "-m", "voxcast.cli", *arguments],
        "cwd": project,
        "text": True,
    }


def voxcast(project, *arguments, status=0):
    completed = attempt(*arguments, cwd=project)
    assert completed.returncode == status, completed.stdout + completed.stderr
    return completed


MINE = ("-S", "images=bids", "-S", "images.path=mri")


def _measure(project, *arguments, **kwargs):
    return voxcast(project, "measure", "--campaign", "two", *MINE, *arguments, **kwargs)


def _status(project, *arguments):
    return voxcast(project, "status", "two", *MINE, *arguments)


def test_a_campaign_is_run_killed_resumed_listed_and_collected(project):
    command = _command(project, "measure", "--campaign", "two", *MINE)
    driver = subprocess.Popen(stderr=subprocess.DEVNULL, **command)
    runs = project / "data" / "campaigns" / "two" / "runs"
    while len(list(runs.glob("[!.]*/run.json"))) < 2:
        assert driver.poll() is None
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGSTOP)  # so that it is still at it
    refused = _measure(project, status=2)
    assert "another campaign (process" in refused.stderr
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    mtimes_ns = {path: path.stat().st_mtime_ns for path in runs.glob("[!.]*/run.json")}

    stopped = _measure(project, "--time-budget", "0s")
    assert "two: 0 runs measured, " in stopped.stdout
    assert "continue with `voxcast measure --campaign two`" in stopped.stderr
    summary = json.loads(_measure(project, "--json").stdout)
    assert summary["left"] == 0
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in mtimes_ns.items())
    assert not (project / "params.yaml").read_text()  # a campaign does not touch the project's

    rows = {row["app"]: row for row in json.loads(_status(project, "--json").stdout)}
    assert rows["waits"]["left"] == rows["bare"]["left"] == 0
    assert rows["waits"]["outcomes"]["completed"] >= 4
    assert rows["bare"]["outcomes"]["completed"] >= 3
    status = _status(project).stdout
    assert "0 left" in status
    assert "waits" in status

    batch = project / "data" / "history" / "two"
    history = pd.concat([pd.read_parquet(part) for part in batch.glob("*/runs.parquet")])
    assert history["cell_key"].is_unique
    assert set(history["cell_key"]) == {path.name for path in runs.glob("[!.]*")}
    assert {1001, 1002} <= set(history["repeat"])  # local runs of both sittings
    assert history["sitting"].nunique() == 2
    assert _status(project, "--collect").stdout == "nothing new\n"
    assert (batch / "provenance.yaml").is_file()

    # Where nothing but the history is left, as in a clone, nothing is measured again.
    shutil.rmtree(runs)
    again = _measure(project)
    assert "two: 0 runs measured, 0 left" in again.stdout


def _as_campaign(project, name):
    conf = project / "conf" / "campaign"
    text = (conf / "two.yaml").read_text().replace("name: two", f"name: {name}")
    (conf / f"{name}.yaml").write_text(text)
    return project / "data" / "campaigns" / name / "pool", project / "data" / "history" / name


def test_a_campaign_is_run_by_workers_of_a_pool(project):
    pool, batch = _as_campaign(project, "pooled")
    command = ("measure", "--campaign", "pooled", "--cluster", "local", "--parallel", "2", *MINE)
    summary = json.loads(voxcast(project, *command, "--json").stdout)
    assert (summary["cells"], summary["recorded"], summary["left"]) == (7, 7, 0)
    history = pd.concat([pd.read_parquet(part) for part in batch.glob("*/runs.parquet")])
    assert history["cell_key"].is_unique
    assert set(history["cell_key"]) == {path.name for path in (pool / "runs").glob("[!.]*")}
    assert history["app"].value_counts().to_dict() == {"waits": 4, "bare": 3}
    # What is on record is not made again.
    again = voxcast(project, *command)
    assert "pooled: 7 of 7 cells done, 0 running, 0 waiting, 0 given up" in again.stdout
    assert "7 runs are on record, 0 added" in again.stderr
    status = ("status", "pooled", *MINE, "--json")
    rows = json.loads(voxcast(project, *status).stdout)
    assert (sum(row["done"] for row in rows), sum(row["left"] for row in rows)) == (7, 0)


@pytest.mark.slurm
def test_a_campaign_submits_its_workers_and_goes_on_after_an_interrupt(project, slurm):
    pool, batch = _as_campaign(project, "submitted")
    arguments = ("measure", "--campaign", "submitted", "--cluster", "private", *MINE)
    command = _command(project, *arguments, "--poll", "1s", "--json")
    first = subprocess.Popen(stderr=subprocess.PIPE, stdout=subprocess.PIPE, **command)
    events = pool / "events.jsonl"
    while not events.is_file() or '"submitted"' not in events.read_text():
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    stdout, stderr = first.communicate(timeout=60)
    assert first.returncode == 130, stderr
    assert "interrupted; jobs go on; the same command continues" in stderr
    assert json.loads(stdout)["cells"] == 7
    second = subprocess.run(capture_output=True, check=False, **command)
    assert second.returncode == 0, second.stderr
    summary = json.loads(second.stdout)
    assert (summary["cells"], summary["recorded"], summary["left"]) == (7, 7, 0)
    assert [path.name for path in (pool / "arrays").glob("*.sbatch")] == ["0001.sbatch"]
    history = pd.concat([pd.read_parquet(part) for part in batch.glob("*/runs.parquet")])
    assert len(history) == 7
    assert history["cell_key"].is_unique


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--sbatch a=b", "--sbatch: needs --cluster"),
        ("--cluster osc --time-budget 1h", "--time-budget: is not for jobs of "
         "Slurm, whose size follows from the cells; leave it out"),
        ("--cluster osc:debug",
         "debug: unknown partition; osc has gpuserial, serial"),
    ],
)  # fmt: skip
def test_options_of_a_cluster_that_do_not_go_together(project, options, line):
    refused = voxcast(project, "measure", "--campaign", "two", *MINE, *options.split(), status=2)
    assert refused.stderr == f"voxcast: {line}\n"


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("-S", "nokey=1"), ("conf: Could not override 'nokey'; a change is KEY=VALUE",)),
        (("-S", "images=none"), ("choose images from bids, cohort",)),
        (("-S", "campaign.parallel=-1"), ("conf with campaign=two", "parallel: must be at least")),
        (
            ("-S", "campaign.stall_s=soon"),
            ("campaign.stall_s: must be a number",),
        ),
        (("--time-budget=-1h",), ("--time-budget: ", "negative")),
        (("--time-budget", "nan"), ("--time-budget: ",)),
        (("--parallel", "0"), ("--parallel: must be at least 1",)),
    ],
)
def test_campaign_refuses_invalid_arguments_in_one_line(project, arguments, messages):
    command = ("measure", "--campaign", "two")
    refusal = voxcast(project, *command, *arguments, status=2).stderr
    assert len(refusal.splitlines()) == 1
    assert all(message in refusal for message in messages)
    assert "params.yaml: " not in refusal


def test_profile_runs_any_command_line_and_reports_failures(project):
    image = next((project / "mri").rglob("*.nii.gz"))
    copies = ("--command", "cp {image} {out}/copy.nii.gz")
    output = voxcast(project, "measure", str(image), *copies).stdout
    assert output.startswith(f"{image.name}: command, cpu, 1 CPU: completed")
    failing = ("--command", "ls {image} {out}/gone")
    completed = voxcast(project, "measure", str(image), *failing, status=1)
    assert "No such file" in completed.stderr
    assert ": failed" in completed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--app", "moon"), "moon: unknown application; choose from"),
        (("--app", "waits"), "waits: needs an image"),
        (("--app", "waits", "gone.nii"), "gone.nii: no such file"),
        (("--app", "waits", "mri"), "mri: is a folder, not a volume"),
        (("--app", "bare", "x.nii"), "bare: takes no image"),
        (("--app", "bare", "--gpus", "1"), "bare: runs on CPUs only"),
        (("--app", "bare", "-p", "slep=1"), "bare.slep: unknown parameter"),
        (("--app", "bare", "-p", "sleep"), "--param: needs NAME=VALUE"),
        (("--app", "bare", "--command", "ls"), "--command: is used instead of --app"),
        (("--app", "command", "x.nii"), "command: needs a command line"),
        (("--app", "bare", "--cpus", "9999"), "--cpus: must be 1 to"),
        (("--app", "bare", "--cpus", "0"), "at least 1, not '0'"),
        (("x.nii", "--command", " "), "--command: is empty"),
        (("--app", "bare", "-p", "sleep_s=five"), "bare.sleep_s: needs a"),
        (("--app", "bare", "-p", "sleep=[1"), "sleep"),
        (("x.nii", "--command", "tool 'x"), "--command: cannot be split"),
        (("--app", "bare", "--out", "/dev/null/here"), "cannot be created (Not a directory)"),
    ],
)
def test_profile_refuses_invalid_arguments(project, arguments, message):
    assert message in voxcast(project, "measure", *arguments, status=2).stderr
