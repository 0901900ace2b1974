"""Short micro-benchmarks, to relate times of different machines and days.

A few seconds in all, at the start of each sitting. Each is the median of several short blocks: a
short disturbance affects some blocks and not the median.

- `probe_cpu`: GFLOP/s of complex transforms (FFT, double precision, one thread) that stay in a
  core's cache, counted as 5 N log2 N operations. Computed by NumPy: comparable within one version
  of NumPy.
- `probe_membw`: GB/s (10⁹ bytes) of copying a block larger than most caches, one thread, read
  and written bytes both counted.
- `probe_disk`: MB/s (10⁶ bytes) of writing random bytes, `fsync` included, to the disk that
  holds the folder of the runs.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.files import PARTIAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BLOCKS, BLOCK_S = 9, 0.07
TRANSFORMS, POINTS = 16, 4096  # 1 MB
COPIED_BYTES = 128_000_000
WRITTEN_BYTES = 16_000_000
DISK_WRITES, DISK_S = 7, 1.5  # a slow file server gets fewer writes


@dataclass(frozen=True)
class Probes:
    """Medians, as described in the module."""

    probe_cpu: float
    probe_membw: float
    probe_disk: float


def take_probes(folder: Path) -> Probes:
    """Probe this machine, and the disk that ``folder`` is on."""
    folder.mkdir(parents=True, exist_ok=True)
    return Probes(
        probe_cpu=statistics.median(cpu_rates()),
        probe_membw=statistics.median(copy_rates()),
        probe_disk=statistics.median(disk_rates(folder)),
    )


def cpu_rates() -> list[float]:
    """Return GFLOP/s of each block."""
    import numpy as np

    values = np.random.default_rng(0).standard_normal((TRANSFORMS, POINTS)) + 0j
    operations = 5 * TRANSFORMS * POINTS * math.log2(POINTS)
    return [1e-9 * operations * rate for rate in _rates(lambda: np.fft.fft(values))]


def copy_rates() -> list[float]:
    """Return GB/s of each block."""
    import numpy as np

    source = np.ones(COPIED_BYTES // 8)
    target = np.zeros_like(source)
    return [2e-9 * COPIED_BYTES * rate for rate in _rates(lambda: np.copyto(target, source))]


def disk_rates(folder: Path) -> list[float]:
    """Return MB/s of each write; nothing is left in ``folder``."""
    content = os.urandom(WRITTEN_BYTES)  # neither compressible nor deduplicated
    rates: list[float] = []
    with tempfile.TemporaryFile(dir=folder, prefix=PARTIAL) as stream:
        deadline = time.monotonic() + DISK_S
        while not rates or (len(rates) < DISK_WRITES and time.monotonic() < deadline):
            start = time.monotonic()
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            rates.append(1e-6 * WRITTEN_BYTES / (time.monotonic() - start))
    return rates


def _rates(work: Callable[[], object]) -> list[float]:
    """Return calls of ``work`` per second in each block, after a warm-up block."""
    rates = []
    for _ in range(BLOCKS + 1):
        start, calls = time.monotonic(), 0
        while (elapsed_s := time.monotonic() - start) < BLOCK_S:
            work()
            calls += 1
        rates.append(calls / elapsed_s)
    return rates[1:]
