"""Kernels timed beside real runs: recorded, no part of the run, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from measured import measured_run
from voxcast.measure.metronome import MODULE, Metronome
from voxcast.records import Run
from voxcast.runs.table import METRONOME

BOTH_METERS = pytest.mark.parametrize("groups", [True, False], ids=["group", "tree"])
OWN_BYTES = 40_000_000  # the memory that the kernels work on, less than the process has
PATIENCE_S = 60.0
SLEEP = "import time; time.sleep(1.5); print('spent', time.process_time())"
DRIVER = """
import pathlib, sys
from voxcast.measure.metronome import Metronome
from voxcast.measure.runner import measure
from voxcast.records import Run
base = Run("", "", cpus=1)
with Metronome() as metronome:
    measure(["sleep", "300"], {}, pathlib.Path(sys.argv[1]), base=base, metronome=metronome)
"""


def workers(driver: psutil.Process | None = None) -> list[psutil.Process]:
    """Return the metronomes that this process, or another, has started."""
    children = (driver or psutil.Process()).children()
    return [p for p in children if p.status() != "zombie" and MODULE in p.cmdline()]


def run(folder: Path, script: str, metronome: Metronome, **options: Any) -> Run:
    command = [sys.executable, "-I", "-c", script]
    return measured_run(command, folder / "run", metronome=metronome, **options)


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def metronome() -> Iterator[Metronome]:
    assert not workers()
    with Metronome(period_s=0.05) as opened:
        yield opened
    assert not workers()


@BOTH_METERS
def test_kernels_are_timed_beside_a_run_and_do_not_count_in_it(
    tmp_path: Path, metronome: Metronome, groups: bool
) -> None:
    profile = run(tmp_path, SLEEP, metronome, groups=groups)
    assert profile.metronome_ticks is not None
    assert profile.metronome_ticks >= 1
    seconds = [vars(profile)[name] for name in list(METRONOME)[:-1]]
    assert all(0 < value < 1 for value in seconds)
    [worker] = workers()
    assert worker.memory_info().rss > OWN_BYTES > profile.peak_rss_bytes
    spent_s = float((tmp_path / "run" / "app.log").read_text().split()[1])
    ticks_s = profile.metronome_ticks * sum(seconds)
    assert profile.cpu_s < spent_s + max(0.05, 0.5 * ticks_s)
    assert profile.peak_threads == 1


def test_one_process_serves_run_after_run_on_the_cores_of_each(
    tmp_path: Path, metronome: Metronome
) -> None:
    pids = []
    for core in sorted(os.sched_getaffinity(0)):
        with metronome.beside([core]):
            [worker] = workers()
            pids.append(worker.pid)
            assert os.sched_getaffinity(worker.pid) == {core}
    assert len(set(pids)) == 1


def test_a_run_survives_its_metronome_and_the_next_one_has_another(
    tmp_path: Path, metronome: Metronome
) -> None:
    with metronome.beside([min(os.sched_getaffinity(0))]):
        [first] = workers()
    killer = threading.Timer(0.5, first.kill)
    killer.start()
    profile = run(tmp_path, SLEEP, metronome)
    killer.join()
    assert profile.outcome == "completed"
    assert profile.metronome_ticks is None
    assert run(tmp_path, SLEEP, metronome).metronome_ticks
    assert [worker.pid for worker in workers()] != [first.pid]


def test_a_machine_without_numpy_measures_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Metronome() as metronome:
        for _ in range(2):
            assert run(tmp_path, "pass", metronome).outcome == "completed"
    assert caplog.text.count("the speed of the machine is not measured") == 1
    assert not workers()


def test_it_dies_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "run")]
    with subprocess.Popen(command) as driver:
        process = psutil.Process(driver.pid)
        until(lambda: len(process.children()) == 2)
        [worker] = workers(process)
        leader = next(child for child in process.children() if child != worker)
        driver.kill()
    for left in (worker, leader):
        until(lambda left=left: not left.is_running() or left.status() == "zombie")
