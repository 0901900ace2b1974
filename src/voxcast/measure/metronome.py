"""The metronome: a small process beside each run that times fixed kernels on the run's own cores.

Neighbours on a machine slow a run down, and the kernels by about as much. The process starts once,
before the first run of the measuring thread, because it imports NumPy; for each run it is pinned
to the run's cores. It is not part of the run: outside its control group and its process tree, and
without its mark. It dies with us, like the run.

In the second before the run the kernels are timed without pauses: that is the speed of the cores
as anyone can measure it before a run, such as a job that asks how long its own will take.

``python -m voxcast.measure.metronome PERIOD_S`` is that process. It writes a line when it is
ready. The byte ``r`` on standard input asks for a reading of a second; any other starts the ticks
and the next stops them. It answers with the mean seconds of each kernel as a line of JSON, and
ends when its input ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.containers import RUN_VARIABLE
from voxcast.measure.processes import end_with, new_run_id

PRODUCTS, ORDER = 4, 200  # products of square matrices of doubles
COPIED_BYTES = 16_000_000
GATHERED, GATHERED_FROM = 250_000, 1_000_000  # doubles
STEPS = 60_000


def make_kernels() -> dict[str, Callable[[], object]]:
    """Return pieces of constant work whose CPU time shows the present speed of a core, by name.

    Each depends on another resource that neighbours compete for: the units of the core, bandwidth,
    latency of caches and memory, and all of it as an interpreter uses it. Each takes some
    milliseconds and allocates little. Recorded times compare only with times of the same kernels:
    a change needs a new name. Their memory is in place, so that the first run is not slower.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, ORDER, ORDER))
    product = np.empty_like(left)
    source = rng.standard_normal(COPIED_BYTES // 8)
    target = np.zeros_like(source)
    values = rng.standard_normal(GATHERED_FROM)
    indices = rng.integers(0, GATHERED_FROM, GATHERED)
    gathered = np.empty(GATHERED)

    def compute() -> None:
        for _ in range(PRODUCTS):
            np.matmul(left, right, out=product)

    def interpreter() -> int:
        total = 0
        for step in range(STEPS):
            total += step & 7
        return total

    kernels: dict[str, Callable[[], object]] = {
        "compute": compute,
        "copy": lambda: np.copyto(target, source),
        # Without `mode` the result is buffered.
        "gather": lambda: np.take(values, indices, out=gathered, mode="clip"),
        "interpreter": interpreter,
    }
    run_once(kernels)
    return kernels


def run_once(kernels: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Run each kernel once; return the CPU seconds of this thread by name."""
    seconds = {}
    for name, kernel in kernels.items():
        start_s = time.thread_time()
        kernel()
        seconds[name] = time.thread_time() - start_s
    return seconds


MODULE = "voxcast.measure.metronome"
READ, TICK = b"r", b"."
READING_S = 1.0  # shorter ones vary more: 8 % over 0.1 s, 5 % over 1 s, 4.5 % over 2 s
PERIOD_S = 0.7
READY_S, ANSWER_S = 30.0, 5.0  # patience, on a machine that is overloaded
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetronomeReading:
    """What was timed beside a run, and the CPU time of the metronome.

    `columns` has fields of `voxcast.records.Run`: mean CPU seconds of each kernel before the run
    and beside it, and how often they were timed beside it. It is empty without a metronome, and
    lacks what was beside the run if that ended before the first tick.
    """

    columns: Mapping[str, Any] = field(default_factory=dict)
    cpu_s: float = 0.0


def kernel_s(cpus: Sequence[int] | None = None) -> float | None:
    """Return how fast the cores are now, by a reading of a second.

    Parameters
    ----------
    cpus : sequence of int, optional
        The cores; all that we may use by default.

    Returns
    -------
    float or None
        Geometric mean of the CPU seconds of the kernels, for the column ``kernel_s`` of a request
        (see `voxcast.serving.signature`); None if they cannot be timed here.
    """
    cores = sorted(os.sched_getaffinity(0)) if cpus is None else cpus
    with Metronome() as metronome, metronome.beside(cores):
        seconds = [s for name, s in metronome.stop().columns.items() if name.startswith("before")]
    if not seconds or not all(seconds):
        return None
    return math.exp(sum(map(math.log, seconds)) / len(seconds))


def reading_begun() -> Callable[[], float | None]:
    """Begin a reading, see `kernel_s`, and return what waits for it."""
    pool = ThreadPoolExecutor(1)
    reading = pool.submit(kernel_s)
    pool.shutdown(wait=False)
    return reading.result


class Metronome(contextlib.AbstractContextManager["Metronome"]):
    """Times kernels beside one run after the other; for one thread, to be closed by it.

    Parameters
    ----------
    enabled : bool
        Whether anything is timed at all.
    period_s : float
        Seconds between ticks; more where a tick would then take over 2 % of a core.
    """

    _link: socket.socket  # the standard input and output of the process

    def __init__(self, *, enabled: bool = True, period_s: float = PERIOD_S) -> None:
        self._enabled, self._period_s = enabled, period_s
        self._process: subprocess.Popen[bytes] | None = None
        self._ticking = False
        self._reading = MetronomeReading()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def beside(self, cpus: Sequence[int]) -> Iterator[Metronome]:
        """Time the kernels on ``cpus`` for a second, then in the block, or until it is stopped.

        Where that fails nothing is measured: no run fails for it.
        """
        self._reading = MetronomeReading()
        self._ticking = self._enabled and self._start(cpus)
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> MetronomeReading:
        """Stop the ticks and return the reading; the same one if called again."""
        if self._ticking:
            self._ticking = False
            try:
                self._link.sendall(TICK)
                content = json.loads(self._line(ANSWER_S))
            except BaseException as error:
                self.close()  # it was killed, or may still tick: the next run gets a new one
                if not isinstance(error, OSError):
                    raise
            else:
                columns = {**self._reading.columns, **content["columns"]}
                self._reading = MetronomeReading(columns, content["cpu_s"])
        return self._reading

    def close(self) -> None:
        """End the process; it has nothing to save."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._link.close()

    def _start(self, cpus: Sequence[int]) -> bool:
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it was killed
        is_ready = self._process is not None
        try:
            if self._process is None:
                self._process = self._started()
                self._line(READY_S)  # mostly for less than a second
                is_ready = True
            os.sched_setaffinity(self._process.pid, cpus)
            self._link.sendall(READ)
            self._reading = MetronomeReading(json.loads(self._line(READING_S + ANSWER_S)))
            self._link.sendall(TICK)
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError | subprocess.SubprocessError):
                raise
            if not is_ready:  # else it was killed: the next run gets a new one
                logger.warning("the speed of the machine is not measured during runs: %s", error)
                self._enabled = False
            return False
        return True

    def _started(self) -> subprocess.Popen[bytes]:
        driver = os.getpid()
        self._link, far_end = socket.socketpair()
        with far_end:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(self._period_s)],
                stdin=far_end.fileno(),
                stdout=far_end.fileno(),
                stderr=subprocess.DEVNULL,
                # The mark names us: the process is removed as a leftover if it ever outlives us.
                env={**os.environ, **ONE_THREAD, RUN_VARIABLE: new_run_id()},
                start_new_session=True,  # an interrupt at the terminal is ours to handle
                preexec_fn=lambda: end_with(driver),
            )

    def _line(self, patience_s: float) -> bytes:
        """Return the next line; OSError if the process takes longer or has ended."""
        line, deadline = b"", time.monotonic() + patience_s
        while not line.endswith(b"\n"):
            self._link.settimeout(max(1e-3, deadline - time.monotonic()))
            if not (content := self._link.recv(4096)):
                raise ConnectionError("its process has ended")
            line += content
        return line


