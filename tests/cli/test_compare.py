"""``voxcast compare --by device`` on real folders of runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from made_up_runs import cell, write_run
from voxcast.history.parts import collect
from voxcast.records import Configuration

VOXCAST = Path(sys.executable).with_name("voxcast")
CPU, GPU = Configuration("cpu", 2), Configuration("gpu", 2, 1)


def compare(cwd: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "VOXCAST_PROJECT"}
    done = subprocess.run(
        [VOXCAST, "compare", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done


def measure(folder: Path, configuration: Configuration, seconds: float) -> None:
    for n in range(6):
        for repeat in range(2):
            of = cell(repeat, configuration=configuration, volume_id=f"v{n}", subject=f"s{n}")
            used = 4 * 10**9 if configuration.gpus else None
            took = seconds * (1 + n / 10) * (1 + repeat / 100)
            write_run(folder, of, runtime_s=took, peak_rss_bytes=10**9, peak_gpu_bytes=used)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The CPU's runs were recorded for good, the GPU's lie where they were measured."""
    (tmp_path / "params.yaml").write_text("")
    measure(tmp_path / "measured", CPU, 20.0)
    collect(tmp_path / "measured", tmp_path / "data" / "history" / "first")
    measure(tmp_path / "data" / "runs" / "gpu", GPU, 4.0)
    return tmp_path


def test_speedup_cost_and_variability_come_out(project: Path) -> None:
    found = json.loads(compare(project, "--by", "device", "--json").stdout)
    assert found["runs"] == 24
    assert found["missing"] is None
    whole, phase = found["comparisons"]
    assert (whole["phase"], phase["phase"]) == (None, "n4")
    assert whole["speedup"] == pytest.approx(5)
    assert whole["speedup_low"] == pytest.approx(5)
    assert whole["pairs"] == 6
    assert whole["memory_bytes"] == [10**9, 4 * 10**9]
    assert whole["cv_percent"] == pytest.approx([0.7, 0.7], abs=0.01)
    cpu_usd, gpu_usd = whole["usd"]
    assert gpu_usd / cpu_usd == pytest.approx((0.096 / 0.006) / 5)
    assert whole["least"][0]["speedup"] == pytest.approx(5)
    assert phase["speedup"] == pytest.approx(1)


def test_it_reads_to_people(project: Path) -> None:
    shown = compare(project)
    assert "app, 2 CPUs: whole run: 5×" in shown.stdout
    assert "gain least: v0: 5×" in shown.stdout
    assert "24 runs on record" in shown.stderr
    free = compare(project, "--usd-per-gpu-hour", "0", "--usd-per-core-hour", "0").stdout
    assert "0 USD a 1000 runs on the CPU" in free


def test_named_folders_need_no_project(project: Path, tmp_path: Path) -> None:
    (project / "params.yaml").unlink()
    assert "no project here" in compare(tmp_path, status=2).stderr
    history, runs = str(project / "data" / "history"), str(project / "data" / "runs" / "gpu")
    assert "whole run: 5×" in compare(Path("/"), "--history", history, runs).stdout


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("history", "no run on a GPU is on record"),
        ("runs", "no run on a CPU is on record"),
        ("nothing", "no completed run is on record"),
    ],
)
def test_a_side_without_runs_is_said(project: Path, kept: str, said: str) -> None:
    for name in {"history", "runs"} - {kept}:
        (project / "data" / name).rename(project / f"away-{name}")
    assert said in compare(project).stdout
    found = json.loads(compare(project, "--json").stdout)
    assert said in found["missing"]
    assert found["comparisons"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--history", "gone"), "gone: no such folder"),
        (("--history", "data"), "data: holds no runs"),
        (("--usd-per-gpu-hour", "-1"), "a price cannot be negative"),
        (("--usd-per-core-hour", "nan"), "a price cannot be negative"),
        (("--by", "moon"), "invalid choice"),
    ],
)
def test_what_is_wrong_is_said(project: Path, arguments: tuple[str, ...], said: str) -> None:
    done = compare(project, *arguments, status=2)
    assert said in done.stderr
    assert done.stdout == ""
