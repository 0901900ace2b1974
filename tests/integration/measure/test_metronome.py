"""What is beside a run, and what a killed driver leaves: kernels timed, leftovers removed."""

import os
import signal
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
from small_pool import wait_for
from voxcast.cli import main
from voxcast.measure import meters, processes
from voxcast.measure.metronome import MODULE, Metronome
from voxcast.measure.processes import alive
from voxcast.records import Run
from voxcast.runs.table import BEFORE, METRONOME

BOTH_METERS = pytest.mark.parametrize("groups", [True, False], ids=["group", "tree"])
OWN_BYTES = 40_000_000  # the memory that the kernels work on, less than the process has
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
    assert all(0 < value < 1 for value in [*seconds, *(vars(profile)[name] for name in BEFORE)])
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


@pytest.mark.parametrize("after_s", [0.5, 1.5], ids=["before the run", "beside it"])
def test_a_run_survives_its_metronome_and_the_next_one_has_another(
    tmp_path: Path, metronome: Metronome, after_s: float
) -> None:
    with metronome.beside([min(os.sched_getaffinity(0))]):
        [first] = workers()
    killer = threading.Timer(after_s, first.kill)
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
        wait_for(lambda: len(process.children()) == 2)
        [worker] = workers(process)
        leader = next(child for child in process.children() if child != worker)
        driver.kill()
    for left in (worker, leader):
        wait_for(lambda left=left: not left.is_running() or left.status() == "zombie")


VOXCAST = Path(sys.executable).with_name("voxcast")
PROJECT = Path(__file__).parents[3]
# A process that leaves the leader's session, and one that stays in it.
TREE = "#!/bin/sh\nsetsid sleep 300 &\necho $! >> $1.pids\nsleep 300 &\necho $! >> $1.pids\nwait\n"
PATIENCE_S = 60.0


def _pids(path: Path) -> list[int]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        words = path.read_text().split() if path.exists() else []
        if len(words) == 2:
            return [int(word) for word in words]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _profile(folder: Path, name: str, script: str, *options: str) -> list[str]:
    image, program = folder / f"{name}.nii", folder / f"{name}.sh"
    image.write_text("an image that the program does not read")
    program.write_text(script)
    program.chmod(0o755)
    argv = f"{program} {folder / name} {{image}} {{out}}"
    words = ["measure", str(image), "--command", argv, *options]
    return [*words, "--project", str(PROJECT)]


def _killed_in_a_run(folder: Path, name: str, temporary: Path, *options: str) -> list[int]:
    """Kill a real ``voxcast measure`` in the middle; return the processes of its run."""
    driver = subprocess.Popen(
        [str(VOXCAST), *_profile(folder, name, TREE, *options)],
        env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pids = _pids(folder / f"{name}.pids")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    return pids


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(processes.tempfile, "tempdir", str(folder))
    return folder


def test_the_next_run_removes_what_a_killed_one_left(
    tmp_path: Path, temporary: Path, caplog
) -> None:
    pids = _killed_in_a_run(tmp_path, "first", temporary)
    # Runs of other tests may remove the processes and groups first; the folder is ours alone.
    left = [leftover for leftover in processes.abandoned() if leftover.kind == "folder"]
    assert [Path(leftover.name) for leftover in left] == list(temporary.iterdir())
    groups = [group for group in processes.groups_of_runs() if processes.is_abandoned(group.name)]

    caplog.set_level("INFO", logger="voxcast")
    assert main(_profile(tmp_path, "second", "#!/bin/sh\ntrue\n")) == 0
    assert f"removed folder {left[0].name}" in caplog.text
    assert not alive(set(pids))
    assert not list(temporary.iterdir())
    assert not any(group.exists() for group in groups)


def test_a_named_folder_of_a_killed_run_is_used_again(
    tmp_path: Path, temporary: Path, capsys
) -> None:
    out = ("--out", str(tmp_path / "out"))
    pids = _killed_in_a_run(tmp_path, "again", temporary, *out)
    (tmp_path / "again.sh").write_text("#!/bin/sh\ntrue\n")
    words = _profile(tmp_path, "again", "#!/bin/sh\ntrue\n", *out)
    assert main(words) == 0
    assert not alive(set(pids))
    assert (tmp_path / "out/01-again/samples.npz").is_file()
    assert main(words) == 2
    assert "already exists" in capsys.readouterr().err


def test_what_is_in_use_is_left_alone(temporary: Path) -> None:
    with processes.temporary_folder() as folder:
        run_id = processes.new_run_id()
        group = meters.open_meter(run_id, meters.planned_group(run_id))
        try:
            mine = {leftover.name for leftover in processes.abandoned()}
            assert folder not in mine
            assert not mine & set(map(str, group.folders))
        finally:
            group.close()
    (temporary / "voxcast-of-something-else").mkdir()
    assert not list(processes._temporary_folders())


def test_a_reused_process_id_and_another_machine(tmp_path: Path) -> None:
    run_id = processes.new_run_id()
    machine, pid, started, rest = run_id.split("-")
    assert not processes.is_abandoned(run_id)
    assert processes.is_abandoned(f"voxcast-{machine}-{pid}-{int(started) - 1}-{rest}")
    assert not processes.is_abandoned(f"{'0' * 8}-{pid}-{int(started) - 1}-{rest}")