STDIN, STDOUT = 0, 1
SHARE = 0.02  # of a core, at most: where the kernels are slow there are longer pauses


def main() -> int:
    """Answer each byte of the standard input with what the kernels took."""
    kernels, period_s = make_kernels(), float(sys.argv[1])
    os.write(STDOUT, b"ready\n")
    while byte := os.read(STDIN, 1):
        answer = read(kernels) if byte == READ else timed_until_stopped(kernels, period_s)
        os.write(STDOUT, f"{answer}\n".encode())
    return 0


def read(kernels: Mapping[str, Callable[[], object]]) -> str:
    """Time the kernels for `READING_S`, without pauses; return the means as JSON."""
    sums: Counter[str] = Counter()
    ticks, end_s = 0, time.monotonic() + READING_S
    while not ticks or time.monotonic() < end_s:
        sums.update(run_once(kernels))
        ticks += 1
    return json.dumps({f"before_{name}_s": total_s / ticks for name, total_s in sums.items()})


def timed_until_stopped(kernels: Mapping[str, Callable[[], object]], period_s: float) -> str:
    """Time the kernels until a byte comes, or the end; return the means as JSON."""
    sums: Counter[str] = Counter()
    ticks, begun_s, spent_s = 0, time.process_time(), 0.0
    # The first tick is one pause after the start: a short run is not disturbed at all.
    while not select.select([STDIN], [], [], max(period_s, spent_s / SHARE))[0]:
        start_s = time.process_time()
        sums.update(run_once(kernels))
        ticks += 1
        spent_s = time.process_time() - start_s
    os.read(STDIN, 1)
    columns = {f"metronome_{name}_s": total_s / ticks for name, total_s in sums.items()}
    columns |= {"metronome_ticks": ticks} if ticks else {}
    return json.dumps({"columns": columns, "cpu_s": time.process_time() - begun_s})


if __name__ == "__main__":
    sys.exit(main())
