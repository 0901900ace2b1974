"""One measured run: a command in its own process tree, from its start to its last process.

The run has its own session and meter, exactly the requested CPUs, and limits that apply to the
whole tree. It dies with us: the kernel kills its leader when we are killed, and
`voxcast.measure.processes` removes the rest at the next start. Durations are of
``CLOCK_MONOTONIC``: setting the clock during a run does not change them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from voxcast.apps.containers import RUN_VARIABLE
from voxcast.apps.phase_log import read_phases
from voxcast.errors import RunError
from voxcast.files import json_text, text_tail
from voxcast.measure import meters
from voxcast.measure.gpu import GpuMeter, open_gpu_meter
from voxcast.measure.host import Activity
from voxcast.measure.metronome import Metronome
from voxcast.measure.processes import DRIVER_FILE, end_with, new_run_id, stop_all
from voxcast.measure.trace import Conditions, LogClock, Trace
from voxcast.records import KILLED, Outcome, Phase, Run

PhasePatterns = Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, str]]

LOG_FILE = "app.log"
PREFIXES = ("APPTAINER", "SINGULARITY")
GRACE_S = 2.0
NEAR_LIMIT = 0.98  # share of the limit: the kernel kills before the peak reaches it
SAMPLER_SHARE = 0.03  # of a core: a slow machine is sampled less often
LAST_LINES = 8  # of a log, in which the cause of a failure is sought
# How programs report that an allocation failed, or a shell that the kernel killed one.
_NO_MEMORY = re.compile(
    r"(?i:MemoryError\b|std::bad_alloc|(?:cannot|can't|unable to) allocate|\bout of memory\b"
    r"|\boom-kill)|^(?:.*\s)?\d+\s+Killed\b|^Killed$"
)
_GPU_MEMORY = re.compile(r"\bCUDA\b|\bHIP out of memory\b|\bcuDNN\b|\bGPU\b")
# An exception, unless it reports the end of another process, which had a cause of its own.
_OTHER_ERROR = re.compile(
    r"^(?!.*CalledProcessError|.*Process(?:Pool|Exited))[\w.]+(?:Error|Exception)\b"
)
# Frames of a stack, and what follows the message of an error.
_AFTER_ERROR = re.compile(r"^\s|^Execution halted|^Aborted|^(?:slurmstepd|srun):(?!.*oom)")


def lacked_memory(log: str, exit_status: int | None) -> bool:
    """Return whether a run that failed did so because it could not get memory.

    Memory of a GPU does not count: more of the host's would not help. Nor does a failed allocation
    that the program survived, before a failure of another kind.

    Parameters
    ----------
    log : str
        The end of its log.
    exit_status : int or None
        Of its first process.

    Examples
    --------
    >>> lacked_memory("terminate called after throwing 'std::bad_alloc'", 134)
    True
    >>> lacked_memory("", 137), lacked_memory("no such file", 1)
    (True, False)
    """
    if exit_status == 0:
        return False
    lines = [line for line in log.splitlines() if line.strip() and not _AFTER_ERROR.search(line)]
    for line in reversed(lines[-LAST_LINES:]):
        if _NO_MEMORY.search(line):
            return not _GPU_MEMORY.search(line)
        if _OTHER_ERROR.search(line):
            break
    return exit_status in KILLED


def memory_limit(limit_bytes: int | None, conditions: Conditions) -> int | None:
    """Return the lower of a run's own memory limit and the limit of all runs, or None."""
    return min(filter(None, (limit_bytes, conditions.mem_limit_bytes)), default=None)


