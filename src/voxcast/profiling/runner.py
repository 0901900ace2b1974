"""One measured run: a command in its own process tree, from its start to its last process.

The run has its own session and meter, exactly the CPUs it asked for, and limits that hold for the
whole tree. It dies with us: the kernel kills its leader when we are killed, and what the leader
leaves behind is found by `sweep` at the next start.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import os
import select
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.phase_log import read_phases
from voxcast.errors import RunError
from voxcast.files import read_json, write_json
from voxcast.profiling import cgroups
from voxcast.profiling.sampler import RUN_VARIABLE, Meter, Sample, marked, open_meter
from voxcast.records import Outcome, Phase, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LOG_FILE, SAMPLES_FILE, RUN_FILE = "app.log", "samples.parquet", "run.json"
GRACE_S = 2.0
SAMPLER_SHARE = 0.05  # of a core: a slow machine is looked at less often
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # opened here: between fork and exec is no place for it


def measure(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    cpus: int,
    time_limit_s: float | None = None,
    memory_limit_bytes: int | None = None,
    sample_hz: float = 10.0,
    groups: bool = True,
) -> Profile:
    """Run ``command`` and measure it from outside.

    Must be called from a thread that lives as long as the run: the run dies with it.

    Parameters
    ----------
    command : sequence of str
        Argument list.
    env : mapping
        Variables set in addition to our own environment.
    folder : Path
        Gets ``app.log`` (both output streams) and ``samples.parquet``; made if missing.
    cpus : int
        CPUs the run is pinned to, out of those we may use.
    time_limit_s, memory_limit_bytes : float, int, optional
        The whole tree is stopped at these: SIGTERM, two seconds of grace, SIGKILL.
    sample_hz : float
        Samples a second, at most.
    groups : bool
        Whether a control group may be used where it can be had.

    Returns
    -------
    Profile
        `runtime_s` runs until the leader has ended, or until the tree was told to stop.

    Raises
    ------
    RunError
        If there are not that many CPUs, or the command cannot be started.
    """
    available = sorted(os.sched_getaffinity(0))
    if not 1 <= cpus <= len(available):
        raise RunError(f"asks for {cpus} CPUs, {len(available)} are available", command[0])
    folder.mkdir(parents=True, exist_ok=True)
    run_id = uuid.uuid4().hex
    meter = open_meter(run_id, groups=groups)
    try:
        write_json(folder / RUN_FILE, {"run_id": run_id, "groups": list(map(str, meter.folders))})
        variables = {**os.environ, **env, RUN_VARIABLE: run_id}
        load1, begun = os.getloadavg()[0], datetime.datetime.now(datetime.UTC)
        started = time.monotonic()
        with _started(command, variables, folder, available[:cpus], meter) as leader:
            samples, stopped = _watch(
                leader, meter, started, time_limit_s, memory_limit_bytes, sample_hz
            )
            runtime_s = time.monotonic() - started
            status, waited_s = _end(leader, meter, GRACE_S if stopped else 0.0)
        cpu_s, peak, kills = meter.total_cpu_s(waited_s), meter.peak_bytes(), meter.oom_kills()
    finally:
        meter.close()
    (folder / RUN_FILE).unlink()
    _write_samples(folder / SAMPLES_FILE, samples)
    log = (folder / LOG_FILE).read_text(encoding="utf-8", errors="replace")
    return Profile(
        outcome=stopped or _outcome(status, kills),
        exit_status=status,
        runtime_s=runtime_s,
        cpu_s=cpu_s,
        peak_rss_bytes=max((sample.rss_bytes for sample in samples), default=0),
        peak_cgroup_bytes=peak,
        memory_method=meter.memory_method,
        cpu_method=meter.cpu_method,
        started_at=begun.isoformat(timespec="milliseconds"),
        limit_s=time_limit_s,
        load1_before=load1,
        phases=tuple(_with_peak(phase, samples) for phase in read_phases(log, started)),
    )


def sweep(folder: Path) -> None:
    """Remove the folder of a run whose driver is dead, and what still runs of it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        left = read_json(folder / RUN_FILE)
        cgroups.remove(map(Path, left["groups"]))
        _kill(lambda: marked(left["run_id"]), grace_s=0.0)
    shutil.rmtree(folder)


