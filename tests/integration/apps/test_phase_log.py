import subprocess
import sys
import time

from voxcast.apps.phase_log import read_phases

SCRIPT = """
import sys, time
from voxcast.apps.phase_log import phase, started
started()
with phase("spin"):
    while time.process_time() < 0.3: pass
sys.stdout.write("no newline here")
try:
    with phase("broken"):
        raise ValueError
except ValueError:
    pass
"""


def test_phases_of_a_real_process_are_in_order_and_on_the_runners_clock():
    started = time.monotonic()
    completed = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    runtime_s = time.monotonic() - started
    phases = read_phases(completed.stdout.decode(), started)
    assert [phase.name for phase in phases] == ["start", "spin", "broken"]
    edges = [edge for phase in phases for edge in (phase.start_s, phase.end_s)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= runtime_s
    assert abs(sum(phase.cpu_s for phase in phases) - 0.3) < 0.1


def test_truncated_foreign_and_impossible_lines_are_ignored():
    good = 'voxcast-phase {"name": "n4", "start": 11.0, "end": 12.5, "cpu_s": 1.25}'
    lines = [
        "N4 converged",
        good[:40],
        'voxcast-phase {"name": "n4", "start": 11.0, "end": NaN, "cpu_s": 1}',
        'voxcast-phase {"name": "n4", "start": 12.0, "end": 11.0, "cpu_s": 1}',
        'voxcast-phase ["n4"]',
        "iteration 3 of 50 " + good + " iteration 4",
    ]
    (phase,) = read_phases(lines, 10.0)
    assert (phase.name, phase.start_s, phase.end_s, phase.cpu_s) == ("n4", 1.0, 2.5, 1.25)
    assert read_phases("", 0.0) == ()
