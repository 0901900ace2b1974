"""The measurements of a run while it runs: samples, peaks, sums, idle time, growth of its log."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from voxcast.measure.gpu import GpuMeter
from voxcast.measure.meters import Meter, Throttle, Traffic
from voxcast.records import Outcome, Phase
from voxcast.runs.series import SAMPLES_FILE, phase_peak

READING_SHARE = 0.01  # of a core
# Reading a GPU takes under 1 ms, but up to a second while a driver is woken; the next one may not
# wait until a short run is over.
GPU_LONGEST_PAUSE_S = 0.5
TRAFFIC_PAUSE_S = 1.0  # sums only grow: one reading a second is enough
GPU_USED = 0.01  # utilisation that a run which used its GPU reached at least once
GPU_CONTEXT_BYTES = 100e6  # less than CUDA takes of a GPU for each process that computes on it
IDLE_CORES = 0.01  # CPU use below which a run is idle; a waiting interpreter takes 0.001


@dataclass(frozen=True)
class Conditions:
    """How a run is measured, and the limits at which it is stopped; None for no limit.

    `metronome`: whether kernels are timed beside the run, see `voxcast.measure.metronome`.
    `mem_limit_bytes`: the memory available to the run, beside the limit of its configuration.
    """

    time_limit_s: float | None = None
    stall_s: float | None = None
    sample_hz: float = 10.0  # at most
    metronome: bool = True
    mem_limit_bytes: int | None = None

    def reached(self, t_s: float, rss_bytes: int, idle_s: float, oom_kills: int) -> Outcome | None:
        """Return the outcome of a run that is stopped now, or None if it may continue.

        Parameters
        ----------
        t_s : float
            Seconds since the start.
        rss_bytes : int
            Memory of the tree.
        idle_s : float
            How long it has been idle, see `IdleTime`.
        oom_kills : int
            Number of processes that the kernel has killed: their parents may wait forever.
        """
        if oom_kills or (self.mem_limit_bytes is not None and rss_bytes > self.mem_limit_bytes):
            return "out_of_memory"
        if self.time_limit_s is not None and t_s >= self.time_limit_s:
            return "timeout"
        if self.stall_s is not None and idle_s >= self.stall_s:
            return "stalled"
        return None


@dataclass
class IdleTime:
    """How long a run has been idle: no I/O, no GPU, and CPU below `IDLE_CORES`.

    `stall_s` is the time over which CPU use is averaged; None without a limit.
    """

    stall_s: float | None
    _since_s: float = field(default=0.0, init=False)
    _cpu_s: float = field(default=0.0, init=False)
    _moved: float = field(default=0.0, init=False)

    def update(self, t_s: float, cpu_s: float, moved: float, *, gpu_busy: bool = False) -> float:
        """Add a sample; return for how many seconds the run has been idle.

        ``cpu_s`` and ``moved`` (bytes, of any kind) are sums since the start of the run.
        """
        if self.stall_s is None:
            return 0.0
        used_s = cpu_s - self._cpu_s
        if gpu_busy or moved > self._moved or used_s >= IDLE_CORES * self.stall_s:
            self._since_s, self._cpu_s, self._moved = t_s, cpu_s, moved
        return t_s - self._since_s


class LogClock:
    """Notes the size of a log at every sample, so that its lines can be dated.

    A line counts as written at the first reading at which the file held all of it. A program that
    buffers its output writes many lines at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sizes: list[int] = []
        self._times_s: list[float] = []

    def read(self, t_s: float) -> None:
        """Note the size of the log ``t_s`` seconds after the start of the run."""
        with contextlib.suppress(FileNotFoundError):
            size_bytes = self._path.stat().st_size
            if size_bytes > (self._sizes[-1] if self._sizes else 0):
                self._sizes.append(size_bytes)
                self._times_s.append(t_s)

    def lines(self) -> tuple[list[str], list[float]]:
        """Return the lines of the log, and the seconds at which each was written."""
        lines, written_s, offset = [], [], 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            offset += len(line)
            position = bisect.bisect_left(self._sizes, offset)
            # Lines written after the last reading belong to it.
            times_s = self._times_s[position : position + 1] or self._times_s[-1:] or [0.0]
            lines.append(line.decode("utf-8", errors="replace").rstrip("\r\n"))
            written_s.append(times_s[0])
        return lines, written_s


class Sample(NamedTuple):
    """One instant of a run; `t_s` counts from its start, `cpu_s` is the tree's sum so far."""

    t_s: float
    rss_bytes: int
    cpu_s: float
    gpu_bytes: int | None = None


