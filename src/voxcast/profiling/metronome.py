"""The metronome: a small process beside each run that times fixed kernels on the run's own cores.

Neighbours on a machine slow a run, and what they slow the kernels by tells how much. The process
is started once, before the first run of the thread that measures, since it imports NumPy; for each
run it is pinned to the cores of that run. It is no part of the run: not in its control group, not
among its descendants, and without its mark. It dies with us like the run.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.containers import RUN_VARIABLE
from voxcast.profiling.leader import end_with
from voxcast.profiling.run_marks import new_run_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODULE = "voxcast.profiling.metronome_process"
PERIOD_S = 0.7
READY_S, ANSWER_S = 30.0, 5.0  # patience, on a machine that is overloaded
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetronomeReading:
    """Mean CPU seconds of each kernel beside a run, and how often they were timed.

    All are None where there was no metronome, or the run ended before its first tick. `cpu_s` is
    what the metronome itself used.
    """

    compute_s: float | None = None
    copy_s: float | None = None
    gather_s: float | None = None
    interpreter_s: float | None = None
    ticks: int | None = None
    cpu_s: float = 0.0


@dataclass(frozen=True)
class _Worker:
    """The process, and our end of the socket that is its standard input and output."""

    process: subprocess.Popen[bytes]
    link: socket.socket

    def signal(self) -> None:
        """Start the ticks, or stop them."""
        self.link.sendall(b".")

    def line(self, patience_s: float) -> bytes:
        """Return the next line; OSError if the process takes longer or has ended."""
        line, deadline = b"", time.monotonic() + patience_s
        while not line.endswith(b"\n"):
            self.link.settimeout(max(1e-3, deadline - time.monotonic()))
            if not (content := self.link.recv(4096)):
                raise ConnectionError("its process has ended")
            line += content
        return line

    def end(self) -> None:
        """End the process; it has nothing to save."""
        self.process.kill()
        self.process.wait()
        self.link.close()


class Ticking:
    """The metronome while it runs beside one run."""

    def __init__(self, worker: _Worker | None) -> None:
        self._worker = worker
        self._reading = MetronomeReading()

    def stop(self) -> MetronomeReading:
        """Stop it, within a tick, and return its reading; the same one if called again."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._reading = _read(worker)
        return self._reading


class Metronome:
    """Times kernels beside one run after the other; for one thread, to be closed by it.

    Parameters
    ----------
    enabled : bool
        Whether anything is timed at all.
    period_s : float
        Seconds between ticks; more where a tick would then take over 2 % of a core.
    """

    def __init__(self, *, enabled: bool = True, period_s: float = PERIOD_S) -> None:
        self._enabled, self._period_s = enabled, period_s
        self._worker: _Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def beside(self, cpus: Sequence[int]) -> Iterator[Ticking]:
        """Time the kernels on ``cpus`` during the block, or until it is stopped.

        Where that fails nothing is measured: no run fails for it.
        """
        ticking = Ticking(self._started(cpus))
        try:
            yield ticking
        finally:
            ticking.stop()

    def close(self) -> None:
        """End the process."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def _started(self, cpus: Sequence[int]) -> _Worker | None:
        if self._worker is not None and self._worker.process.poll() is not None:
            self.close()  # it was killed
        try:
            if self._enabled and self._worker is None:
                self._worker = _start(self._period_s)
            if self._worker is not None:
                os.sched_setaffinity(self._worker.process.pid, cpus)
                self._worker.signal()
        except (OSError, subprocess.SubprocessError) as error:
            logger.warning("the speed of the machine is not measured during runs: %s", error)
            self._enabled = False
            self.close()
        return self._worker


def _start(period_s: float) -> _Worker:
    """Start the process and wait until it is ready, mostly for less than a second."""
    driver = os.getpid()
    link, far_end = socket.socketpair()
    with far_end:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(period_s)],
            stdin=far_end.fileno(),
            stdout=far_end.fileno(),
            stderr=subprocess.DEVNULL,
            # The mark names us: the process is removed as a leftover if it ever outlives us.
            env={**os.environ, **ONE_THREAD, RUN_VARIABLE: new_run_id()},
            start_new_session=True,  # an interrupt at the terminal is ours to handle
            preexec_fn=lambda: end_with(driver),
        )
    worker = _Worker(process, link)
    try:
        worker.line(READY_S)
    except BaseException:
        worker.end()
        raise
    return worker


def _read(worker: _Worker) -> MetronomeReading:
    try:
        worker.signal()
        content = json.loads(worker.line(ANSWER_S))
    except OSError:  # killed, or stopped by others: the next run gets a new one
        worker.process.kill()
        worker.process.wait()
        return MetronomeReading()
    except BaseException:
        worker.process.kill()  # it may still tick
        raise
    means_s = {f"{name}_s": mean_s for name, mean_s in content["means_s"].items()}
    return MetronomeReading(**means_s, ticks=content["ticks"] or None, cpu_s=content["cpu_s"])
