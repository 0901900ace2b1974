"""Measured runs of real programs, and other load beside them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from measured import measured, measured_run
from voxcast.errors import RunError
from voxcast.measure import runner
from voxcast.measure.host import Activity, CoreTime, core_time, disturbance
from voxcast.measure.processes import alive, sweep

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
SPIKE = """
import mmap, time
time.sleep(0.25)
hoard = mmap.mmap(-1, 200_000_000, flags=mmap.MAP_PRIVATE)
for start in range(0, len(hoard), 4096): hoard[start] = 1
hoard.close()
time.sleep(30)
"""
POOL = """
import os, time
pid = os.fork()
if not pid:
    hoard = b"x" * 300_000_000
    os._exit(0)
time.sleep(60)
"""
WRITE = """
import os, sys, threading, time
def write(name):
    with open(os.path.join(sys.argv[1], name), "wb") as stream:
        stream.write(os.urandom(3_000_000))
pid = os.fork()
if not pid:
    write("child")
    os._exit(0)
os.waitpid(pid, 0)
write("parent")
threads = [threading.Thread(target=time.sleep, args=(0.4,)) for _ in range(6)]
for thread in threads: thread.start()
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
    return measured_run(command, folder / "run", **options)


def _phases(folder, script, **options):
    path = folder / "script.py"
    path.write_text(script)
    return measured([sys.executable, "-I", str(path)], folder / "run", **options)


def _numbers(folder, word):
    lines = (folder / "run" / "app.log").read_text().splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith(word)]


def _dead(pids):
    return not alive(set(map(int, pids)))


@BOTH_METERS
def test_peak_of_a_known_pattern_is_found_and_shared_pages_count_once(tmp_path, groups):
    idle = _measure(tmp_path, "import time; time.sleep(0.15)", groups=groups)
    # An interpreter's own pages come on top, at most three times.
    highest = 180e6 * 1.05 + 3 * idle.peak_rss_bytes
    run = _measure(tmp_path, ALLOCATE, groups=groups)
    for _ in range(0 if groups else 2):
        # Where processes are sampled one by one, a busy machine may count a page twice.
        if run.peak_rss_bytes > highest:
            run = _measure(tmp_path, ALLOCATE, groups=groups)
    assert run.outcome == "completed"
    assert 180e6 * 0.95 < run.peak_rss_bytes < highest
    if groups and run.memory_method.startswith("cgroup"):
        assert run.peak_rss_bytes < 180e6 * 1.05 + 15e6
        assert run.peak_cgroup_bytes >= run.peak_rss_bytes
    samples = np.load(tmp_path / "run" / "samples.npz")
    assert samples["rss_bytes"].max() == run.peak_rss_bytes
    assert (np.diff(samples["t_s"]) >= 0).all()
    assert (np.diff(samples["cpu_s"]) >= 0).all()


@BOTH_METERS
def test_cpu_time_of_a_whole_tree_is_counted(tmp_path, groups):
    run = _measure(tmp_path, SPIN, "2", cpus=len(os.sched_getaffinity(0)), groups=groups)
    spent = _numbers(tmp_path, "spent")
    assert len(spent) == 7
    assert run.cpu_s / sum(spent) == pytest.approx(1.0, abs=0.1)


@BOTH_METERS
def test_a_tree_that_ignores_sigterm_ends_at_its_time_limit(tmp_path, groups, monkeypatch):
    monkeypatch.setattr(runner, "GRACE_S", 0.3)
    run = _measure(tmp_path, DEAF, time_limit_s=0.4, groups=groups)
    assert (run.outcome, run.exit_status, run.limit_s) == ("timeout", -9, 0.4)
    assert run.runtime_s >= 0.4
    assert run.cpu_s <= run.runtime_s * run.cpus
    pids = _numbers(tmp_path, "pid")
    assert len(pids) == 2
    assert _dead(pids)


@BOTH_METERS
def test_memory_limit_ends_the_run(tmp_path, groups):
    run = _measure(tmp_path, GROW, mem_limit_bytes=80_000_000, groups=groups)
    assert run.outcome == "out_of_memory"
    assert run.peak_rss_bytes >= 80_000_000


@BOTH_METERS
def test_orphaned_children_are_killed(tmp_path, groups):
    run = _measure(tmp_path, LEAVE, groups=groups)
    assert (run.outcome, run.exit_status) == ("completed", 0)
    pids = _numbers(tmp_path, "pid")
    assert len(pids) == 1
    assert _dead(pids)


def test_the_run_has_exactly_its_cpus_and_variables(tmp_path):
    script = "import os; print('cpus', len(os.sched_getaffinity(0))); print('n', os.environ['N'])"
    path = tmp_path / "script.py"
    path.write_text(script)
    measured_run([sys.executable, str(path)], tmp_path / "run", env={"N": "7"})
    assert _numbers(tmp_path, "cpus") == [1]
    assert _numbers(tmp_path, "n") == [7]
    with pytest.raises(RunError, match="runs on 1 to"):
        measured_run([sys.executable, str(path)], tmp_path / "run", cpus=100_000)


