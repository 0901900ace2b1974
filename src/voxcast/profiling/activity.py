"""Other load on a machine during a run: use of its CPUs, and time stolen by the hypervisor.

From ``/proc/stat``, whose counters move in ticks of 10 ms for each core.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

STAT = Path("/proc/stat")
# Mean CPU use of other processes, in cores, above which a run is noisy: well above the 0.01 of
# kernel threads and services, well below one busy program.
OTHERS_CORES = 0.15
# Tolerance for counting the machine in ticks and a run in nanoseconds, as a share of its use.
COUNTING_SHARE = 0.02
TICKS_S = 0.1  # a few ticks on each of a few cores; less cannot be resolved
STEAL = 0.02  # share of stolen time above which a run is noisy: it adds to the wall time in full


@dataclass(frozen=True)
class CoreTime:
    """Seconds since boot, summed over cores."""

    busy_s: float
    stolen_s: float
    total_s: float


@dataclass(frozen=True)
class Disturbance:
    """Other load during a run; `others` is in cores, `steal` a share, None if unknown."""

    others: float
    steal: float | None
    noisy: bool


def core_time(stat: str, cpus: Collection[int]) -> CoreTime:
    """Sum the lines of ``cpus`` in the text of ``/proc/stat``.

    Examples
    --------
    >>> core_time("cpu  9 9\\ncpu0 100 0 50 800 40 0 10 5 100 0\\n", {0})
    CoreTime(busy_s=1.6, stolen_s=0.05, total_s=10.05)
    """
    busy = stolen = total = 0
    names = {f"cpu{number}" for number in cpus}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system, idle, waiting, irq, soft, steal = map(int, fields[:8])
            used = user + nice + system + irq + soft  # the time of guests is in user's
            busy += used
            stolen += steal
            total += used + idle + waiting + steal
    ticks = os.sysconf("SC_CLK_TCK")
    return CoreTime(busy / ticks, stolen / ticks, total / ticks)


def disturbance(before: CoreTime, after: CoreTime, run_cpu_s: float, wall_s: float) -> Disturbance:
    """Return the other load between two instants.

    Parameters
    ----------
    before, after : CoreTime
        Of the same cores.
    run_cpu_s : float
        CPU seconds of the run, of its metronome and of its driver.
    wall_s : float
        Seconds between the two.
    """
    others_s = max(0.0, after.busy_s - before.busy_s - run_cpu_s)
    allowed_s = max(TICKS_S, OTHERS_CORES * wall_s) + COUNTING_SHARE * run_cpu_s
    total_s = after.total_s - before.total_s
    steal = (after.stolen_s - before.stolen_s) / total_s if total_s > 0 else None
    noisy = others_s > allowed_s or (steal is not None and steal > STEAL)
    return Disturbance(others_s / wall_s if wall_s > 0 else 0.0, steal, noisy)


class Activity:
    """Watches ``cpus`` from its creation on, in the thread that measures the run."""

    def __init__(self, cpus: Collection[int]) -> None:
        self._cpus = frozenset(cpus)
        self._start, self._driver_s = time.monotonic(), time.thread_time()
        self._before = core_time(STAT.read_text(), self._cpus)

    def during(self, run_cpu_s: float) -> Disturbance:
        """Return the other load until now.

        Parameters
        ----------
        run_cpu_s : float
            CPU seconds of the run and of its metronome; those of this thread are added.
        """
        after = core_time(STAT.read_text(), self._cpus)
        measured_s = run_cpu_s + time.thread_time() - self._driver_s
        return disturbance(self._before, after, measured_s, time.monotonic() - self._start)
