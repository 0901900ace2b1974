"""What was seen of a run while it ran: samples, peaks, sums."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.files import write_json
from voxcast.history.run_folders import SAMPLES_FILE, SAMPLES_JSON
from voxcast.profiling.limits import Quiet
from voxcast.profiling.processes import Traffic
from voxcast.profiling.throttle import Throttle

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.profiling.gpu import GpuMeter
    from voxcast.profiling.meter import Meter
    from voxcast.records import Phase

GPU_SHARE = 0.01  # of a core
TRAFFIC_PAUSE_S = 1.0  # sums do not pass by unseen: a look a second will do
SECONDS = ("t_s", "cpu_s")  # the others are bytes
GPU_USED = 0.01  # utilisation, at one sample at least, of a run that used its GPU


@dataclass(frozen=True)
class Sample:
    """One instant of a run; `t_s` counts from its start, `cpu_s` is the tree's sum so far."""

    t_s: float
    rss_bytes: int
    cpu_s: float
    gpu_bytes: int | None = None


class Trace:
    """Looks at a run through its meters.

    Parameters
    ----------
    meter : Meter
        Of the run's processes.
    gpu : GpuMeter or None
        Of the GPUs, for a run that has some.
    started : float
        ``CLOCK_MONOTONIC`` at the start of the run.
    stall_s : float, optional
        Over how long a run that does nothing is noticed.
    """

    def __init__(
        self, meter: Meter, gpu: GpuMeter | None, started: float, stall_s: float | None = None
    ) -> None:
        self.samples: list[Sample] = []
        self.peak_threads = self.oom_kills = 0
        self.traffic = Traffic(0, 0, 0)
        self.quiet_s = 0.0
        self._meter, self._gpu, self._started = meter, gpu, started
        self._quiet = Quiet(stall_s)
        self._gpu_throttle = Throttle(GPU_SHARE)
        pause_s = TRAFFIC_PAUSE_S if stall_s is None else min(TRAFFIC_PAUSE_S, stall_s / 4)
        self._slow_throttle = Throttle(GPU_SHARE, pause_s)
        self._utilisations: list[float] = []
        self._gpu_bytes: int | None = None

    def look(self) -> Sample:
        """Take one sample."""
        t_s = time.monotonic() - self._started
        reading = self._meter.read()
        if self._gpu is not None and self._gpu_throttle.due():
            self._look_at_gpu(self._gpu)
        if self._slow_throttle.due():
            with self._slow_throttle.look():
                self.look_at_sums()
        busy = bool(self._utilisations) and self._utilisations[-1] >= GPU_USED
        moved = self.traffic.called_bytes + self.traffic.read_bytes + self.traffic.write_bytes
        self.quiet_s = self._quiet.seen(t_s, reading.cpu_s, moved, gpu_busy=busy)
        self.peak_threads = max(self.peak_threads, reading.threads)
        sample = Sample(t_s, reading.rss_bytes, reading.cpu_s, self._gpu_bytes)
        self.samples.append(sample)
        return sample

    def look_at_sums(self) -> None:
        """Bring what only adds up to its last state; also at the end, when nothing runs."""
        with contextlib.suppress(OSError):  # a group or process that has just gone
            self.traffic = self._meter.traffic()
            self.oom_kills = self._meter.oom_kills()

    def _look_at_gpu(self, gpu: GpuMeter) -> None:
        with self._gpu_throttle.look():
            seen = gpu.read(self._meter.members())
        self._gpu_bytes = seen.memory_bytes
        if seen.utilisation is not None:
            self._utilisations.append(seen.utilisation)

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
        """Mean over all looks at the GPU."""
        seen = self._utilisations
        return sum(seen) / len(seen) if seen else None

    @property
    def used_gpu(self) -> bool:
        """Whether a GPU was seen at work; by memory where utilisation is not told (MIG)."""
        if self._utilisations:
            return max(self._utilisations) >= GPU_USED
        return bool(self.peak_gpu_bytes)

    def with_peak(self, phase: Phase) -> Phase:
        """Return ``phase`` with the largest memory of the samples inside it."""
        inside = [s.rss_bytes for s in self.samples if phase.start_s <= s.t_s <= phase.end_s]
        return dataclasses.replace(phase, peak_rss_bytes=max(inside, default=None))

    def write(self, folder: Path) -> None:
        """Write the samples as Parquet, or, on a machine without pyarrow, as lists in JSON.

        GPU memory is a column only where it was looked at.
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
        pyarrow.parquet.write_table(table, folder / SAMPLES_FILE)
