"""The first process of a run: its start inside the limits, and its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.profiling.processes import stop_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from voxcast.profiling.meter import Meter

LOG_FILE = "app.log"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # opened here: not safe between fork and exec


def end_with(driver: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; before ``exec``."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:
        os._exit(1)  # it was killed before prctl


@contextlib.contextmanager
def started_leader(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    cpus: Sequence[int],
    meter: Meter,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the leader of a run; no process of the run is left after the block.

    Parameters
    ----------
    command : sequence of str
        Argument list.
    variables : mapping
        Its complete environment.
    folder : Path
        Gets the log of both output streams.
    cpus : sequence of int
        CPUs it is pinned to.
    meter : Meter
        The leader joins its groups before it becomes the command.

    Raises
    ------
    RunError
        If the command cannot be started.
    """
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


@contextlib.contextmanager
def exit_waiter(pid: int) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds for the end of ``pid`` and tells whether it ended.

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
