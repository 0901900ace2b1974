"""Speed-up by number of CPUs, on the work that was run with both numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.noise import repeat_noise
from voxcast.laws.intervals import clustered_mean, exponential
from voxcast.runs.table import WORK, settled

if TYPE_CHECKING:
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
        settled_runs = settled(group)
        noise_percent = noise[0].cv["runtime_s"].value if noise else None
        logs = settled_runs.assign(
            wall=np.log(settled_runs["runtime_s"].clip(lower=1e-9)),
            cpu=np.log(settled_runs["cpu_s"].clip(lower=1e-9)),
        )
        cells = logs.groupby([*WORK, "subject", "cpus"], as_index=False)[["wall", "cpu"]].mean()
        base_cpus = int(cells["cpus"].min())
        base = cells[cells["cpus"] == base_cpus].drop(columns="cpus")
        for cpus in sorted(set(cells["cpus"]) - {base_cpus}):
            other = cells[cells["cpus"] == cpus].drop(columns="cpus")
            both = base.merge(other, on=[*WORK, "subject"], suffixes=("_base", "_other"))
            if both.empty:
                continue
            gain = both["wall_base"] - both["wall_other"]
            extra_cpu = both["cpu_other"] - both["cpu_base"]
            pairs = both[["volume_id", "subject"]].assign(
                runtime_s=np.exp(both["wall_base"]), speedup=np.exp(gain)
            )
            # Runs without an image are independent where their parameters differ.
            subjects = both["subject"].where(both["subject"] != "", both["parameters_json"])
            comparisons.append(
                CpuComparison(
                    str(app),
                    str(device),
                    str(scale),
                    base_cpus,
                    int(cpus),
                    exponential(clustered_mean(gain, subjects.tolist())),
                    exponential(clustered_mean(extra_cpu, subjects.tolist())),
                    noise_percent,
                    pairs,
                )
            )
    return comparisons