def test_a_missing_command_is_an_error_and_leaves_no_group(tmp_path):
    with pytest.raises(RunError, match="cannot be started"):
        measured_run([str(tmp_path / "nothing")], tmp_path / "run")


def test_a_phase_between_two_samples_gets_the_reading_of_the_run(tmp_path):
    script = (
        "import time\n"
        "from voxcast.apps.phase_log import phase, started\n"
        "started()\n"
        "x = b'x' * 50_000_000; time.sleep(1)\n"
        "with phase('short'): pass\n"
        "time.sleep(1)\n"
    )
    run, phases = _phases(tmp_path, script, sample_hz=5)
    (short,) = (phase for phase in phases if phase.name == "short")
    assert short.duration_s < 0.2
    assert 50_000_000 < short.peak_rss_bytes <= run.peak_rss_bytes


def test_the_end_is_detected_without_process_handles(tmp_path, monkeypatch):
    def missing(pid):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    run = _measure(tmp_path, "import time; time.sleep(0.05)", sample_hz=0.01)
    assert run.outcome == "completed"
    assert run.runtime_s < 60  # the second sample would come at a hundred


def test_a_run_too_short_to_sample_has_the_kernels_peak(tmp_path):
    run = measured_run(["true"], tmp_path / "run")
    if run.peak_cgroup_bytes is None:
        pytest.skip("no control group of its own here: nobody saw its memory")
    assert 0 < run.peak_rss_bytes < 100_000_000