class Trace:
    """Samples a run through its meters.

    Parameters
    ----------
    meter : Meter
        Of the run's processes.
    gpu : GpuMeter or None
        Of the GPUs, for a run that has some.
    started : float
        ``CLOCK_MONOTONIC`` at the start of the run.
    stall_s : float, optional
        Time without activity after which the run is stopped.
    """

    def __init__(
        self, meter: Meter, gpu: GpuMeter | None, started: float, stall_s: float | None = None
    ) -> None:
        self.samples: list[Sample] = []
        self.peak_threads = self.oom_kills = 0
        self.traffic = Traffic(0, 0, 0)
        self.idle_s = 0.0
        self._meter, self._gpu, self._started = meter, gpu, started
        self._idle = IdleTime(stall_s)
        self._gpu_throttle = Throttle(READING_SHARE, longest_pause_s=GPU_LONGEST_PAUSE_S)
        pause_s = TRAFFIC_PAUSE_S if stall_s is None else min(TRAFFIC_PAUSE_S, stall_s / 4)
        self._slow_throttle = Throttle(READING_SHARE, pause_s)
        self._utilisations: list[float] = []
        self._gpu_bytes: int | None = None

    def take_sample(self) -> Sample:
        """Take one sample."""
        t_s = time.monotonic() - self._started
        reading = self._meter.read()
        if self._gpu is not None and self._gpu_throttle.due():
            with self._gpu_throttle.reading():
                gpu_sample = self._gpu.read(self._meter.members())
            self._gpu_bytes = gpu_sample.memory_bytes
            if gpu_sample.utilisation is not None:
                self._utilisations.append(gpu_sample.utilisation)
        if self._slow_throttle.due():
            with self._slow_throttle.reading():
                self.read_sums()
        busy = bool(self._utilisations) and self._utilisations[-1] >= GPU_USED
        moved = self.traffic.called_bytes + self.traffic.read_bytes + self.traffic.write_bytes
        self.idle_s = self._idle.update(t_s, reading.cpu_s, moved, gpu_busy=busy)
        self.peak_threads = max(self.peak_threads, reading.threads)
        sample = Sample(t_s, reading.rss_bytes, reading.cpu_s, self._gpu_bytes)
        self.samples.append(sample)
        return sample

    def read_sums(self) -> None:
        """Read the counters that only grow; called at the end too."""
        with contextlib.suppress(OSError):  # a group or process that has just gone
            self.traffic = self._meter.traffic()
            self.oom_kills = self._meter.oom_kills()

    @property
    def peak_rss_bytes(self) -> int:
        """Largest memory of all samples."""
        return max((sample.rss_bytes for sample in self.samples), default=0)

    @property
    def peak_gpu_bytes(self) -> int | None:
        """Largest GPU memory of all samples."""
        return max((s.gpu_bytes for s in self.samples if s.gpu_bytes is not None), default=None)

    @property
    def gpu_utilisation(self) -> float | None:
        """Mean over all readings of the GPU."""
        shares = self._utilisations
        return sum(shares) / len(shares) if shares else None

    @property
    def used_gpu(self) -> bool:
        """Whether a GPU was used.

        Memory tells it too: utilisation is not reported by a part of a GPU (MIG), and a fast GPU
        may be done between two of the driver's own samples.
        """
        busy = max(self._utilisations, default=0.0) >= GPU_USED
        return busy or (self.peak_gpu_bytes or 0) >= GPU_CONTEXT_BYTES

    def with_peak(self, phase: Phase) -> Phase:
        """Return ``phase`` with its largest memory; see `voxcast.runs.series`."""
        t_s, rss_bytes = [s.t_s for s in self.samples], [s.rss_bytes for s in self.samples]
        peak = phase_peak(t_s, rss_bytes, phase.start_s, phase.end_s)
        return dataclasses.replace(phase, peak_rss_bytes=peak)

    def write(self, folder: Path) -> None:
        """Write the samples as arrays that NumPy alone can read.

        GPU memory has an array only where it was measured; -1 is before its first reading.
        """
        arrays: dict[str, Any] = {
            "t_s": np.array([s.t_s for s in self.samples], float),
            "rss_bytes": np.array([s.rss_bytes for s in self.samples], np.int64),
            "cpu_s": np.array([s.cpu_s for s in self.samples], float),
        }
        if self._gpu is not None:
            gpu_bytes = [-1 if s.gpu_bytes is None else s.gpu_bytes for s in self.samples]
            arrays["gpu_bytes"] = np.array(gpu_bytes, np.int64)
        with (folder / SAMPLES_FILE).open("wb") as stream:
            np.savez_compressed(stream, **arrays)
