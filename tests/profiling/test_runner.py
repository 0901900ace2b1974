import os
import sys
import time

import pandas as pd
import psutil
import pytest

from voxcast.errors import RunError
from voxcast.profiling import runner
from voxcast.profiling.runner import measure

BOTH_METERS = pytest.mark.parametrize("groups", [True, False], ids=["group", "tree"])

# 60 MB shared by all three processes and 60 MB of its own in each child: 180 MB, not 300.
ALLOCATE = """
import mmap, os, time
shared = mmap.mmap(-1, 60_000_000)
shared.write(b"x" * 60_000_000)
children = []
for _ in range(2):
    pid = os.fork()
    if not pid:
        own = b"x" * 60_000_000
        sum(shared[::4096])
        time.sleep(0.7)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
SPIN = """
import os, subprocess, sys, time
depth = int(sys.argv[1])
children = [subprocess.Popen([sys.executable, "-I", __file__, str(depth - 1)])
            for _ in range(2) if depth]
while time.process_time() < 0.25: pass
for child in children: child.wait()
os.write(1, f"spent {time.process_time()}\\n".encode())
"""
DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
os.write(1, f"pid {os.getpid()}\\n".encode())
time.sleep(60)
"""
GROW = """
import time
hoard = []
while True:
    hoard.append(b"x" * 10_000_000)
    time.sleep(0.02)
"""
LEAVE = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(1, f"pid {os.getpid()}\\n".encode())
        time.sleep(60)
    os._exit(0)
time.sleep(0.3)
"""


def _measure(folder, script, *arguments, **options):
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-I", str(path), *arguments]
    return measure(command, {}, folder / "run", **{"cpus": 1, **options})


def _numbers(folder, word):
    lines = (folder / "run" / "app.log").read_text().splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith(word)]


def _dead(pids):
    return not any(psutil.pid_exists(p) and _state(p) != "zombie" for p in map(int, pids))


def _state(pid):
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return "zombie"


@BOTH_METERS
def test_peak_of_a_known_pattern_is_found_and_shared_pages_count_once(tmp_path, groups):
    idle = _measure(tmp_path, "import time; time.sleep(0.15)", groups=groups)
    profile = _measure(tmp_path, ALLOCATE, groups=groups)
    assert profile.outcome == "completed"
    # An interpreter's own pages come on top, at most three times.
    assert 180e6 * 0.95 < profile.peak_rss_bytes < 180e6 * 1.05 + 3 * idle.peak_rss_bytes
    if groups and profile.memory_method.startswith("cgroup"):
        assert profile.peak_rss_bytes < 180e6 * 1.05 + 15e6
        assert profile.peak_cgroup_bytes >= profile.peak_rss_bytes
    samples = pd.read_parquet(tmp_path / "run" / "samples.parquet")
    assert samples["rss_bytes"].max() == profile.peak_rss_bytes
    assert samples["t_s"].is_monotonic_increasing
    assert samples["cpu_s"].is_monotonic_increasing


@BOTH_METERS
def test_cpu_time_of_a_whole_tree_is_counted(tmp_path, groups):
    profile = _measure(tmp_path, SPIN, "2", cpus=len(os.sched_getaffinity(0)), groups=groups)
    spent = _numbers(tmp_path, "spent")
    assert len(spent) == 7
    assert profile.cpu_s / sum(spent) == pytest.approx(1.0, abs=0.1)


@BOTH_METERS
def test_a_tree_that_ignores_sigterm_ends_at_its_time_limit(tmp_path, groups, monkeypatch):
    monkeypatch.setattr(runner, "GRACE_S", 0.3)
    profile = _measure(tmp_path, DEAF, time_limit_s=0.4, groups=groups)
    assert (profile.outcome, profile.exit_status, profile.limit_s) == ("timeout", -9, 0.4)
    assert profile.runtime_s >= 0.4
    pids = _numbers(tmp_path, "pid")
    assert len(pids) == 2
    assert _dead(pids)


@BOTH_METERS
def test_memory_limit_ends_the_run(tmp_path, groups):
    profile = _measure(tmp_path, GROW, memory_limit_bytes=80_000_000, groups=groups)
    assert profile.outcome == "out_of_memory"
    assert profile.peak_rss_bytes > 80_000_000


@BOTH_METERS
def test_children_left_behind_are_killed(tmp_path, groups):
    profile = _measure(tmp_path, LEAVE, groups=groups)
    assert (profile.outcome, profile.exit_status) == ("completed", 0)
    pids = _numbers(tmp_path, "pid")
    assert len(pids) == 1
    assert _dead(pids)


def test_a_failed_run_keeps_its_status_and_both_output_streams(tmp_path):
    script = "import sys; print('out'); sys.exit('no such tissue')"
    profile = _measure(tmp_path, script)
    assert (profile.outcome, profile.exit_status) == ("failed", 1)
    log = (tmp_path / "run" / "app.log").read_text()
    assert "out" in log
    assert "no such tissue" in log
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["app.log", "samples.parquet"]


def test_the_run_has_exactly_its_cpus_and_variables(tmp_path):
    script = "import os; print('cpus', len(os.sched_getaffinity(0))); print('n', os.environ['N'])"
    path = tmp_path / "script.py"
    path.write_text(script)
    measure([sys.executable, str(path)], {"N": "7"}, tmp_path / "run", cpus=1)
    assert _numbers(tmp_path, "cpus") == [1]
    assert _numbers(tmp_path, "n") == [7]
    with pytest.raises(RunError, match="are available"):
        measure([sys.executable, str(path)], {}, tmp_path / "run", cpus=100_000)


def test_a_command_that_is_not_there_is_an_error_and_leaves_no_group(tmp_path):
    with pytest.raises(RunError, match="cannot be started"):
        measure([str(tmp_path / "nothing")], {}, tmp_path / "run", cpus=1)


def test_phases_get_their_peak_from_the_samples(tmp_path):
    script = (
        "import time\n"
        "from voxcast.apps.phase_log import phase, started\n"
        "started()\n"
        "with phase('big'):\n"
        "    big = b'x' * 100_000_000; time.sleep(0.4)\n"
        "del big\n"
        "with phase('small'): time.sleep(0.4)\n"
    )
    profile = _measure(tmp_path, script)
    start, big, small = profile.phases
    assert (start.name, big.name, small.name) == ("start", "big", "small")
    assert big.peak_rss_bytes > 100_000_000 > small.peak_rss_bytes
    assert small.end_s <= profile.runtime_s


def test_the_end_is_noticed_without_process_handles_too(tmp_path, monkeypatch):
    def missing(pid):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    profile = _measure(tmp_path, "import time; time.sleep(0.05)", sample_hz=0.1)
    assert profile.outcome == "completed"
    assert profile.runtime_s < 5  # the second sample would come at ten


def test_a_driver_that_is_killed_takes_the_run_along(tmp_path):
    driver = os.fork()
    if not driver:
        try:
            _measure(
                tmp_path,
                "import os, time; os.write(1, f'pid {os.getpid()}\\n'.encode());time.sleep(60)",
            )
        finally:
            os._exit(1)
    log = tmp_path / "run" / "app.log"
    while not (log.exists() and log.read_text()):
        time.sleep(0.01)
    os.kill(driver, 9)
    os.waitpid(driver, 0)
    (pid,) = map(int, _numbers(tmp_path, "pid"))
    deadline = time.monotonic() + 5
    while not _dead([pid]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _dead([pid])
    runner.sweep(tmp_path / "run")
    assert not (tmp_path / "run").exists()