def test_the_run_ends_when_its_driver_is_killed(tmp_path):
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
    sweep(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_spike_between_two_samples_is_caught_by_the_kernel(tmp_path):
    limit = 120_000_000
    run = _measure(tmp_path, SPIKE, mem_limit_bytes=limit, sample_hz=0.01, time_limit_s=60)
    if not run.memory_method.startswith("cgroup"):
        pytest.skip("no control group of its own can be had here")
    assert (run.outcome, run.exit_status) == ("out_of_memory", -9)
    assert run.runtime_s < 30  # which the program sleeps
    assert limit <= run.peak_rss_bytes < 1.01 * limit
    assert 0.99 * limit < run.peak_cgroup_bytes <= limit


def test_a_run_waiting_for_an_oom_killed_child_is_stopped(tmp_path):
    run = _measure(tmp_path, POOL, mem_limit_bytes=80_000_000, time_limit_s=20)
    assert run.outcome == "out_of_memory"
    assert run.runtime_s < 20


@BOTH_METERS
def test_storage_traffic_and_threads_of_the_whole_tree_are_counted(tmp_path, groups):
    run = _measure(tmp_path, WRITE, str(tmp_path), groups=groups)
    assert run.outcome == "completed"
    if run.io_write_bytes == 0:
        pytest.skip("the temporary folder is not on a disk")
    assert 6_000_000 <= run.io_write_bytes < 7_000_000
    assert run.io_read_bytes >= 0
    assert run.peak_threads == 7


@BOTH_METERS
def test_a_stalled_run_is_stopped_and_is_not_a_timeout(tmp_path, groups):
    script = "import time; time.sleep(60)"
    run = _measure(tmp_path, script, stall_s=0.6, time_limit_s=30, groups=groups)
    assert run.outcome == "stalled"
    assert 0.6 <= run.runtime_s < 30


def test_a_run_that_its_driver_stops_is_preempted(tmp_path):
    asked = []

    def stopped():
        asked.append(time.monotonic())
        return len(asked) > 3

    run = measured_run(["sleep", "60"], tmp_path, stopped=stopped)
    assert (run.outcome, len(asked)) == ("preempted", 4)
    assert run.runtime_s < 60
    done = measured_run(["true"], tmp_path / "2", stopped=lambda: False)
    assert done.outcome == "completed"


def test_phases_are_read_by_patterns_only_where_none_were_logged(tmp_path):
    patterns = {"warp": r"warp took (?P<seconds>[0-9.]+) s"}
    _, phases = _phases(tmp_path, "print('warp took 2.5 s')", phase_patterns=patterns)
    assert [(p.name, p.duration_s) for p in phases] == [("warp", 2.5)]
    script = "from voxcast.apps.phase_log import started; started(); print('warp took 2.5 s')"
    _, phases = _phases(tmp_path, script, phase_patterns=patterns)
    assert [phase.name for phase in phases] == ["start"]


def test_a_gpu_run_that_used_no_gpu_is_reported_as_a_failure(tmp_path):
    run = _measure(tmp_path, "print('done')", gpus=1, verify_gpu=True)
    assert (run.outcome, run.exit_status) == ("failed", 0)
    assert "not recorded as a GPU's" in (tmp_path / "run" / "app.log").read_text().splitlines()[-1]
    assert _measure(tmp_path, "print('done')", gpus=1).outcome == "completed"


@pytest.mark.parametrize(
    ("log", "status", "lacked"),
    [
        ("Traceback (most recent call last):\nMemoryError\n", 1, True),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9. GiB", 1, True),
        ("terminate called after throwing an instance of 'std::bad_alloc'", -6, True),
        ("OSError: [Errno 12] Cannot allocate memory", 1, True),
        ("java.lang.OutOfMemoryError: Java heap space", 1, True),
        ("run.sh: line 3: 4711 Killed    recon-all -all", 1, True),
        ("half of it\nKilled\n", 137, True),
        ("", 137, True),
        ("", -9, True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1, False),
        ("no such file\n", 1, False),
        ("Killed\nCannot allocate memory\n", 0, False),  # it got over it
        ("Error: cannot allocate vector of size 9.0 Gb\nExecution halted\n", 1, True),
        ("Unable to allocate 9.31 GiB for an array with shape (5, 5)\n", 1, True),
        ("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried", 1, True),
        ("java.lang.OutOfMemoryError: heap\n" + "\tat org.x.Y(Y.java:1)\n" * 30, 1, True),
        ("MemoryError\nsubprocess.CalledProcessError: Command 'a' died\n", 1, True),
        ("retrying after MemoryError\n" + "volume\n" * 50 + "OSError: no file\n", 1, False),
        ("fork: retry: Cannot allocate memory\nIndexError: list index\n", 1, False),
        ("fork: retry: Cannot allocate memory\n" + "volume\n" * 30 + "exit 3\n", 3, False),
        ("Child 12 killed by user\nerror: bad config\n", 2, False),
    ],
)
def test_a_failed_allocation_is_known_by_the_log_or_the_signal(log, status, lacked):
    assert runner.lacked_memory(log, status) is lacked


def test_a_run_that_could_not_allocate_is_out_of_memory(tmp_path):
    script = "b'x' * 50_000_000; b'x' * 2**60"
    run = _measure(tmp_path, script)
    assert (run.outcome, run.exit_status) == ("out_of_memory", 1)


@BOTH_METERS
def test_a_kill_that_the_kernel_did_not_make_is_no_lack_of_memory(tmp_path, groups):
    if "oom_kill" not in Path("/proc/vmstat").read_text():
        pytest.skip("this kernel does not count its kills")
    run = _measure(tmp_path, "import os; os.kill(os.getpid(), 9)", groups=groups)
    assert (run.outcome, run.exit_status) == ("failed", -9)


def test_the_run_marker_reaches_containers_that_clear_the_environment(tmp_path):
    marked = "{k: v for k, v in os.environ.items() if 'VOXCAST_RUN' in k}"
    script = f"import json, os; print(json.dumps({marked}))"
    measured_run([sys.executable, "-c", script], tmp_path)
    marks = json.loads((tmp_path / "app.log").read_text())
    assert set(marks) == {f"{p}VOXCAST_RUN" for p in ("", "APPTAINERENV_", "SINGULARITYENV_")}
    assert len(set(marks.values())) == 1


STAT = """\
cpu  300 0 100 2000 80 10 20 50 60 0
cpu0 100 0 50 1000 40 10 20 0 60 0
cpu1 200 0 50 1000 40 0 0 50 0 0
cpu10 9999 0 0 0 0 0 0 0 0 0
intr 5 0 0
"""


def test_only_the_watched_cores_count():
    assert core_time(STAT, {0}) == CoreTime(1.8, 0.0, 12.2)
    assert core_time(STAT, {0, 1}) == CoreTime(4.3, 0.5, 25.6)
    assert core_time(STAT, {7}) == CoreTime(0, 0, 0)


@pytest.mark.parametrize(
    ("busy_s", "run_cpu_s", "stolen_s", "noisy"),
    [
        (10.0, 10.0, 0.0, False),
        (11.0, 10.0, 0.0, False),  # 0.1 core
        (12.0, 10.0, 0.0, True),  # 0.2 cores
        (9.0, 10.0, 0.0, False),  # ticks may count less than nanoseconds
        (10.0, 10.0, 0.3, False),  # 1.5 % of two cores
        (10.0, 10.0, 0.5, True),
    ],
)
def test_a_run_is_noisy_above_a_stated_share(busy_s, run_cpu_s, stolen_s, noisy):
    before = CoreTime(100.0, 1.0, 500.0)
    after = CoreTime(100.0 + busy_s, 1.0 + stolen_s, 520.0)
    shares = disturbance(before, after, run_cpu_s, wall_s=10.0)
    assert shares.noisy is noisy
    assert shares.steal == pytest.approx(stolen_s / 20)
    assert shares.others == pytest.approx(max(0.0, busy_s - run_cpu_s) / 10)


def test_load_of_other_processes_is_detected_and_the_run_is_excluded():
    spin = "import time\nend = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass"
    activity = Activity(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-I", "-c", spin]) as neighbour:
        neighbour.wait()
    shares = activity.during(0.0)
    assert shares.noisy
    assert shares.others > 0.15
    activity = Activity(os.sched_getaffinity(0))
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    with_own = activity.during(0.0)
    assert activity.during(-0.3).others > with_own.others
