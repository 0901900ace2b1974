"""How wall time varies over images or settings: closest distribution and number of modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.noise import repeat_noise
from voxcast.laws.fits import Variation, rank_fits, variation
from voxcast.records import Configuration
from voxcast.runs.table import once_each

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.laws.intervals import Interval

BOOTSTRAP = 200
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class WallTimes:
    """Wall times of one application in one allocation, at one scale, on one kind of machine.

    Attributes
    ----------
    machine : str
        Host class.
    unit : {"volume", "setting"}
        Unit of a value: a volume if every volume was run with a single setting. Repeats count as
        their geometric mean.
    values_s : ndarray, shape (n,)
        Sorted.
    bootstrap_p : float or None
        Bootstrap p-value of the closest distribution, see `voxcast.laws.fits`; None without a fit.
    noise : Interval or None
        CV of plain repeats in percent; None if nothing was repeated.
    """

    app: str
    configuration: Configuration
    scale: str
    machine: str
    unit: str
    values_s: np.ndarray
    varied: Variation
    bootstrap_p: float | None
    noise: Interval | None


def wall_times(runs: pd.DataFrame, seed: int = 0) -> list[WallTimes]:
    """Describe how the wall time of completed ``runs`` varies in each group of runs.

    Parameters
    ----------
    runs : DataFrame
        Completed profiles. Anchors do not count, nor do disturbed runs that were repeated.
    seed : int
        Seed of the bootstrap.
    """
    groups = []
    keys = ["app", "device", "cpus", "scale", "host_class"]
    noise_by_key = {
        (noise.app, noise.device, noise.cpus, noise.scale, noise.host_class): noise.cv["runtime_s"]
        for noise in repeat_noise(runs, by=keys)
    }
    for key, group in runs.groupby(keys, sort=True):
        app, device, cpus, scale, machine = map(str, key)
        unique_runs = once_each(group, "runtime_s")
        values = np.sort(unique_runs["runtime_s"].to_numpy(dtype=float))
        if not len(values):
            continue
        varied = variation(values, QUANTILES, seed=seed)
        best = varied.best_by_ks
        # The bootstrap is expensive, so only the closest distribution gets one.
        fits = rank_fits(values, [best], bootstrap=BOOTSTRAP, seed=seed) if best else []
        groups.append(
            WallTimes(
                app,
                Configuration(device, int(cpus)),
                scale,
                machine,
                "volume" if unique_runs["volume_id"].nunique() == len(unique_runs) else "setting",
                values,
                varied,
                fits[0].ks_p_bootstrap if fits else None,
                noise_by_key.get((app, device, int(cpus), scale, machine)),
            )
        )
    return groups
