"""The machine of a run: its facts, and other load on it.

Other load comes from ``/proc/stat``, whose counters move in ticks of 10 ms for each core.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from voxcast.files import sha256_of
from voxcast.measure.gpu import gpu_models

MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True)
class HostFacts:
    """The facts of a machine that affect times; `cores` counts the cores this process may use.

    `host_id` distinguishes machines, see the function of that name.
    """

    cpu_model: str
    cores: int
    memory_bytes: int
    gpu_models: tuple[str, ...]
    kernel: str
    hostname: str
    host_id: str = ""


def host_facts() -> HostFacts:
    """Return the facts of this machine."""
    model = cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    try:
        machine_id = MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        machine_id = ""
    return HostFacts(
        cpu_model=model,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        gpu_models=gpu_models(),
        kernel=platform.release(),
        hostname=platform.node(),
        host_id=host_id(platform.node(), machine_id, model),
    )


def host_id(hostname: str, machine_id: str, model: str) -> str:
    """Return eight hexadecimal digits of a hash of name, machine id (or empty) and CPU model.

    They cannot be recovered from it, so that a recorded history can be shared.

    Examples
    --------
    >>> host_id("node1", "", "AMD EPYC")
    '840a84cb'
    """
    return sha256_of([hostname, machine_id, model])[:8]


def cpu_model(cpuinfo: str) -> str:
    """Return the model named in the text of ``/proc/cpuinfo``, or the architecture.

    Examples
    --------
    >>> cpu_model("processor : 0\\nmodel name\\t: AMD EPYC  9B14\\n")
    'AMD EPYC 9B14'
    """
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()  # ARM kernels do not name the model


def host_class(facts: HostFacts) -> str:
    """Return CPU model, cores and GPU models, which machines with comparable times share.

    Examples
    --------
    >>> host_class(HostFacts("AMD EPYC", 2, 8_000_000_000, (), "6.1", "node1"))
    'AMD EPYC, 2 cores, no GPU'
    """
    gpus = " + ".join(sorted(facts.gpu_models)) or "no GPU"
    return f"{facts.cpu_model}, {facts.cores} core{'s' if facts.cores != 1 else ''}, {gpus}"


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
    names = {f"cpu{number}" for number in cpus}
    rows = [line.split() for line in stat.splitlines()]
    ticks = [[0] * 8, *(list(map(int, row[1:9])) for row in rows if row[0] in names)]
    user, nice, system, idle, waiting, irq, soft, steal = map(sum, zip(*ticks, strict=True))
    busy = user + nice + system + irq + soft  # the time of guests is in user's
    per_s = os.sysconf("SC_CLK_TCK")
    return CoreTime(busy / per_s, steal / per_s, (busy + idle + waiting + steal) / per_s)


def disturbance(before: CoreTime, after: CoreTime, run_cpu_s: float, wall_s: float) -> Disturbance:
    """Return the other load between two instants.

    Parameters
    ----------
    before, after : CoreTime
        Of the same cores.
    run_cpu_s : float
        CPU seconds of the run, its metronome and its driver.
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
            CPU seconds of the run and its metronome; this thread's own are added.
        """
        after = core_time(STAT.read_text(), self._cpus)
        measured_s = run_cpu_s + time.thread_time() - self._driver_s
        return disturbance(self._before, after, measured_s, time.monotonic() - self._start)