@contextlib.contextmanager
def _started(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    cpus: Sequence[int],
    meter: Meter,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the leader of the run; whatever happens, nothing of it is left at the end."""
    driver = os.getpid()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / LOG_FILE).open("ab"))
        joins = [
            stack.enter_context((group / "cgroup.procs").open("wb", buffering=0)).fileno()
            for group in meter.folders
        ]

        def become_the_run() -> None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != driver:
                os._exit(1)  # we were killed before the kernel was told
            for join in joins:
                os.write(join, b"0")
            os.sched_setaffinity(0, cpus)

        try:
            leader = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(variables),
                start_new_session=True,
                preexec_fn=become_the_run,  # system calls only: we may have threads
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RunError(f"cannot be started ({error})", command[0]) from None
    try:
        meter.follow(leader.pid)
        yield leader
    finally:
        _kill(meter.pids, grace_s=0.0)
        if leader.returncode is None:
            leader.wait()


def _watch(
    leader: subprocess.Popen[bytes],
    meter: Meter,
    started: float,
    time_limit_s: float | None,
    memory_limit_bytes: int | None,
    sample_hz: float,
) -> tuple[list[Sample], Outcome | None]:
    """Sample until the leader ends or a limit is reached; tell which limit."""
    samples: list[Sample] = []
    deadline = float("inf") if time_limit_s is None else started + time_limit_s
    with _ending(leader.pid) as ended:
        while True:
            now = time.monotonic()
            rss_bytes, cpu_s = meter.read()
            cost_s = time.monotonic() - now
            samples.append(Sample(now - started, rss_bytes, cpu_s))
            if memory_limit_bytes is not None and rss_bytes > memory_limit_bytes:
                return samples, "out_of_memory"
            pause_s = max(1.0 / sample_hz, cost_s / SAMPLER_SHARE)
            if ended(min(now + pause_s, deadline) - time.monotonic()):
                return samples, None
            if time.monotonic() >= deadline:
                return samples, "timeout"


@contextlib.contextmanager
def _ending(pid: int) -> Iterator[Callable[[float], bool]]:
    """Give a function that waits so many seconds for the end of ``pid`` and tells whether it came.

    The instant of the end is had to well under a millisecond, however rarely samples are taken.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # before Linux 5.3
        yield lambda timeout_s: _polled(pid, timeout_s)
        return
    try:
        yield lambda timeout_s: bool(select.select([handle], [], [], max(0.0, timeout_s))[0])
    finally:
        os.close(handle)


def _polled(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)
    return True


def _end(leader: subprocess.Popen[bytes], meter: Meter, grace_s: float) -> tuple[int, float]:
    """Stop all there still is; return the leader's exit status and waited-for CPU seconds."""
    _kill(meter.pids, grace_s)
    _, status, usage = os.wait4(leader.pid, 0)
    leader.returncode = os.waitstatus_to_exitcode(status)
    return leader.returncode, usage.ru_utime + usage.ru_stime


def _kill(pids: Callable[[], set[int]], grace_s: float, patience_s: float = 10.0) -> None:
    """Ask all ``pids`` to end, wait, then kill them until none is left."""
    begun = time.monotonic()
    if grace_s:
        _signal(pids(), signal.SIGTERM)
    while left := pids():
        elapsed_s = time.monotonic() - begun
        if elapsed_s >= grace_s:
            _signal(left, signal.SIGKILL)
        if elapsed_s > grace_s + patience_s:
            return  # stuck in the kernel, on a dead file server say; it dies when that answers
        time.sleep(0.01)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _outcome(status: int, oom_kills: int) -> Outcome:
    if status == 0:
        return "completed"
    return "out_of_memory" if oom_kills else "failed"


def _with_peak(phase: Phase, samples: Sequence[Sample]) -> Phase:
    inside = [s.rss_bytes for s in samples if phase.start_s <= s.t_s <= phase.end_s]
    return dataclasses.replace(phase, peak_rss_bytes=max(inside, default=None))


def _write_samples(path: Path, samples: Sequence[Sample]) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [("t_s", pyarrow.float64()), ("rss_bytes", pyarrow.int64()), ("cpu_s", pyarrow.float64())]
    )
    rows = [dataclasses.asdict(sample) for sample in samples]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
