"""CPU against GPU: the same work on both, by application and by phase.

A pair is one piece of work (application, version, parameters, volume) that was run on both sides;
repeats count as their geometric mean. An application that has no run on the other device, but a
phase that was run there as an application of its own, is *composed*: its other phases as measured
on the CPU plus that phase as measured on the GPU. A composition is stated, never a measured run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.pricing import Prices
from voxcast.history.repeats import plain_repeats, settled
from voxcast.report.intervals import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

WHOLE = ""
# tile_segment declares its network as a phase; the same network is an application of its own.
COMPOSITIONS = {"tile_segment": ("network", "tile_segment_network")}
_WORK = ["app", "app_version", "parameters_json", "volume_id", "scale"]
_IMAGE = r"\+image[0-9a-f]{12}"  # see voxcast.apps.catalogue.app_version
_RESAMPLES = 2000


@dataclass(frozen=True)
class DeviceComparison:
    """One application, or one phase of it, on CPU and on GPU.

    Attributes
    ----------
    app, phase : str
        `phase` is empty for the whole run.
    scale : str
        Of both sides.
    cpus : int
        CPUs of the CPU side.
    composed : bool
        Whether the GPU side is a composition, see the module.
    hosts : tuple of str
        Hosts of the CPU side, then of the GPU side; one machine when they agree.
    pairs : DataFrame
        One row a piece of work: ``volume_id parameters_json cpu_s gpu_s speedup``, wall seconds,
        by increasing speed-up: those that gain least come first.
    speedup : Interval
        Geometric mean of CPU wall time over GPU wall time, with a 95 % bootstrap interval.
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
        scale = ", scaled down" if self.scale == "scaled_down" else ""
        cpus = f"{self.cpus} CPU{'s' if self.cpus != 1 else ''}"
        return f"{self.app}{scale}, {cpus}: {what}{', composed' if self.composed else ''}"

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
    compositions: Mapping[str, tuple[str, str]] | None = None,
    seed: int = 0,
) -> list[DeviceComparison]:
    """Compare CPU and GPU on all work that both have done.

    Parameters
    ----------
    runs : DataFrame
        Rows of the history; only completed ones count.
    phases : DataFrame
        Their phases, see `voxcast.history.schema.PHASE_DTYPES`.
    prices : Prices
        Of an hour.
    compositions : mapping, optional
        Application to (its phase, the application that is this phase alone).
    seed : int
        Of the bootstrap.
    """
    done = settled(runs[runs["outcome"] == "completed"]).assign(phase=WHOLE, start_s=0.0)
    # Each side may have a container of its own, whose digest is part of the version.
    done["app_version"] = done["app_version"].str.replace(_IMAGE, "", regex=True)
    by_phase = _by_phase(done, phases)
    found = []
    for (app, _), every in by_phase.groupby(["app", "scale"], sort=True):
        for phase in every.groupby("phase")["start_s"].median().sort_values().index:
            own = every[every["phase"] == phase]
            gpu, cpu = own[own["gpus"] > 0], own[own["gpus"] == 0]
            found += _against(cpu, gpu, prices, seed, composed=False)
        if app in (compositions or {}):
            cpu, gpu = _composed(every, by_phase, *(compositions or {})[str(app)])
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


