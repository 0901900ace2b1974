"""The measurements of a run while it runs: samples, peaks, sums."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.files import write_json
from voxcast.history.phase_peaks import phase_peak
from voxcast.history.run_folders import SAMPLES_FILE, SAMPLES_JSON
from voxcast.profiling.limits import IdleTime
from voxcast.profiling.processes import Traffic
from voxcast.profiling.throttle import Throttle

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.profiling.gpu import GpuMeter
    from voxcast.profiling.meter import Meter
    from voxcast.records import Phase

GPU_SHARE = 0.01  # of a core
TRAFFIC_PAUSE_S = 1.0  # sums only grow: one reading a second is enough
SECONDS = ("t_s", "cpu_s")  # the others are bytes
GPU_USED = 0.01  # utilisation that a run which used its GPU reached at least once


@dataclass(frozen=True)
class Sample:
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
        self._gpu_throttle = Throttle(GPU_SHARE)
        pause_s = TRAFFIC_PAUSE_S if stall_s is None else min(TRAFFIC_PAUSE_S, stall_s / 4)
        self._slow_throttle = Throttle(GPU_SHARE, pause_s)
        self._utilisations: list[float] = []
        self._gpu_bytes: int | None = None

    def take_sample(self) -> Sample:
        """Take one sample."""
        t_s = time.monotonic() - self._started
        reading = self._meter.read()
        if self._gpu is not None and self._gpu_throttle.due():
            self._read_gpu(self._gpu)
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

    def _read_gpu(self, gpu: GpuMeter) -> None:
        with self._gpu_throttle.reading():
            gpu_sample = gpu.read(self._meter.members())
        self._gpu_bytes = gpu_sample.memory_bytes
        if gpu_sample.utilisation is not None:
            self._utilisations.append(gpu_sample.utilisation)

    @property
    def peak_rss_bytes(self) -> int:
        """Largest memory of all samples."""
        return max((sample.rss_bytes for sample in self.samples), default=0)

    @property
    def peak_gpu_bytes(self) -> int | None:
        """Largest GPU memory of all samples."""
        gpu_bytes = [sample.gpu_bytes for sample in self.samples if sample.gpu_bytes is not None]
        return max(gpu_bytes, default=None)

    @property
    def gpu_utilisation(self) -> float | None:
        """Mean over all readings of the GPU."""
        shares = self._utilisations
        return sum(shares) / len(shares) if shares else None

    @property
    def used_gpu(self) -> bool:
        """Whether a GPU was used; by memory where utilisation is not reported (MIG)."""
        if self._utilisations:
            return max(self._utilisations) >= GPU_USED
        return bool(self.peak_gpu_bytes)

    def with_peak(self, phase: Phase) -> Phase:
        """Return ``phase`` with its largest memory; see `voxcast.history.phase_peaks`."""
        t_s, rss_bytes = (
            [getattr(s, name) for s in self.samples] for name in ("t_s", "rss_bytes")
        )
        peak = phase_peak(t_s, rss_bytes, phase.start_s, phase.end_s)
        return dataclasses.replace(phase, peak_rss_bytes=peak)

    def write(self, folder: Path) -> None:
        """Write the samples as Parquet, or, on a machine without pyarrow, as lists in JSON.

        GPU memory is a column only where it was measured.
        """
        names = ["t_s", "rss_bytes", "cpu_s", *(["gpu_bytes"] if self._gpu is not None else [])]
        columns = {name: [getattr(sample, name) for sample in self.samples] for name in names}
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            write_json(folder / SAMPLES_JSON, columns)
            return
        types = {name: pyarrow.float64() if name in SECONDS else pyarrow.int64() for name in names}
        table = pyarrow.table(columns, schema=pyarrow.schema(list(types.items())))
        with (folder / SAMPLES_FILE).open("wb") as stream:  # pyarrow takes names of UTF-8 only
            pyarrow.parquet.write_table(table, stream)
