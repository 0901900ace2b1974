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
from small_pool import SCRIPT, SmallPool, pool_cell, small_pool
from voxcast.cli import main
from voxcast.jobs.submission import Plan
from voxcast.jobs.worker import TODO

WRITE = 'printf done > "$2/done"'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


def worker(pool: SmallPool, disk: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voxcast.jobs.worker", "--pool", str(pool.folder)]
    return subprocess.run(
        [*command, "--cpus", "1"], cwd=disk, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
    )  # fmt: skip


def submit(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Return what ``voxcast submit`` prints; its last line of errors where it fails."""
    assert main(["submit", *map(str, arguments)]) == code
    printed = capsys.readouterr()
    assert not (code and printed.out)
    return printed.err.splitlines()[-1] if code else printed.out


def planned(folder: Path, script: str, count: int) -> tuple[Path, Plan]:
    images = write_images(folder / "in", [f"{number}.nii" for number in range(count)])
    plan = plan_of(shell_app(script), images)
    path = folder / "plan.json"
    path.write_text(json.dumps(plan.to_record()))
    return path, plan


def resumed(capsys: pytest.CaptureFixture[str], disk: Path, folder: object, plan: Plan) -> None:
    """Go on with a submission, and check that every task has its results once."""
    text = submit(capsys, "--resume", folder, "--json", "--poll", "1s")
    content = json.loads(text)
    assert content["by_status"] == {"completed": len(plan.tasks)}
    for row in content["rows"]:
        ends = [attempt["outcome"] for attempt in row["attempts"]]
        assert ends[-1] == "completed"
        assert set(ends[:-1]) <= {"node_failure"}  # lost, by no fault of its own
        assert (disk / "out" / row["task"] / "done").read_text() == "done"


def test_nothing_is_begun_on_a_full_disk(tmp_path: Path, disk: Path, capsys) -> None:
    path, plan = planned(tmp_path, WRITE, 2)
    filler = fill(disk)
    command = ("--requests", path, "--out", disk / "out", "--cluster", "local")
    line = submit(capsys, *command, code=2)
    assert "no space left on the device; free some and run the same command again" in line
    filler.unlink()
    submit(capsys, *command)
    resumed(capsys, disk, disk / "out", plan)


def test_a_disk_that_fills_while_tasks_run_is_no_fault_of_theirs(
    tmp_path: Path, disk: Path, capsys
) -> None:
    filler = disk / "filler"
    # The first run of "1" takes all that is left, so that its measurement cannot be written.
    script = (
        f'case "$1" in */1.nii) if [ ! -e {tmp_path}/tried ]; then touch {tmp_path}/tried; '
        f"head -c 9000000 /dev/zero > {filler}; fi ;; esac; {WRITE}; true"
    )
    path, plan = planned(tmp_path, script, 4)
    command = ("--requests", path, "--out", disk / "out", "--cluster", "local")
    line = submit(capsys, *command, "--throttle", "1", code=2)
    (folder,) = (disk / "out" / ".voxcast").iterdir()
    assert line == (
        f"voxcast: {folder}: no space left on the device; its runs were stopped; free some, "
        f"then `voxcast submit --resume {folder}` continues"
    )
    filler.unlink()
    remount(disk, "size=30m")
    resumed(capsys, disk, folder, plan)


def test_a_worker_on_a_full_disk_ends_in_one_line(disk: Path) -> None:
    code = f"open({str(disk / 'large')!r}, 'wb').write(bytes(9_000_000))"
    pool = small_pool(disk / "pool", pool_cell(app=SCRIPT, code=code))
    ended = worker(pool, disk)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no space left on the device" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert [name.split(".")[1] for name in pool.names(TODO)] == ["0"]
    (disk / "large").unlink()
    remount(disk, "size=30m")
    again = worker(pool, disk)
    assert again.stdout == "1 runs recorded, 0 attempts failed, 0 cells wait\n", again.stderr
