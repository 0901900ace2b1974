"""One measured run: a command in its own process tree, from its start to its last process.

The run has its own session and meter, exactly the requested CPUs, and limits that apply to the
whole tree. It dies with us: the kernel kills its leader when we are killed, and `sweep` removes
what the leader leaves behind at the next start. Durations are of ``CLOCK_MONOTONIC``: setting the
clock during a run does not change them.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.containers import RUN_VARIABLE
from voxcast.apps.phase_log import read_phases
from voxcast.errors import RunError
from voxcast.files import json_text, read_json, remove_folder
from voxcast.profiling import cgroups
from voxcast.profiling.activity import Activity
from voxcast.profiling.leader import LOG_FILE, exit_waiter, started_leader
from voxcast.profiling.limits import RunLimits
from voxcast.profiling.log_clock import LogClock
from voxcast.profiling.metronome import Metronome
from voxcast.profiling.processes import marked, stop_all
from voxcast.profiling.run_marks import PREFIX, is_abandoned, new_run_id
from voxcast.profiling.sampler import open_meter
from voxcast.profiling.trace import Trace
from voxcast.records import Outcome, Phase, Profile

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.profiling.gpu import GpuMeter
    from voxcast.profiling.meter import Meter

    PhasePatterns = Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, str]]

RUN_FILE = "run.json"
PREFIXES = ("APPTAINER", "SINGULARITY")
GRACE_S = 2.0
NEAR_LIMIT = 0.98  # share of the limit: the kernel kills before the peak reaches it
SAMPLER_SHARE = 0.03  # of a core: a slow machine is sampled less often


def measure(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    cpus: int,
    time_limit_s: float | None = None,
    mem_limit_bytes: int | None = None,
    sample_hz: float = 10.0,
    groups: bool = True,
    gpus: int = 0,
    stall_s: float | None = None,
    phase_patterns: PhasePatterns | None = None,
    verify_gpu: bool = False,
    core_set: Sequence[int] | None = None,
    metronome: Metronome | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Profile:
    """Run ``command`` and measure it from outside.

    Must be called from a thread that lives as long as the run: the run is killed with it.

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
    time_limit_s, mem_limit_bytes : float, int, optional
        The whole tree is stopped at these: SIGTERM, two seconds of grace, SIGKILL. The kernel
        enforces the memory limit too where the run has its own control group.
    sample_hz : float
        Samples a second, at most.
    groups : bool
        Whether a control group is used where available.
    gpus : int
        Number of GPUs of the run; their memory and utilisation are measured where possible.
    stall_s : float, optional
        A run that uses no CPU, I/O or GPU for this long is stopped.
    phase_patterns : mapping or callable, optional
        Patterns of log lines by phase, for an application that does not use our phase log; or a
        function that returns them for the lines of the log.
    verify_gpu : bool
        A run with GPUs that never used one has failed; the reason is added to its log.
    core_set : sequence of int, optional
        The CPUs to take ``cpus`` from, for parallel runs; only other load on these then
        makes the run noisy. All that we may use by default.
    metronome : Metronome, optional
        Times kernels on the CPUs of the run; of this thread. None: nothing is timed.
    stopped : callable, optional
        Asked at every sample: once it is true the run is stopped, as preempted.

    Returns
    -------
    Profile
        `runtime_s` ends when the leader ends or the tree is stopped. Where the kernel stopped it
        for memory, the peak is at least the limit. Storage traffic misses
        setuid programs, and up to a second of processes that outlive their parents.

    Raises
    ------
    RunError
        If there are too few CPUs, or the command cannot be started.
    """
    cores = sorted(os.sched_getaffinity(0) if core_set is None else core_set)
    if not 1 <= cpus <= len(cores):
        raise RunError(f"runs on 1 to {len(cores)} CPUs here, not {cpus}", command[0])
    folder.mkdir(parents=True, exist_ok=True)
    run_id = new_run_id()
    # Written first: if we are killed from here on, `sweep` finds what is left. Not synced: what
    # survives a process survives in memory, and nothing of a run survives the machine.
    planned = cgroups.planned_group(run_id) if groups else None
    group_folders = [] if planned is None else list(map(str, planned.folders))
    content = {"run_id": run_id, "groups": group_folders}
    (folder / RUN_FILE).write_text(json_text(content), encoding="utf-8")
    limits = RunLimits(time_limit_s, mem_limit_bytes, stall_s)
    with contextlib.ExitStack() as stack:
        meter = open_meter(run_id, groups=groups)
        stack.callback(meter.close)
        if mem_limit_bytes is not None:
            meter.limit_memory(mem_limit_bytes)
        gpu = _gpu_meter(gpus, stack)
        variables = _variables(env, run_id)
        metronome = metronome or Metronome(enabled=False)
        ticking = stack.enter_context(metronome.beside(cores[:cpus]))
        load1, started_at = os.getloadavg()[0], datetime.datetime.now(datetime.UTC)
        activity, started = Activity(cores), time.monotonic()
        trace, clock = Trace(meter, gpu, started, stall_s), LogClock(folder / LOG_FILE)
        with started_leader(command, variables, folder, cores[:cpus], meter) as leader:
            cut = _watch(leader, trace, clock, started, limits, sample_hz, stopped)
            runtime_s = time.monotonic() - started
            trace.read_sums()
            status, waited_s = _end(leader, meter, GRACE_S if cut else 0.0)
            clock.read(runtime_s)
        cpu_s, peak, kills = meter.total_cpu_s(waited_s), meter.peak_bytes(), meter.oom_kills()
        reading = ticking.stop()
        disturbed = activity.during(cpu_s + reading.cpu_s)
    trace.write(folder)
    (folder / RUN_FILE).unlink()
    outcome = "out_of_memory" if kills else cut or ("failed" if status else "completed")
    if outcome == "completed" and gpus and verify_gpu and not trace.used_gpu:
        outcome = _reject_gpu_run(folder / LOG_FILE, gpu)
    return Profile(
        outcome=outcome,
        exit_status=status,
        runtime_s=runtime_s,
        cpu_s=cpu_s,
        # A run that ended before its first sample has the kernel's peak, page cache included.
        peak_rss_bytes=max(
            trace.peak_rss_bytes or peak or 0, _reached_bytes(kills, peak, mem_limit_bytes)
        ),
        peak_cgroup_bytes=peak,
        memory_method=meter.memory_method,
        cpu_method=meter.cpu_method,
        started_at=started_at.isoformat(timespec="milliseconds"),
        time_limit_s=time_limit_s,
        noisy=disturbed.noisy,
        load1=load1,
        steal=disturbed.steal,
        io_read_bytes=int(trace.traffic.read_bytes),
        io_write_bytes=int(trace.traffic.write_bytes),
        peak_threads=trace.peak_threads,
        peak_gpu_bytes=trace.peak_gpu_bytes,
        gpu_utilisation=trace.gpu_utilisation,
        metronome_compute_s=reading.compute_s,
        metronome_copy_s=reading.copy_s,
        metronome_gather_s=reading.gather_s,
        metronome_interpreter_s=reading.interpreter_s,
        metronome_ticks=reading.ticks,
        phases=tuple(map(trace.with_peak, _phases(clock, started, phase_patterns, runtime_s))),
    )


def sweep(folder: Path) -> None:
    """Remove the folder of a run whose driver is dead, and kill its remaining processes."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = read_json(folder / RUN_FILE)
        groups = map(Path, content["groups"])
        # The file may have been written by others: no other group is emptied.
        cgroups.remove(group for group in groups if group.name == f"{PREFIX}{content['run_id']}")
        stop_all(lambda: marked(content["run_id"]), grace_s=0.0)
    remove_folder(folder)


