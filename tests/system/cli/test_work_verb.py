"""``python -m voxcast.jobs.worker`` as users and Slurm call it."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from small_pool import pool_cell, small_pool, wait_for
from voxcast.cli import main
from voxcast.jobs.worker import HELD, PARTIAL, TODO


def command(*arguments):
    environment = {n: v for n, v in os.environ.items() if not n.startswith("SLURM_")}
    return {
        "args": [sys.executable, "-m", "voxcast.jobs.worker", *map(str, arguments)],
        "env": environment,
        "text": True,
    }


def voxcast_work(*arguments, status=0):
    completed = subprocess.run(capture_output=True, check=False, **command(*arguments))
    assert completed.returncode == status, completed.stderr
    return completed


def test_a_worker_does_what_fits_and_says_what_is_left(tmp_path):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(3)))
    short = voxcast_work("--pool", pool.folder, "--time-budget", "3.6s")
    assert "3 need more here: time" in short.stdout
    done = voxcast_work("--pool", pool.folder, "--cpus", "1", "--memory", "1GB")
    assert done.stdout == "3 runs recorded, 0 attempts failed, 0 cells wait\n"


def test_status_shows_the_cells_of_a_pool(tmp_path, capsys):
    cells = [pool_cell(number) for number in range(3)]
    pool = small_pool(tmp_path / "pool", *cells)
    assert pool.draw(pool.names(TODO)[0], "w~~1")
    assert main(["status", str(pool.folder)]) == 0
    assert "work-small, 3 tasks: 1 running, 2 waiting\n" in capsys.readouterr().out
    assert main(["status", str(pool.folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["tasks"], shown["by_status"]) == (3, {"running": 1, "waiting": 2})
    assert main(["status", str(pool.folder), "--collect"]) == 2
    assert "`voxcast measure --campaign NAME --cluster C` collects" in capsys.readouterr().err


def test_sigterm_returns_the_cell_at_once(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=600.0))
    worker = subprocess.Popen(stderr=subprocess.PIPE, **command("--pool", pool.folder))
    wait_for(lambda: list((pool.tickets.folder / PARTIAL).glob("*/app.log")))
    start = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    _, messages = worker.communicate(timeout=60)
    assert time.monotonic() - start < 60
    assert worker.returncode == 0, messages
    assert "asked to stop; the cell at hand was returned" in messages
    assert [name.split(".")[1] for name in pool.names(TODO)] == ["0"]
    assert pool.names(HELD) == []
    assert not pool.names(PARTIAL)


def test_a_job_that_is_ended_as_a_whole_counts_no_failure(tmp_path):
    """scancel, and the end of a job's time, signal all of its processes: the run is first."""
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=600.0))
    worker = subprocess.Popen(stderr=subprocess.PIPE, **command("--pool", pool.folder))
    process = psutil.Process(worker.pid)
    wait_for(lambda: [p for p in process.children() if p.name() == "sleep"])
    for run in [p for p in process.children() if p.name() == "sleep"]:
        run.terminate()
    time.sleep(0.2)
    worker.send_signal(signal.SIGTERM)
    _, messages = worker.communicate(timeout=60)
    assert worker.returncode == 0, messages
    assert [name.split(".")[1] for name in pool.names(TODO)] == ["0"]
    assert list(pool.submission.events()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "voxcast.jobs.worker: the following arguments are required: --pool"),
        (("--pool", "gone"), "gone: no submission here; name the folder of one"),
        (("--pool", ".", "--time-budget", "0s"), "--time-budget: must be above zero"),
        (("--pool", ".", "--time-budget", "4"), "--time-budget: "),
        (("--pool", ".", "--max-hours", "4"), "unrecognized arguments: --max-hours"),
        (("--pool", ".", "--cpus", "9999"), "--cpus: must be 1 to"),
        (("--pool", ".", "--memory", "9e9GB"), "--memory: must be at most the memory"),
        (("--pool", ".", "--memory", "much"), "much"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    completed = voxcast_work(*arguments, status=2)
    (line,) = completed.stderr.splitlines()
    assert message in line
    assert completed.stdout == ""
