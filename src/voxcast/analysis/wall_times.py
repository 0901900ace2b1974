"""How wall time varies over what was run: which law describes it, and how many modes it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.noise import repeat_noise
from voxcast.history.repeats import once_each
from voxcast.laws.fits import rank_fits
from voxcast.laws.variation import Variation, variation
from voxcast.records import Configuration
from voxcast.report.inputs import allocation

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        What its kind is called; empty if it has no name.
    of : {"volume", "setting"}
        What one value is of: a volume, where each was run in one setting; repeats count as
        their geometric mean.
    values_s : ndarray, shape (n,)
        Sorted.
    bootstrap_p : float or None
        Honest p of the closest law, see `voxcast.laws.fits`; None without a fit.
    noise : Interval or None
        CV of plain repeats in percent; None where nothing was repeated.
    """

    app: str
    configuration: Configuration
    scale: str
    machine: str
    of: str
    values_s: np.ndarray
    varied: Variation
    bootstrap_p: float | None
    noise: Interval | None

    @property
    def allocation(self) -> str:
        """Allocation, scale and machine, for people."""
        machine = f", {self.machine}" if self.machine else ""
        return f"{allocation(self.configuration, self.scale)}{machine}"

    @property
    def label(self) -> str:
        """Application, allocation, scale and machine, for people."""
        return f"{self.app}: {self.allocation}"


def wall_times(
    runs: pd.DataFrame, machines: Mapping[str, str] | None = None, seed: int = 0
) -> list[WallTimes]:
    """Describe how the wall time of completed ``runs`` varies, group by group.

    Parameters
    ----------
    runs : DataFrame
        Completed profiles; anchors do not count, nor disturbed runs that were made again.
    machines : mapping, optional
        What to call a kind of machine; one that is not in it is not named.
    seed : int
        Of the bootstrap.
    """
    found = []
    noises = repeat_noise(runs, by=("app", "device", "cpus", "scale", "host_class"))
    floors = {(n.app, n.device, n.cpus, n.scale, n.host_class): n.cv["runtime_s"] for n in noises}
    keys = ["app", "device", "cpus", "scale", "host_class"]
    for key, own in runs.groupby(keys, sort=True):
        app, device, cpus, scale, machine = map(str, key)
        each = once_each(own, "runtime_s")
        values = np.sort(each["runtime_s"].to_numpy(dtype=float))
        if not len(values):
            continue
        varied = variation(values, QUANTILES, seed=seed)
        best = varied.best_by_ks
        # The honest p is dear, and that of a law that is not the closest says little.
        fits = rank_fits(values, [best], bootstrap=BOOTSTRAP, seed=seed) if best else []
        found.append(
            WallTimes(
                app,
                Configuration(device, int(cpus)),
                scale,
                (machines or {}).get(machine, ""),
                "volume" if each["volume_id"].nunique() == len(each) else "setting",
                values,
                varied,
                fits[0].ks_p_bootstrap if fits else None,
                floors.get((app, device, int(cpus), scale, machine)),
            )
        )
    return found
