"""What this machine offers for measurements, one check for each."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from voxcast.apps.containers import ENGINES
from voxcast.quantities import format_bytes

Status = Literal["works", "limited", "absent", "broken"]
ANSWER_S = 5.0  # patience with another program
CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_TIME_ERROR = 5  # adjtimex: the clock is not synchronised
FULL_BYTES = 10**9


@dataclass(frozen=True)
class Check:
    """One line of ``voxcast doctor``.

    Attributes
    ----------
    status : str
        ``works``; ``limited``, with a worse method; ``absent``, not here and not needed; or
        ``broken``: the project cannot be used until it is mended.
    meaning : str
        What follows for measurements and predictions.
    """

    name: str
    status: Status
    fact: str
    meaning: str = ""


def machine_checks() -> Iterator[Check]:
    """Yield the checks of this machine."""
    yield _cores()
    yield _load()
    yield _memory()
    yield _counters()
    yield _gpu()
    yield _clock()
    yield _disk("temporary folder", Path(tempfile.gettempdir()))
    yield _slurm()
    yield from _engines()
    yield _leftovers()


def _cores() -> Check:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 0
    fact = f"{usable} of {present} may be used"
    if usable == present:
        return Check("cores", "works", fact, f"runs on 1 to {usable} CPUs can be measured")
    then = f"a batch system or taskset left us fewer: runs on 1 to {usable} CPUs can be measured"
    return Check("cores", "limited", fact, then)


def _load() -> Check:
    load1, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    fact = f"{load1:.1f} on {cores} cores"
    if load1 < 0.25 * cores:
        return Check("load", "works", fact, "a run would have its cores alone")
    return Check("load", "limited", fact, "runs made now may be disturbed; they are marked noisy")


def _memory() -> Check:
    from voxcast.measure.meters import open_meter, planned_group
    from voxcast.measure.processes import new_run_id

    run_id = new_run_id()
    meter = open_meter(run_id, planned_group(run_id))
    method = meter.memory_method
    meter.close()
    if method.startswith("cgroup"):
        version = method.removeprefix("cgroup")
        means = "the kernel counts memory and CPU of every process, and enforces limits"
        return Check("memory of a run", "works", f"control group, version {version}", means)
    then = (
        "peaks between two samples are missed; with version 2 of control groups use "
        "`systemd-run --user --scope -p Delegate=yes voxcast …`"
    )
    return Check("memory of a run", "limited", f"sampled from its processes ({method})", then)


def _counters() -> Check:
    paranoid = PARANOID.read_text().strip() if PARANOID.is_file() else "unknown"
    number = _PERF_EVENT_OPEN.get(platform.machine())
    error = "not known for this processor"
    if number is not None:
        # struct perf_event_attr: hardware instructions, of user space alone.
        flags = 1 << 5 | 1 << 6
        attributes = struct.pack("<IIQQQQQ", 0, 112, 1, 0, 0, 0, flags).ljust(112, b"\0")
        libc = ctypes.CDLL(None, use_errno=True)
        handle = libc.syscall(number, attributes, 0, -1, -1, 0)
        if handle >= 0:
            os.close(handle)
            return Check("perf counters", "works", "instructions can be counted", "not used yet")
        error = os.strerror(ctypes.get_errno()).lower()
    fact = f"cannot be opened ({error}; perf_event_paranoid {paranoid})"
    return Check("perf counters", "absent", fact, "not needed: CPU time is measured instead")


def _gpu() -> Check:
    from voxcast.measure.gpu import gpu_models, open_gpu_meter

    models = gpu_models()
    meter = open_gpu_meter()
    if meter is not None:
        meter.close()
        fact = ", ".join(models) or "NVML answers"
        return Check("GPU", "works", fact, "memory and utilisation of runs are measured")
    if models:
        then = "its memory and utilisation are not measured: pip install 'voxcast[apps]'"
        return Check("GPU", "limited", f"{', '.join(models)}, but NVML does not answer", then)
    return Check("GPU", "absent", "no NVIDIA driver", "only runs on CPUs can be measured")


def _clock() -> Check:
    source = CLOCK_SOURCE.read_text().strip() if CLOCK_SOURCE.is_file() else "unknown"
    resolution_s = time.get_clock_info("monotonic").resolution
    buffer = ctypes.create_string_buffer(256)  # struct timex, all zero: it is only read
    is_synchronised = ctypes.CDLL(None).adjtimex(buffer) not in (-1, _TIME_ERROR)
    fact = f"{source}, {resolution_s * 1e9:.0f} ns"
    if is_synchronised:
        return Check("clock", "works", f"{fact}, synchronised", "")
    then = "durations are right; the hour of a run is only as good as this clock"
    return Check("clock", "limited", f"{fact}, not synchronised", then)


def _disk(name: str, folder: Path) -> Check:
    if not os.access(folder, os.W_OK):
        return Check(name, "limited", f"{folder} may not be written", "give another with TMPDIR")
    free = shutil.disk_usage(folder).free
    fact = f"{folder}, {format_bytes(free)} free"
    status: Status = "works" if free > FULL_BYTES else "limited"
    return Check(name, status, fact, "" if status == "works" else "a full disk ends runs")


def _slurm() -> Check:
    present = [name for name in ("sbatch", "squeue", "sacct") if shutil.which(name)]
    if not present:
        then = "requests are printed; exports of `sacct` from elsewhere can be imported"
        return Check("Slurm", "absent", "no sbatch, squeue or sacct", then)
    answer = _answer([present[0], "--version"])
    fact = f"{answer or 'its commands do not answer'} ({', '.join(present)})"
    if answer is None or len(present) < 3:
        return Check("Slurm", "limited", fact, "requests are printed and can be given to sbatch")
    return Check("Slurm", "works", fact, "")


def _engines() -> Iterator[Check]:
    missing = []
    for engine, called in ENGINES.items():
        program = called.program
        if shutil.which(program) is None:
            missing.append(engine)
            continue
        answer = _answer([program, "--version"])
        if answer is None:
            yield Check(engine, "limited", f"{program} does not answer", "")
        else:
            yield Check(engine, "works", answer, "applications in containers can be measured")
    if missing:
        then = "applications in such containers cannot be run here"
        yield Check("other engines", "absent", ", ".join(missing), then)


def _leftovers() -> Check:
    from voxcast.measure.processes import abandoned

    count = len(abandoned())
    if not count:
        return Check("leftovers", "works", "none of killed runs", "")
    then = "they take CPU, memory or disk: `voxcast doctor --clean` removes them"
    return Check("leftovers", "limited", f"{count} of killed runs", then)


def _answer(command: list[str]) -> str | None:
    """Return the first line that a program prints, or None if it fails or is too slow."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        completed = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=ANSWER_S, errors="replace"
        )
        return (completed.stdout.strip() or completed.stderr.strip()).partition("\n")[0]
    return None
