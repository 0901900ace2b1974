import os
import subprocess
import sys
import time

import pytest

from voxcast.measure.host import Activity, CoreTime, core_time, disturbance

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
