"""CPU against GPU: the same work on both, by application and by phase.

A pair is one piece of work (application, version, parameters, volume) that was run on both sides;
repeats count as their geometric mean. An application that has no run on the other device, but a
phase that was run there as an application of its own, is *composed*, see
`voxcast.analysis.composed_runs`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.pricing import Prices
from voxcast.analysis.composed_runs import MACHINE, Composition, composed_sides
from voxcast.analysis.noise import repeat_noise
from voxcast.history.repeats import TASK, settled
from voxcast.laws.intervals import Interval
from voxcast.report.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

WHOLE = ""
_IMAGE = r"\+image[0-9a-f]{12}"  # see voxcast.apps.launch.app_version
_RESAMPLES = 2000
LEAST_SUBJECTS = 6  # of 5, even the widest bootstrap interval is one of 94 %


@dataclass(frozen=True)
class DeviceComparison:
    """One application, or one phase of it, on CPU and on GPU.

    Attributes
    ----------
    app, phase : str
        `phase` is empty for the whole run.
    scale : str
        Of both sides.
    cpus, gpu_cpus, gpus : int
        CPUs of the CPU side; CPUs and GPUs of the GPU side.
    composed : bool
        Whether the GPU side is a composition, see the module.
    hosts : tuple of str
        Host class of the CPU side, then of the GPU side; one machine when they agree.
    pairs : DataFrame
        One row a piece of work: ``volume_id parameters_json cpu_s gpu_s speedup``, wall seconds,
        by increasing speed-up: those that gain least come first.
    speedup : Interval
        Geometric mean of CPU wall time over GPU wall time, with a 95 % bootstrap interval over
        subjects. In a composition the GPU's part counts as known.
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
    composed: bool
    hosts: tuple[str, str]
    pairs: pd.DataFrame
    speedup: Interval
    cv_percent: tuple[float, float]
    memory_bytes: tuple[float, float]
    usd: tuple[float, float]

    @property
    def label(self) -> str:
        """What was compared, for people."""
        what = f"phase {self.phase}" if self.phase else "whole run"
        return f"{self.app}, {self.sides}: {what}{', composed' if self.composed else ''}"

    @property
    def sides(self) -> str:
        """Scale and allocations of both sides, for people."""
        sides = counted(self.cpus, "CPU")
        if (self.gpu_cpus, self.gpus) != (self.cpus, 1):
            sides += f" against {counted(self.gpus, 'GPU')} with {counted(self.gpu_cpus, 'CPU')}"
        return f"scaled down, {sides}" if self.scale == "scaled_down" else sides

    @property
    def machines(self) -> str:
        """Where both sides ran, for people."""
        cpu, gpu = self.hosts
        return cpu if cpu == gpu else f"{cpu} against {gpu}"

    def least(self, count: int, names: Mapping[str, str] | None = None) -> list[str]:
        """Say which pieces of work gain least, and how much.

        A piece is called by its volume, as ``names`` has it by its id, or by those parameters in
        which the pieces differ.
        """
        given = [json.loads(text) for text in self.pairs["parameters_json"]]
        several = [
            name
            for name in sorted({name for own in given for name in own})
            if len({json.dumps(own.get(name)) for own in given}) > 1
        ]
        said = []
        for row, own in zip(self.pairs.head(count).to_dict("records"), given, strict=False):
            volume = str(row["volume_id"])
            parts = [(names or {}).get(volume, volume)] * bool(volume)
            parts += [f"{name} {own[name]}" for name in several if name in own]
            said.append(f"{', '.join(parts) or 'its defaults'}: {row['speedup']:.3g}×")
        return said


def compare_devices(
    runs: pd.DataFrame,
    phases: pd.DataFrame,
    prices: Prices,
    *,
    compositions: Mapping[str, Composition] | None = None,
    seed: int = 0,
) -> list[DeviceComparison]:
    """Compare CPU and GPU on all work that both have done.

    Every allocation on a GPU stands against every number of CPUs, each on one kind of machine. A
    machine that has runs on both is compared with itself alone.

    Parameters
    ----------
    runs : DataFrame
        Rows of the history; only completed ones count.
    phases : DataFrame
        Their phases, see `voxcast.history.run_table.PHASE_DTYPES`.
    prices : Prices
        Of an hour.
    compositions : mapping, optional
        By application, see `voxcast.analysis.composed_runs`.
    seed : int
        Of the bootstrap.
    """
    done = settled(runs[runs["outcome"] == "completed"]).assign(phase=WHOLE, start_s=0.0)
    # Each side may have a container of its own, whose digest is part of the version.
    done["app_version"] = done["app_version"].str.replace(_IMAGE, "", regex=True)
    by_phase = _by_phase(done, phases)
    found = []
    for (app, scale), every in by_phase.groupby(["app", "scale"], sort=True):
        for phase in every.groupby("phase")["start_s"].median().sort_values().index:
            own = every[every["phase"] == phase]
            for cpu, gpu in _sides(own[own["gpus"] == 0], own[own["gpus"] > 0]):
                found += _against(cpu, gpu, prices, seed, composed=False)
        if app in (compositions or {}):
            composition = (compositions or {})[str(app)]
            own = every[(every["gpus"] == 0) & (every["phase"] == WHOLE)]
            alone = done[(done["app"] == composition.app) & (done["gpus"] > 0)]
            alone = alone[alone["scale"] == scale]
            for cpu, gpu in composed_sides(own, by_phase, alone, composition):
                found += _against(cpu, gpu, prices, seed, composed=True)
    # The run itself first, then its phases in their order.
    return sorted(found, key=lambda one: (one.app, one.scale, one.cpus, bool(one.phase)))


