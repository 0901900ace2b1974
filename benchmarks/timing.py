"""Wall time of an action, memory of this process, and the machine they are of."""

from __future__ import annotations

import datetime
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_seconds(action: Callable[[], object], repeats: int) -> float:
    """Return the median wall time of several calls."""
    return statistics.median(seconds(action) for _ in range(repeats))


def measured_verb(arguments: Sequence[str], output: Path) -> dict[str, float]:
    """Run a verb and return its wall time, CPU time and peak memory."""
    start = time.perf_counter()
    voxcast = str(Path(sys.executable).with_name("voxcast"))
    with output.open("w") as stream:
        actions = [(os.POSIX_SPAWN_DUP2, stream.fileno(), 1)]
        pid = os.posix_spawn(voxcast, [voxcast, *arguments], os.environ, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"voxcast {' '.join(arguments)} failed")
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def machine() -> dict[str, Any]:
    """Return when and where figures are from, and how busy it was there."""
    return {
        "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "cores": len(os.sched_getaffinity(0)),
        "load_1_min": round(os.getloadavg()[0], 2),
        "nice": os.nice(0),
        "disk": _file_system(Path(tempfile.gettempdir())),
    }


def _file_system(folder: Path) -> str:
    """Return the kind of file system of a folder, such as ``ext4``."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [m for m in mounts if folder.resolve().is_relative_to(m[1])]
    return max(holding, key=lambda m: len(m[1]))[2]