def _composed(
    every: pd.DataFrame, by_phase: pd.DataFrame, phase: str, alone: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put together the GPU side of runs on a CPU: one phase of ``every`` is exchanged."""
    cpu = every[every["gpus"] == 0]
    own, part = cpu[cpu["phase"] == WHOLE], cpu[cpu["phase"] == phase]
    there = by_phase[(by_phase["app"] == alone) & (by_phase["gpus"] > 0)]
    there = there[there["scale"].isin(own["scale"])]
    network, whole = there[there["phase"] == phase], there[there["phase"] == WHOLE]
    if network.empty:
        return own, own[:0]
    spent_s = part.set_index("cell_key")["runtime_s"]
    rest_s = own["runtime_s"] - own["cell_key"].map(spent_s)
    gpu = own.assign(
        # One grid for all volumes, so one time: the median says it.
        runtime_s=rest_s + float(np.exp(_work(network)["log"]).median()),
        gpus=1,
        peak_gpu_bytes=whole["peak_gpu_bytes"].astype("float64").median(),
        host_id=", ".join(sorted(network["host_id"].unique())),
        host_class=", ".join(sorted(network["host_class"].unique())),
    )
    return own, gpu[gpu["runtime_s"].notna()]


def _against(
    cpu: pd.DataFrame, every_gpu: pd.DataFrame, prices: Prices, seed: int, *, composed: bool
) -> list[DeviceComparison]:
    found = []
    for cpus, side in cpu.groupby("cpus", sort=True):
        # A composition keeps the number of CPUs of the run it was made from.
        gpu = every_gpu[every_gpu["cpus"] == cpus] if composed else every_gpu
        # On the machine of the GPU, where it has CPU runs too: otherwise two machines differ.
        same = side[side["host_id"].isin(gpu["host_id"])]
        ours = same if len(same) else side
        both = _work(ours).merge(_work(gpu), on=_WORK, suffixes=("_cpu", "_gpu"))
        if both.empty:
            continue
        gain = both["log_cpu"] - both["log_gpu"]
        pairs = both[["volume_id", "parameters_json"]].assign(
            cpu_s=np.exp(both["log_cpu"]), gpu_s=np.exp(both["log_gpu"]), speedup=np.exp(gain)
        )
        gpu_cpus, gpus = int(gpu["cpus"].median()), int(gpu["gpus"].median())
        found.append(
            DeviceComparison(
                app=str(both["app"].iloc[0]),
                phase=str(side["phase"].iloc[0]),
                scale=str(side["scale"].iloc[0]),
                cpus=int(str(cpus)),
                composed=composed,
                hosts=(_hosts(ours), _hosts(gpu)),
                pairs=pairs.sort_values("speedup", kind="stable", ignore_index=True),
                speedup=bootstrap_ratio(gain.to_numpy(), seed),
                cv_percent=(_cv(ours), _cv(gpu) if not composed else float("nan")),
                memory_bytes=(_median(ours["peak_rss_bytes"]), _median(gpu["peak_gpu_bytes"])),
                usd=(
                    float(np.mean([prices.of(s, int(str(cpus)), 0) for s in pairs["cpu_s"]])),
                    float(np.mean([prices.of(s, gpu_cpus, gpus) for s in pairs["gpu_s"]])),
                ),
            )
        )
    return found


def bootstrap_ratio(logs: np.ndarray, seed: int) -> Interval:
    """Return the geometric mean of ratios, given their logarithms, with a 95 % interval.

    Percentiles of the mean over resampled pairs (Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 13).
    """
    mean = float(np.exp(logs.mean()))
    if len(logs) < 2:
        return Interval(mean, float("nan"), float("nan"), len(logs))
    rng = np.random.default_rng(seed)
    drawn = logs[rng.integers(len(logs), size=(_RESAMPLES, len(logs)))].mean(axis=1)
    low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
    return Interval(mean, float(low), float(high), len(logs))


def _work(side: pd.DataFrame) -> pd.DataFrame:
    logs = side.assign(log=np.log(side["runtime_s"].clip(lower=1e-6)))
    return logs.groupby(_WORK)["log"].mean().reset_index()


def _hosts(side: pd.DataFrame) -> str:
    return ", ".join(sorted(set(side["host_class"])))


def _cv(side: pd.DataFrame) -> float:
    side = plain_repeats(side)
    logs = np.log(side["runtime_s"].clip(lower=1e-6))
    groups = [side[name] for name in [*_WORK, "host_id"]]
    excess = logs - logs.groupby(groups).transform("mean")
    freedom = len(side) - logs.groupby(groups).ngroups
    return 100 * float(np.sqrt((excess**2).sum() / freedom)) if freedom else float("nan")


def _median(values: pd.Series) -> float:
    known = values.dropna()
    return float(known.astype("float64").median()) if len(known) else float("nan")