def missing_side(runs: pd.DataFrame) -> str | None:
    """Say in one sentence which side has no completed run; None if both have."""
    done = runs[runs["outcome"] == "completed"]
    if done.empty:
        return "no completed measured run is on record, so there is nothing to compare"
    for name, there in (("GPU", (done["gpus"] > 0).any()), ("CPU", (done["gpus"] == 0).any())):
        if not there:
            return f"no run on a {name} is on record, so there is nothing to compare"
    return None


def _by_phase(done: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Return runs, and below them their phases as if each were a run; what recurs is summed."""
    import pandas as pd

    times = phases.groupby(["cell_key", "phase"], as_index=False).agg(
        runtime_s=("duration_s", "sum"),
        start_s=("start_s", "min"),
        peak_rss_bytes=("peak_rss_bytes", "max"),
    )
    same = ["phase", "runtime_s", "start_s", "peak_rss_bytes"]
    timed = times.merge(done.drop(columns=same), on="cell_key")
    timed["peak_gpu_bytes"] = None  # of the run, not of its phases
    kinds = {"peak_rss_bytes": "Int64", "peak_gpu_bytes": "Int64"}
    return pd.concat([done.astype(kinds), timed.astype(kinds)], ignore_index=True)


def _sides(cpu: pd.DataFrame, gpu: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    for (machine, _, _), there in gpu.groupby(MACHINE, sort=True):
        same = cpu[cpu["host_class"] == machine]
        for _, side in (same if len(same) else cpu).groupby(["host_class", "cpus"], sort=True):
            yield side, there


def _against(
    cpu: pd.DataFrame, gpu: pd.DataFrame, prices: Prices, seed: int, *, composed: bool
) -> list[DeviceComparison]:
    """Compare two sides, each of one allocation on one kind of machine, if they share any work."""
    both = _work(cpu).merge(_work(gpu), on=TASK, suffixes=("_cpu", "_gpu"))
    if both.empty:
        return []
    # What the other side has not done says nothing here, of its noise and memory neither.
    cpu, gpu = cpu.merge(both[TASK], on=TASK), gpu.merge(both[TASK], on=TASK)
    first, other = cpu.iloc[0], gpu.iloc[0]
    gain = both["log_cpu"] - both["log_gpu"]
    pairs = both[["volume_id", "parameters_json"]].assign(
        cpu_s=np.exp(both["log_cpu"]), gpu_s=np.exp(both["log_gpu"]), speedup=np.exp(gain)
    )
    subjects = both["subject_cpu"].where(both["subject_cpu"] != "", both["parameters_json"])
    cpus, allocation = int(first["cpus"]), (int(other["cpus"]), int(other["gpus"]))
    return [
        DeviceComparison(
            app=str(first["app"]),
            phase=str(first["phase"]),
            scale=str(first["scale"]),
            cpus=cpus,
            gpu_cpus=allocation[0],
            gpus=allocation[1],
            composed=composed,
            hosts=(str(first["host_class"]), str(other["host_class"])),
            pairs=pairs.sort_values("speedup", kind="stable", ignore_index=True),
            speedup=bootstrap_ratio(gain.to_numpy(), subjects.tolist(), seed),
            cv_percent=(_cv(cpu), float("nan") if composed else _cv(gpu)),
            memory_bytes=(_median(cpu["peak_rss_bytes"]), _median(gpu["peak_gpu_bytes"])),
            usd=(
                float(np.mean([prices.of(s, cpus, 0) for s in pairs["cpu_s"]])),
                float(np.mean([prices.of(s, *allocation) for s in pairs["gpu_s"]])),
            ),
        )
    ]


def bootstrap_ratio(logs: np.ndarray, subjects: Sequence[str], seed: int) -> Interval:
    """Return the geometric mean of ratios, given their logarithms, with a 95 % interval.

    Percentiles of the mean over resampled subjects, with all that is of one subject (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). Of fewer than `LEAST_SUBJECTS`
    they would be far from 95 %, and none are given.
    """
    names, cluster = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    mean, n = float(np.exp(logs.mean())), len(names)
    if n < LEAST_SUBJECTS:
        return Interval(mean, float("nan"), float("nan"), n)
    sums, counts = np.bincount(cluster, weights=logs), np.bincount(cluster)
    chosen = np.random.default_rng(seed).integers(n, size=(_RESAMPLES, n))
    drawn = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
    return Interval(mean, float(low), float(high), n)


def _work(side: pd.DataFrame) -> pd.DataFrame:
    logs = side.assign(log=np.log(side["runtime_s"].clip(lower=1e-6)))
    return logs.groupby(TASK).agg(log=("log", "mean"), subject=("subject", "first")).reset_index()


def _cv(side: pd.DataFrame) -> float:
    noise = repeat_noise(side)
    return noise[0].cv["runtime_s"].value if noise else float("nan")


def _median(values: pd.Series) -> float:
    known = values.dropna()
    return float(known.astype("float64").median()) if len(known) else float("nan")
