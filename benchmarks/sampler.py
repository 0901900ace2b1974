"""Measure the overhead of sampling and the error of its peak; prints JSON with the bounds.

The cost is the CPU time of the sampling thread over wall time. It is the difference between two
lengths of the same run, so that start-up and writing cancel out; the median of three. On a busy
machine the same work takes up to twice the CPU time, so `load1` is printed too. The peak of the
samples is compared with the kernel's peak of the same run's control group.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.measure import meters
from voxcast.measure.runner import measure
from voxcast.measure.trace import Conditions
from voxcast.records import Run

HZ = 10.0
SHORT_S, LONG_S, REPEATS = 1.5, 7.0, 3
GROUP_BOUND, TREE_BOUND, PEAK_BOUND = 0.005, 0.03, 0.03

# The start of each script: it joins the control groups that are passed as arguments, if any.
JOIN = """
import mmap, os, sys, time
for folder in sys.argv[2:]:
    with open(os.path.join(folder, "cgroup.procs"), "w") as procs:
        procs.write("0")
seconds, start = float(sys.argv[1]), time.monotonic()
"""
# A parent with three busy children: 60 MB are shared by all, and each child has 80 MB more.
FAMILY = """
shared = mmap.mmap(-1, 60_000_000)
shared.write(b"x" * len(shared))
children = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        private = b"x" * 80_000_000
        while time.monotonic() < start + seconds:
            sum(shared[::4096])
            time.sleep(0.05)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
# A parent and a child that grow to 1.2 GB throughout, in small pages: the most expensive tree.
GROWTH = """
child = os.fork()
memory = mmap.mmap(-1, 600_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
touched = 0
while (elapsed_s := time.monotonic() - start) < seconds:
    target = min(len(memory), int(len(memory) * elapsed_s / seconds * 1.2))
    for page in range(touched - touched % 4096, target, 4096): memory[page] = 1
    touched = target
    time.sleep(0.02)
if child: os.waitpid(child, 0)
"""
SCRIPTS = {"family": FAMILY, "growth": GROWTH}


@dataclass(frozen=True)
class SamplerRun:
    """One run: CPU seconds of the sampling thread, wall seconds, both peaks in bytes."""

    spent_s: float
    wall_s: float
    method: str
    peak_bytes: int
    kernel_peak_bytes: int | None


def measure_once(script: str, seconds: float, *, groups: bool) -> SamplerRun:
    """Measure one run, in a control group in both cases if groups are available."""
    folder = Path(tempfile.mkdtemp(prefix="voxcast-bench-"))
    name = f"bench-{os.getpid()}"
    group = meters.open_meter(name, None if groups else meters.planned_group(name))
    folders = map(str, group.folders)
    command = [sys.executable, "-I", "-c", JOIN + script, str(seconds), *folders]
    try:
        spent_s, start = time.thread_time(), time.monotonic()
        run, _ = measure(
            command, {}, folder, base=Run("", "", cpus=1), conditions=Conditions(sample_hz=HZ),
            groups=groups,
        )  # fmt: skip
        spent_s, wall_s = time.thread_time() - spent_s, time.monotonic() - start
        kernel = run.peak_cgroup_bytes if groups else group.peak_bytes()
    finally:
        shutil.rmtree(folder)
        group.close()
    return SamplerRun(spent_s, wall_s, run.memory_method, run.peak_rss_bytes or 0, kernel)


def bench_sampler() -> dict[str, Any]:
    """Cost with and without a control group, and the error of the peak."""
    measure_once("pass", 0.1, groups=True)  # warm-up: imports
    figures: dict[str, Any] = {
        "hz": HZ,
        "load1": os.getloadavg()[0],
        "bound_peak_error": PEAK_BOUND,
    }
    for name, script in SCRIPTS.items():
        for groups, bound in ((True, GROUP_BOUND), (False, TREE_BOUND)):
            pairs = [
                (
                    measure_once(script, SHORT_S, groups=groups),
                    measure_once(script, LONG_S, groups=groups),
                )
                for _ in range(REPEATS)
            ]
            cost = statistics.median(
                (long.spent_s - short.spent_s) / (long.wall_s - short.wall_s)
                for short, long in pairs
            )
            ratios = [
                long.peak_bytes / long.kernel_peak_bytes
                for _, long in pairs
                if long.kernel_peak_bytes is not None
            ]
            figures[f"{name}_{'group' if groups else 'tree'}"] = {
                "method": pairs[-1][1].method,
                "cost_of_a_core": cost,
                "bound_cost": bound,
                "peaks_over_kernel_peak": ratios,
                "within_bounds": cost <= bound
                and all(abs(ratio - 1) <= PEAK_BOUND for ratio in ratios),
            }
    return figures


def main() -> int:
    """Print the figures; the exit status is 1 if a bound is missed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    figures = {"sampler": bench_sampler()}
    print(json.dumps(figures, indent=2))
    rows = [row for row in figures["sampler"].values() if isinstance(row, dict)]
    return 0 if all(row["within_bounds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
