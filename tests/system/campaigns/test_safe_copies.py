"""Runs of an interrupted stage survive what DVC does to its outputs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from small_head import write_head
from synthetic_runs import cell, write_run
from versioned_project import ROOT, environment
from voxcast import config
from voxcast.campaigns.safe_copies import SafeCopies
from voxcast.history.run_folders import load_records

TOOL = """
import pathlib, sys, time
time.sleep(0.5)
(pathlib.Path(sys.argv[1]) / "labels").write_text("x")
"""


def test_copies_are_links_and_come_back(tmp_path: Path) -> None:
    runs = tmp_path / "runs" / "cpu"
    first, second = (write_run(runs, cell(repeat)) for repeat in (0, 1))
    copies = SafeCopies(runs)
    for run in (first, second):
        copies.add(run)
    copy = tmp_path / "runs/.cpu.unfinished" / first.name / "record.json"
    assert copy.stat().st_ino == (first / "record.json").stat().st_ino
    content = (second / "record.json").read_text()
    shutil.rmtree(second)
    assert SafeCopies(runs).restore() == 1
    assert (second / "record.json").read_text() == content
    assert len(load_records(runs)) == 2
    assert SafeCopies(runs).restore() == 0
    copies.discard()
    assert [path.name for path in runs.parent.iterdir()] == ["cpu"]


def test_an_interrupted_copy_is_no_run(tmp_path: Path) -> None:
    runs = tmp_path / "cpu"
    run = write_run(runs, cell())
    copies = SafeCopies(runs)
    (copies.folder / f".partial-{run.name}").mkdir(parents=True)
    assert copies.restore() == 0
    for _ in range(2):  # the second replaces the first
        copies.add(run)
        assert [path.name for path in copies.folder.iterdir()] == [run.name]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The stages up to the runs under git and DVC, an application, and two image sets."""
    folder = tmp_path / "project"
    for name in ("pipelines", "src", "conf"):
        ignored = shutil.ignore_patterns("__pycache__", "dvc.*")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in (".gitignore", "data/sources.tsv", "data/history/README.md"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / name, folder / name)
    graph = (ROOT / "dvc.yaml").read_text()
    (folder / "dvc.yaml").write_text(graph[: graph.index("\n  phases:")] + "\n")
    (tmp_path / "tool.py").write_text(TOOL)
    tool = {
        "argv": [sys.executable, str(tmp_path / "tool.py"), "{out}", "{image}"],
        "version": "1",
    }
    text = yaml.safe_dump({"defaults": ["_base@tool", "_self_"], "tool": tool})
    (folder / "conf/app/tool.yaml").write_text(text)
    for image_set, names in (("one", "a"), ("two", "abcdefgh")):
        (tmp_path / image_set).mkdir()
        for edge, name in enumerate(names, start=24):
            write_head(tmp_path / image_set / f"{name}.nii.gz", edge=edge)
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        run(folder, *command)
    return folder


def run(folder: Path, *command: str) -> None:
    completed = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, f"{completed.stdout}\n{completed.stderr}"


def records(project: Path) -> dict[Path, int]:
    paths = project.glob("data/runs/cpu/[0-9a-f]*/record.json")
    return {path: path.stat().st_mtime_ns for path in paths}


def choose(project: Path, image_set: str) -> None:
    changes = [
        "images=bids", f"images.path={project.parent / image_set}", "app=[tool]",
        "device=[cpu]", "device.cpu.cpus=[1]", "campaign=tiny", "campaign.sweeps.all.volumes=8",
    ]  # fmt: skip
    config.compose(project / "params.yaml", changes, project / "conf")


def test_an_experiment_after_an_interruption_measures_no_run_again(project: Path) -> None:
    choose(project, "one")
    run(project, "dvc", "repro")
    run(project, "git", "add", "-A")
    run(project, "git", "commit", "-qm", "one")
    before = records(project)
    assert before
    choose(project, "two")
    begun = subprocess.Popen(
        ["dvc", "repro"], cwd=project, env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while len(records(project)) < len(before) + 2 and begun.poll() is None:
        time.sleep(0.1)
    assert begun.poll() is None, "all was measured before it could be interrupted"
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    written_ns = records(project)
    assert len(written_ns) > len(before)
    run(project, "dvc", "exp", "run", "--no-hydra")
    after = records(project)
    assert len(after) > len(written_ns)
    assert {path: after.get(path) for path in written_ns} == written_ns
    assert not (project / "data/runs/.cpu.unfinished").exists()


def test_a_failed_run_has_no_copy(tmp_path: Path) -> None:
    run_folder = write_run(tmp_path / "cpu", cell(), outcome="failed")
    copies = SafeCopies(tmp_path / "cpu")
    copies.add(run_folder)
    assert not copies.folder.exists()
