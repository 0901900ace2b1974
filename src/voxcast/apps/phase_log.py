"""The protocol by which an application logs its phases: one line of standard output for each.

A line is ``voxcast-phase {"name": …, "start": …, "end": …, "cpu_s": …}``. Times are seconds of
``CLOCK_MONOTONIC``, which all processes of a Linux system share: the process that started the
application can relate them to its start. Any program in any language can print such a line.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.records import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARKER = "voxcast-phase "


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Log the block as the phase ``name``, even if it raises."""
    start, cpu_s = time.monotonic(), process_cpu_s()
    try:
        yield
    finally:
        write_phase(name, start, time.monotonic(), process_cpu_s() - cpu_s)


def started(name: str = "start") -> None:
    """Log the time since the process started (interpreter, imports) as the phase ``name``."""
    write_phase(name, process_start(), time.monotonic(), process_cpu_s())


def read_phases(log: str | Iterable[str], started_monotonic: float) -> tuple[Phase, ...]:
    """Read the phases out of a log, in the order they were logged.

    Parameters
    ----------
    log : str or iterable of str
        The text of the log, or its lines; other output and malformed lines are skipped.
    started_monotonic : float
        ``CLOCK_MONOTONIC`` when the run was started, in seconds.

    Returns
    -------
    tuple of Phase
        Times count from the start of the run; peak memory is not set.
    """
    lines = log.splitlines() if isinstance(log, str) else log
    events = (_read_line(line, started_monotonic) for line in lines)
    return tuple(phase for phase in events if phase is not None)


def _read_line(line: str, started_monotonic: float) -> Phase | None:
    # Native code may have left an unfinished line before ours, so the marker can be anywhere.
    _, marker, text = line.partition(MARKER)
    if not marker:
        return None
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
        start_s, end_s = (float(content[n]) - started_monotonic for n in ("start", "end"))
        cpu_s, name = float(content["cpu_s"]), str(content["name"])
    except (ValueError, KeyError, TypeError):
        return None
    # The kernel rounds the start of a process to 10 ms: it may precede the start of the run.
    phase = Phase(name, max(0.0, start_s), end_s, cpu_s)
    is_finite = all(map(math.isfinite, (start_s, end_s, cpu_s)))
    return phase if is_finite and end_s >= phase.start_s else None


def write_phase(name: str, start: float, end: float, cpu_s: float) -> None:
    """Log a phase; `start` and `end` are seconds of ``CLOCK_MONOTONIC``."""
    content = {"name": name, "start": start, "end": end, "cpu_s": cpu_s}
    print(MARKER + json.dumps(content), flush=True)


def process_cpu_s() -> float:
    """Return the CPU seconds of this process, all threads, and of its terminated children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def process_start() -> float:
    """``CLOCK_MONOTONIC`` at the start of this process, to within a tick of the kernel."""
    # Field 22; field 2, the command's name, may contain spaces and brackets.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return since_boot_s - asleep_s
