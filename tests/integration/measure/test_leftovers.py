"""Leftovers of a killed driver: found, distinguished from runs in use, removed at the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from voxcast.cli import main
from voxcast.measure import meters, processes
from voxcast.measure.processes import alive

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
