"""A submission or a worker on a full disk: one clear line, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from planted_tasks import plan_of, shell_app, write_images
from small_disk import fill, mounted, remount
from small_pool import SCRIPT, pool_cell, small_pool
from voxcast.jobs.submission import Plan
from voxcast.jobs.worker import TODO

WRITE = 'printf done > "$2/done"'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


def worker(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return voxcast(*arguments, cwd=cwd, module="voxcast.jobs.worker")


def voxcast(
    *arguments: object, cwd: Path, module: str = "voxcast.cli"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], cwd=cwd,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
    )  # fmt: skip


def planned(folder: Path, script: str, count: int) -> tuple[Path, Plan]:
    images = write_images(folder / "in", [f"{number}.nii" for number in range(count)])
    plan = plan_of(shell_app(script), images)
    path = folder / "plan.json"
    path.write_text(json.dumps(plan.to_record()))
    return path, plan


def resumed(disk: Path, folder: str, plan: Plan) -> dict:
    """Go on with a submission, and check that every task has its results once."""
    completed = voxcast("submit", "--resume", folder, "--json", "--poll", "1s", cwd=disk)
    assert completed.returncode == 0, completed.stderr
    content = json.loads(completed.stdout)
    assert content["by_status"] == {"completed": len(plan.tasks)}
    for row in content["rows"]:
        ends = [attempt["outcome"] for attempt in row["attempts"]]
        assert ends[-1] == "completed"
        assert set(ends[:-1]) <= {"node_failure"}  # lost, by no fault of its own
        assert (disk / "out" / row["task"] / "done").read_text() == "done"
    return content


def test_nothing_is_begun_on_a_full_disk(tmp_path: Path, disk: Path) -> None:
    path, plan = planned(tmp_path, WRITE, 2)
    filler = fill(disk)
    command = ("submit", "--requests", path, "--out", "out", "--cluster", "local")
    refused = voxcast(*command, cwd=disk)
    assert (refused.returncode, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert "no space left on the device; free some and run the same command again" in line
    filler.unlink()
    assert voxcast(*command, cwd=disk).returncode == 0
    resumed(disk, "out", plan)


def test_a_disk_that_fills_while_tasks_run_is_no_fault_of_theirs(
    tmp_path: Path, disk: Path
) -> None:
    filler = disk / "filler"
    # The first run of "1" takes all that is left, so that its measurement cannot be written.
    script = (
        f'case "$1" in */1.nii) if [ ! -e {tmp_path}/tried ]; then touch {tmp_path}/tried; '
        f"head -c 9000000 /dev/zero > {filler}; fi ;; esac; {WRITE}; true"
    )
    path, plan = planned(tmp_path, script, 4)
    command = ("submit", "--requests", path, "--out", "out", "--cluster", "local")
    ended = voxcast(*command, "--throttle", "1", cwd=disk)
    assert (ended.returncode, ended.stdout) == (2, "")
    line = ended.stderr.splitlines()[-1]
    (folder,) = (disk / "out" / ".voxcast").iterdir()
    then = f"`voxcast submit --resume {folder}` continues"
    assert line == (
        f"voxcast: {folder}: no space left on the device; its runs were stopped; free some, "
        f"then {then}"
    )
    filler.unlink()
    remount(disk, "size=30m")
    resumed(disk, str(folder), plan)


def test_a_worker_on_a_full_disk_ends_in_one_line(disk: Path) -> None:
    code = f"open({str(disk / 'large')!r}, 'wb').write(bytes(9_000_000))"
    pool = small_pool(disk / "pool", pool_cell(app=SCRIPT, code=code))
    ended = worker("--pool", pool.folder, "--cpus", "1", cwd=disk)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no space left on the device" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert [name.split(".")[1] for name in pool.names(TODO)] == ["0"]
    (disk / "large").unlink()
    remount(disk, "size=30m")
    again = worker("--pool", pool.folder, "--cpus", "1", cwd=disk)
    assert again.stdout == "1 runs recorded, 0 attempts failed, 0 cells wait\n", again.stderr
