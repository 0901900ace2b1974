"""CPU against GPU: the same work on both devices, by application and by phase.

A pair is one piece of work (application, version, parameters, volume) that was run on both sides;
repeats count as their geometric mean.

Speed-up by number of CPUs, on the work that was run with both numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.site import Prices
from voxcast.analysis.run_groups import repeat_noise
from voxcast.laws.intervals import clustered_mean, exponential
from voxcast.runs.table import TASK, WORK, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.laws.intervals import Interval


@dataclass(frozen=True)
class CpuComparison:
    """One number of CPUs compared with the smallest number measured, paired by work.

    Attributes
    ----------
    speedup : Interval
        Geometric mean of wall time with ``base_cpus`` over wall time with ``cpus``.
    cpu_ratio : Interval
        Geometric mean of CPU time with ``cpus`` over CPU time with ``base_cpus``.
    noise_percent : float or None
        CV of wall time of this application's repeats; None if nothing was repeated.
    pairs : DataFrame
        One row for each piece of work: ``volume_id subject runtime_s speedup``.
    """

    app: str
    device: str
    scale: str
    base_cpus: int
    cpus: int
    speedup: Interval
    cpu_ratio: Interval
    noise_percent: float | None
    pairs: pd.DataFrame

    @property
    def differs(self) -> bool:
        """Whether wall time differs significantly and by more than the repeat noise."""
        log_ratio = abs(math.log(self.speedup.value))
        noise = math.log1p((self.noise_percent or 0) / 100)
        return not self.speedup.covers(1.0) and log_ratio > noise

    @property
    def has_images(self) -> bool:
        """Whether the application processes images; otherwise its settings are the units."""
        return bool((self.pairs["subject"] != "").any())


def compare_cpus(runs: pd.DataFrame) -> list[CpuComparison]:
    """Compare every number of CPUs with the smallest one, on the work that was run with both.

    ``runs`` are completed profiles. Repeats of a run count as their geometric mean.
    """
    comparisons = []
    for (app, device, scale), group in runs.groupby(["app", "device", "scale"], sort=True):
        noise = repeat_noise(group)
        noise_percent = noise[0].cv["runtime_s"].value if noise else None
        by_cpus = {int(str(cpus)): side for cpus, side in settled(group).groupby("cpus")}
        base_cpus, *others = by_cpus
        for cpus in others:
            both = _paired(by_cpus[base_cpus], by_cpus[cpus], WORK)
            if both.empty:
                continue
            gain, subjects = both["wall_first"] - both["wall_second"], both["unit"].tolist()
            pairs = both[["volume_id", "subject"]].assign(
                runtime_s=np.exp(both["wall_first"]), speedup=np.exp(gain)
            )
            cpu_gain = both["cpu_second"] - both["cpu_first"]
            comparisons.append(
                CpuComparison(
                    str(app),
                    str(device),
                    str(scale),
                    base_cpus,
                    cpus,
                    exponential(clustered_mean(gain, subjects)),
                    exponential(clustered_mean(cpu_gain, subjects)),
                    noise_percent,
                    pairs,
                )
            )
    return comparisons


def _paired(first: pd.DataFrame, second: pd.DataFrame, work: list[str]) -> pd.DataFrame:
    """Return the pieces of work that both sides ran, with logarithms of their mean times.

    ``unit`` is independent: subjects, or parameters of runs without an image.
    """
    sides = [
        side.assign(
            wall=np.log(side["runtime_s"].clip(lower=1e-9)),
            cpu=np.log(side["cpu_s"].clip(lower=1e-9)),
        )
        .groupby(work)
        .agg(wall=("wall", "mean"), cpu=("cpu", "mean"), subject=("subject", "first"))
        .reset_index()
        for side in (first, second)
    ]
    both = sides[0].merge(
        sides[1].drop(columns="subject"), on=work, suffixes=("_first", "_second")
    )
    return both.assign(unit=both["subject"].where(both["subject"] != "", both["parameters_json"]))


MACHINE = ["host_class", "cpus", "gpus"]
WHOLE_RUN = ""  # in place of the name of a phase
_IMAGE = r"\+image[0-9a-f]{12}"  # see voxcast.apps.app.app_version


@dataclass(frozen=True)
class DeviceComparison:
    """One application, or one phase of it, on CPU and on GPU.

    Attributes
    ----------
    app, phase : str
        `phase` is empty for the whole run.
    scale : str
        Scale of both sides.
    cpus, gpu_cpus, gpus : int
        CPUs of the CPU side; CPUs and GPUs of the GPU side.
    hosts : tuple of str
        Host class of the CPU side, then of the GPU side; equal if both ran on one kind of machine.
    pairs : DataFrame
        One row for each piece of work: ``volume_id parameters_json cpu_s gpu_s speedup``, wall
        seconds, sorted by increasing speed-up.
    speedup : Interval
        Geometric mean of CPU wall time over GPU wall time, with a 95 % interval over subjects
        (Student's t of logarithms).
    cv_percent : tuple of float
        Coefficient of variation of repeats' wall time on CPU and on GPU; NaN without repeats.
    memory_bytes : tuple of float
        Median peak memory of the CPU side and median peak GPU memory of the GPU side.
    usd : tuple of float
        Mean cost of one piece of work on CPU and on GPU.
    """

    app: str
    phase: str
    scale: str
    cpus: int
    gpu_cpus: int
    gpus: int
    hosts: tuple[str, str]
    pairs: pd.DataFrame
    speedup: Interval
    cv_percent: tuple[float, float]
    memory_bytes: tuple[float, float]
    usd: tuple[float, float]


def compare_devices(
    runs: pd.DataFrame, phases: pd.DataFrame, prices: Prices
) -> list[DeviceComparison]:
    """Compare CPU and GPU on all work that was run on both.

    Every allocation on a GPU is compared with every number of CPUs, each on one kind of machine.
    A machine that has runs on both devices is compared with itself only.

    Parameters
    ----------
    runs : DataFrame
        Rows of the history; only completed runs count.
    phases : DataFrame
        Their phases, see `voxcast.runs.table.PHASE_DTYPES`.
    prices : Prices
        Prices of an hour.
    """
    completed = settled(runs[runs["outcome"] == "completed"])
    completed = completed.assign(phase=WHOLE_RUN, start_s=0.0)
    # The sides may have different containers, whose digests are part of the version.
    completed["app_version"] = completed["app_version"].str.replace(_IMAGE, "", regex=True)
    by_phase = _by_phase(completed, phases)
    comparisons = []
    for _, group in by_phase.groupby(["app", "scale"], sort=True):
        for phase in group.groupby("phase")["start_s"].median().sort_values().index:
            timed = group[group["phase"] == phase]
            for cpu, gpu in _sides(timed[timed["gpus"] == 0], timed[timed["gpus"] > 0]):
                comparisons += _compared(cpu, gpu, prices)
    # The whole run first, then its phases in their order.
    return sorted(comparisons, key=lambda c: (c.app, c.scale, c.cpus, bool(c.phase)))


def _by_phase(completed: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Return the runs followed by their phases, each summed over its occurrences in a run."""
    import pandas as pd

    times = phases.groupby(["cell_key", "phase"], as_index=False).agg(
        runtime_s=("duration_s", "sum"),
        start_s=("start_s", "min"),
        peak_rss_bytes=("peak_rss_bytes", "max"),
    )
    replaced_columns = ["phase", "runtime_s", "start_s", "peak_rss_bytes"]
    timed = times.merge(completed.drop(columns=replaced_columns), on="cell_key")
    timed["peak_gpu_bytes"] = None  # measured for the run, not for its phases
    dtypes = {"peak_rss_bytes": "Int64", "peak_gpu_bytes": "Int64"}
    return pd.concat([completed.astype(dtypes), timed.astype(dtypes)], ignore_index=True)


def _sides(cpu: pd.DataFrame, gpu: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    for (machine, _, _), gpu_side in gpu.groupby(MACHINE, sort=True):
        on_same_machine = cpu[cpu["host_class"] == machine]
        candidates = on_same_machine if len(on_same_machine) else cpu
        for _, cpu_side in candidates.groupby(["host_class", "cpus"], sort=True):
            yield cpu_side, gpu_side


def _compared(cpu: pd.DataFrame, gpu: pd.DataFrame, prices: Prices) -> list[DeviceComparison]:
    """Compare two sides, each of one allocation on one kind of machine, if they share any work."""
    both = _paired(cpu, gpu, TASK)
    if both.empty:
        return []
    # Work that was run on one side only is excluded from noise and memory too.
    cpu, gpu = cpu.merge(both[TASK], on=TASK), gpu.merge(both[TASK], on=TASK)
    cpu_run, gpu_run = cpu.iloc[0], gpu.iloc[0]
    gain = both["wall_first"] - both["wall_second"]
    pairs = both[["volume_id", "parameters_json"]].assign(
        cpu_s=np.exp(both["wall_first"]), gpu_s=np.exp(both["wall_second"]), speedup=np.exp(gain)
    )
    cpus, allocation = int(cpu_run["cpus"]), (int(gpu_run["cpus"]), int(gpu_run["gpus"]))
    return [
        DeviceComparison(
            app=str(cpu_run["app"]),
            phase=str(cpu_run["phase"]),
            scale=str(cpu_run["scale"]),
            cpus=cpus,
            gpu_cpus=allocation[0],
            gpus=allocation[1],
            hosts=(str(cpu_run["host_class"]), str(gpu_run["host_class"])),
            pairs=pairs.sort_values("speedup", kind="stable", ignore_index=True),
            speedup=exponential(clustered_mean(gain, both["unit"].tolist())),
            cv_percent=(_cv(cpu), _cv(gpu)),
            memory_bytes=(_median(cpu["peak_rss_bytes"]), _median(gpu["peak_gpu_bytes"])),
            usd=(
                float(np.mean([prices.of(s, cpus, 0) for s in pairs["cpu_s"]])),
                float(np.mean([prices.of(s, *allocation) for s in pairs["gpu_s"]])),
            ),
        )
    ]


def _cv(side: pd.DataFrame) -> float:
    noise = repeat_noise(side)
    return noise[0].cv["runtime_s"].value if noise else float("nan")


def _median(values: pd.Series) -> float:
    measured = values.dropna()
    return float(measured.astype("float64").median()) if len(measured) else float("nan")