def was_abandoned(folder: Path) -> bool:
    """Tell whether a folder is of a run whose driver is dead."""
    try:
        return is_abandoned(read_json(folder / RUN_FILE)["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _variables(env: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Return the run's variables: ours, ``env``, and the mark of its processes.

    Apptainer passes only variables with its prefix into a container.
    """
    variables = {**os.environ, **env, RUN_VARIABLE: run_id}
    for name in (RUN_VARIABLE, "CUDA_VISIBLE_DEVICES"):
        if name in variables:
            variables |= {f"{tool}ENV_{name}": variables[name] for tool in PREFIXES}
    return variables


def _reached_bytes(kills: int, peak_bytes: int | None, limit_bytes: int | None) -> int:
    """Return the limit if the kernel killed at it, and 0 if at the limit of a parent group."""
    at_limit = peak_bytes is None or peak_bytes >= NEAR_LIMIT * (limit_bytes or 0)
    return (limit_bytes or 0) if kills and at_limit else 0


def _gpu_meter(gpus: int, stack: contextlib.ExitStack) -> GpuMeter | None:
    if not gpus:
        return None
    from voxcast.profiling.gpu import open_gpu_meter

    gpu = open_gpu_meter()
    if gpu is not None:
        stack.callback(gpu.close)
    return gpu


def _watch(
    leader: subprocess.Popen[bytes],
    trace: Trace,
    clock: LogClock,
    started: float,
    limits: RunLimits,
    sample_hz: float,
    stopped: Callable[[], bool] | None,
) -> Outcome | None:
    """Sample until the leader ends or a limit is reached; return the outcome at a limit."""
    deadline = float("inf") if limits.time_limit_s is None else started + limits.time_limit_s
    with exit_waiter(leader.pid) as ended:
        while True:
            now, spent_s = time.monotonic(), time.thread_time()
            sample = trace.take_sample()
            cost_s = time.thread_time() - spent_s
            t_s = time.monotonic() - started
            clock.read(t_s)
            reached = limits.reached(t_s, sample.rss_bytes, trace.idle_s, trace.oom_kills)
            if reached is None and stopped is not None and stopped():
                reached = "preempted"
            pause_s = max(1.0 / sample_hz, cost_s / SAMPLER_SHARE)
            wait_s = 0.0 if reached else min(now + pause_s, deadline) - time.monotonic()
            if ended(wait_s):
                return None
            if reached:
                return reached


def _end(leader: subprocess.Popen[bytes], meter: Meter, grace_s: float) -> tuple[int, float]:
    """Stop all processes; return the leader's exit status and waited-for CPU seconds."""
    stop_all(meter.pids, grace_s)
    _, status, usage = os.wait4(leader.pid, 0)
    leader.returncode = os.waitstatus_to_exitcode(status)
    return leader.returncode, usage.ru_utime + usage.ru_stime


def _reject_gpu_run(log: Path, gpu: GpuMeter | None) -> Outcome:
    """Add to the log why a run on a GPU has failed."""
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
    from voxcast.apps.phase_patterns import phases_from_log

    by_phase = patterns(lines) if callable(patterns) else patterns
    return phases_from_log(lines, by_phase, written_s, runtime_s)