def measure(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    base: Run,
    conditions: Conditions | None = None,
    cpus: Sequence[int] | None = None,
    groups: bool = True,
    phase_patterns: PhasePatterns | None = None,
    verify_gpu: bool = False,
    metronome: Metronome | None = None,
    stopped: Callable[[], bool] | None = None,
) -> tuple[Run, tuple[Phase, ...]]:
    """Run ``command`` and measure it from outside.

    Must be called from a thread that lives as long as the run: the run is killed with it.

    Parameters
    ----------
    command : sequence of str
        Argument list.
    env : mapping
        Variables set in addition to our own environment.
    folder : Path
        Gets ``app.log`` (both output streams) and the samples; made if missing.
    base : Run
        The facts of the run that are known before; its `cpus`, `gpus` and `mem_limit_bytes` apply.
    conditions : Conditions, optional
        At its limits, or the limits of ``base``, the whole tree is stopped: SIGTERM, two seconds
        of grace, SIGKILL. In a control group the kernel enforces the memory limit too.
    cpus : sequence of int, optional
        The CPUs to choose from, for parallel runs; only other load on these then makes the run
        noisy. All that we may use by default.
    groups : bool
        Whether a control group is used where available.
    phase_patterns : mapping or callable, optional
        Patterns of log lines by phase, for an application that does not use our phase log; or a
        function that returns them for the lines of the log.
    verify_gpu : bool
        A run with GPUs that never used one has failed; the reason is added to its log.
    metronome : Metronome, optional
        Times kernels on the CPUs of the run; of this thread. None: nothing is timed.
    stopped : callable, optional
        Called at every sample: once it returns true the run is stopped, as preempted.

    Returns
    -------
    Run, tuple of Phase
        `runtime_s` ends when the leader ends or the tree is stopped. Where the kernel stopped it
        for memory, the peak is at least the limit. Storage traffic misses setuid programs, and up
        to a second of processes that outlive their parents.

    Raises
    ------
    RunError
        If there are too few CPUs, or the command cannot be started.
    """
    cores = sorted(os.sched_getaffinity(0) if cpus is None else cpus)
    if not 1 <= base.cpus <= len(cores):
        raise RunError(f"runs on 1 to {len(cores)} CPUs here, not {base.cpus}", command[0])
    conditions = conditions or Conditions()
    limit_bytes = memory_limit(base.mem_limit_bytes, conditions)
    conditions = dataclasses.replace(conditions, mem_limit_bytes=limit_bytes)
    folder.mkdir(parents=True, exist_ok=True)
    run_id, own_cores = new_run_id(), cores[: base.cpus]
    # Written first: if we are killed from here on, `sweep` finds the rest. Not synced: what
    # survives a process survives in memory, and nothing of a run survives the machine.
    planned = meters.planned_group(run_id) if groups else None
    folders = [] if planned is None else list(map(str, planned.folders))
    content = {"run_id": run_id, "groups": folders}
    (folder / DRIVER_FILE).write_text(json_text(content), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        meter = meters.open_meter(run_id, planned)
        stack.callback(meter.close)
        if limit_bytes is not None:
            meter.limit_memory(limit_bytes)
        gpu = open_gpu_meter() if base.gpus else None
        if gpu is not None:
            stack.callback(gpu.close)
        ticking = stack.enter_context((metronome or Metronome(enabled=False)).beside(own_cores))
        kernel_kills = _kernel_kills()
        load1, started_at = os.getloadavg()[0], datetime.datetime.now(datetime.UTC)
        activity, started = Activity(cores), time.monotonic()
        trace = Trace(meter, gpu, started, conditions.stall_s)
        clock = LogClock(folder / LOG_FILE)
        variables = _variables(env, run_id)
        with _started(command, variables, folder, own_cores, meter) as leader:
            cut = _watch(leader.pid, trace, clock, started, conditions, stopped)
            runtime_s = time.monotonic() - started
            trace.read_sums()
            stop_all(meter.pids, GRACE_S if cut else 0.0)
            _, wait_status, usage = os.wait4(leader.pid, 0)
            leader.returncode = status = os.waitstatus_to_exitcode(wait_status)
            clock.read(runtime_s)
        cpu_s = meter.total_cpu_s(usage.ru_utime + usage.ru_stime)
        if cut:  # its grace is no part of its time
            cpu_s = min(cpu_s, base.cpus * runtime_s)
        peak, kills = meter.peak_bytes(), meter.oom_kills()
        reading = ticking.stop()
        disturbed = activity.during(cpu_s + reading.cpu_s)
    trace.write(folder)
    (folder / DRIVER_FILE).unlink()
    outcome = "out_of_memory" if kills else cut or ("failed" if status else "completed")
    # The kernel counts its kills for memory, so another SIGKILL had another cause.
    had_memory = bool(meter.folders) or kernel_kills == _kernel_kills() is not None
    unexplained = None if had_memory and status in KILLED else status
    if outcome == "failed" and lacked_memory(text_tail(folder / LOG_FILE), unexplained):
        outcome = "out_of_memory"
    if outcome == "completed" and base.gpus and verify_gpu and not trace.used_gpu:
        outcome = _reject_gpu_run(folder / LOG_FILE, gpu)
    run = dataclasses.replace(
        base,
        outcome=outcome,
        exit_status=status,
        runtime_s=runtime_s,
        cpu_s=cpu_s,
        # A run that ended before its first sample has the kernel's peak, page cache included.
        peak_rss_bytes=max(
            trace.peak_rss_bytes or peak or 0, _reached_bytes(kills, peak, limit_bytes)
        ),
        peak_cgroup_bytes=peak,
        memory_method=meter.memory_method,
        cpu_method=meter.cpu_method,
        started_at=started_at.isoformat(timespec="milliseconds"),
        limit_s=conditions.time_limit_s,
        noisy=disturbed.noisy,
        load1=load1,
        steal=disturbed.steal,
        io_read_bytes=int(trace.traffic.read_bytes),
        io_write_bytes=int(trace.traffic.write_bytes),
        peak_threads=trace.peak_threads,
        peak_gpu_bytes=trace.peak_gpu_bytes,
        gpu_utilisation=trace.gpu_utilisation,
        **reading.columns,
    )
    phases = _phases(clock, started, phase_patterns, runtime_s)
    return run, tuple(map(trace.with_peak, phases))


def _variables(env: Mapping[str, str], run_id: str) -> dict[str, str]:
    # Apptainer passes only variables with its prefix into a container.
    variables = {**os.environ, **env, RUN_VARIABLE: run_id}
    for name in (RUN_VARIABLE, "CUDA_VISIBLE_DEVICES"):
        if name in variables:
            variables |= {f"{tool}ENV_{name}": variables[name] for tool in PREFIXES}
    return variables


def _kernel_kills() -> int | None:
    """Return how many processes of this machine the kernel has killed for memory, if it tells."""
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/vmstat").read_text(encoding="ascii")
        return int(text.split("\noom_kill ")[1].split()[0]) if "\noom_kill " in text else None
    return None


def _reached_bytes(kills: int, peak_bytes: int | None, limit_bytes: int | None) -> int:
    """Return the limit if the kernel killed at it, and 0 if at the limit of a parent group."""
    at_limit = peak_bytes is None or peak_bytes >= NEAR_LIMIT * (limit_bytes or 0)
    return (limit_bytes or 0) if kills and at_limit else 0


@contextlib.contextmanager
def _started(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    cpus: Sequence[int],
    meter: meters.Meter,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the leader inside its limits; no process of the run is left after the block."""
    driver = os.getpid()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / LOG_FILE).open("ab"))
        joins = [
            stack.enter_context((group / "cgroup.procs").open("wb", buffering=0)).fileno()
            for group in meter.folders
        ]

        def become_the_run() -> None:
            end_with(driver)
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
        stop_all(meter.pids, grace_s=0.0)
        if leader.returncode is None:
            leader.wait()


def _watch(
    pid: int,
    trace: Trace,
    clock: LogClock,
    started: float,
    conditions: Conditions,
    stopped: Callable[[], bool] | None,
) -> Outcome | None:
    """Sample until the leader ends or a limit is reached; return the outcome at a limit."""
    limit_s = conditions.time_limit_s
    deadline = float("inf") if limit_s is None else started + limit_s
    with exit_waiter(pid) as ended:
        while True:
            now, spent_s = time.monotonic(), time.thread_time()
            sample = trace.take_sample()
            cost_s = time.thread_time() - spent_s
            t_s = time.monotonic() - started
            clock.read(t_s)
            reached = conditions.reached(t_s, sample.rss_bytes, trace.idle_s, trace.oom_kills)
            if reached is None and stopped is not None and stopped():
                reached = "preempted"
            pause_s = max(1.0 / conditions.sample_hz, cost_s / SAMPLER_SHARE)
            wait_s = 0.0 if reached else min(now + pause_s, deadline) - time.monotonic()
            if ended(wait_s):
                return None
            if reached:
                return reached


@contextlib.contextmanager
def exit_waiter(pid: int) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds for the end of ``pid`` and returns whether it came.

    The end is noticed well within a millisecond, independently of the sampling rate.
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


def _reject_gpu_run(log: Path, gpu: GpuMeter | None) -> Outcome:
    reason = "cannot be measured here" if gpu is None else "was not used by this run"
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"\nvoxcast: the GPU {reason}; its time is not recorded as a GPU's\n")
    return "failed"


def _phases(
    clock: LogClock, started: float, patterns: PhasePatterns | None, runtime_s: float
) -> tuple[Phase, ...]:
    lines, written_s = clock.lines()
    phases = read_phases(lines, started)
    if phases or not patterns:
        return phases
    from voxcast.apps.phase_log import phases_from_log

    by_phase = patterns(lines) if callable(patterns) else patterns
    return phases_from_log(lines, by_phase, written_s, runtime_s)
