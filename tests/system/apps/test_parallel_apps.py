"""The applications of several processes: real processes, by mpirun and by DDP over gloo."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from small_pool import wait_for
from voxcast.apps.phase_log import read_phases
from voxcast_apps import ranks
from voxcast_apps.arguments import NO_IMAGE, Arguments
from voxcast_apps.ranks import BLOCK_ROWS, generated_rows

needs_mpi = [
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun, e.g. openmpi-bin"),
]
SMALL = {
    "kmeans_mpi": {"points": 9001, "clusters": 5, "dimensions": 3, "iterations": 6},
    "pinn_mpi": {"points": 501, "iterations": 6, "layers": 2, "neurons": 8},
    "ddp_train": {"samples": 100, "epochs": 2, "batch_size": 32, "width": 4, "image_size": 8,
                  "dataset": "synthetic"},
}  # fmt: skip
APPS = [
    pytest.param("kmeans_mpi", marks=needs_mpi),
    pytest.param("pinn_mpi", marks=needs_mpi),
    "ddp_train",
]


def command(app, out, cpus, **parameters):
    arguments = ["--out", str(out), "--threads", str(cpus), "--device", "cpu"]
    text = json.dumps({**SMALL[app], **parameters})
    module = f"voxcast_apps.{app}"
    return [sys.executable, "-P", "-m", module, *arguments, "--parameters", text]


def run(app, out, cpus, environment=None, **parameters):
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        command(app, out, cpus, **parameters),
        env=variables, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def result_of(app, out, cpus, **parameters):
    completed = run(app, out, cpus, **parameters)
    assert completed.returncode == 0, completed.stderr
    return json.loads((out / "result.json").read_text()), read_phases(completed.stdout, 0.0)


LEARNED = {
    "kmeans_mpi": ("inertia", "centres", "counts"),
    "pinn_mpi": ("loss_first", "loss_last"),
    "ddp_train": ("losses", "accuracy"),
}


@pytest.mark.parametrize("app", APPS)
def test_two_processes_compute_what_one_does(tmp_path, app):
    alone, _ = result_of(app, tmp_path / "1", 1)
    more = {"oversubscription": 2, "threads_per_process": 2}
    both, phases = result_of(app, tmp_path / "2", 2, **more)
    assert [r["processes"] for r in (alone, both)] == [1, 2]
    assert both["threads_per_process"] == 2
    for name in LEARNED[app]:
        np.testing.assert_allclose(both[name], alone[name], rtol=1e-4, atol=1e-6)
    names = [phase.name for phase in phases]
    steps = ["epoch"] * 2 + ["evaluate"] if app == "ddp_train" else ["iterate"]
    assert names[:2] == ["start", "import"]
    assert names[-len(steps) - 1 :] == [*steps, "write"]


def test_a_failed_process_ends_the_others(tmp_path, monkeypatch):
    """One process fails at once, the other one would wait for it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time\nsys.exit(3) if os.environ['RANK'] == '1' else time.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = Arguments(NO_IMAGE, tmp_path, 2, "cpu", ranks.DEFAULTS)
    # -P leaves out the current folder, not PYTHONPATH.
    assert ranks.run_torch_program("program", options) == 3


def session_members(session):
    """Return the processes of a session; mpirun gives its ranks process groups of their own."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                pids.append(int(stat.parent.name))
    return pids


# Also while it starts, which lasts long with many processes: two are there before the ranks.
@pytest.mark.parametrize(
    ("app", "cpus", "begun"),
    [*(pytest.param(*app.values, 2, 3, marks=app.marks) for app in APPS[:2]),
     ("ddp_train", 2, 3), ("ddp_train", 16, 2)],
)  # fmt: skip
def test_an_interrupted_run_leaves_no_process(tmp_path, app, cpus, begun):
    steps = {"epochs": 100_000} if app == "ddp_train" else {"iterations": 10_000_000}
    process = subprocess.Popen(
        command(app, tmp_path, cpus, **steps),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: len(session_members(process.pid)) >= begun, 120)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        wait_for(lambda: not session_members(process.pid))
    finally:
        for pid in session_members(process.pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("processes", [1, 3, 8])
def test_rows_do_not_depend_on_the_number_of_processes(processes):
    def make(rng, rows):
        return rng.normal(size=(rows, 2))

    count = 2 * BLOCK_ROWS + 100
    parts = [generated_rows(make, 7, count, rank, processes) for rank in range(processes)]
    assert np.array_equal(np.concatenate(parts), generated_rows(make, 7, count, 0, 1))
