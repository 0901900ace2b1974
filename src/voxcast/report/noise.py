"""The noise floor: how far repeats of the same run differ, and what numbers of CPUs change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.records import TARGETS
from voxcast.report.intervals import Interval, clustered_mean, counted, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

# Runs that agree in all of these are the same run, made again.
_CONFIGURATION = ["device", "node_type", "cpus", "gpus", "memory_bytes"]
_VOLUME = ["app", "app_version", "parameters_json", "volume_id", "scale", "host_class"]


@dataclass(frozen=True)
class Noise:
    """Coefficients of variation of repeats, in percent, pooled over what was repeated.

    Attributes
    ----------
    app, device, cpus : str, str, int, or None
        What it is of; None means pooled over all.
    cells, runs : int
        How many runs were repeated, and how often in all.
    cv : dict of str to Interval
        By target, with the 95 % interval of chi-squared.
    """

    app: str | None
    device: str | None
    cpus: int | None
    cells: int
    runs: int
    cv: dict[str, Interval]


@dataclass(frozen=True)
class Comparison:
    """One number of CPUs against the smallest one tried, paired by volume.

    Attributes
    ----------
    speedup : Interval
        Geometric mean of wall time with ``base_cpus`` over wall time with ``cpus``.
    cpu_ratio : Interval
        Geometric mean of CPU time with ``cpus`` over CPU time with ``base_cpus``.
    noise_percent : float or None
        CV of wall time of this application's repeats; None if nothing was repeated.
    pairs : DataFrame
        One row a volume: ``volume_id subject runtime_s speedup``.
    """

    app: str
    device: str
    base_cpus: int
    cpus: int
    speedup: Interval
    cpu_ratio: Interval
    noise_percent: float | None
    pairs: pd.DataFrame

    @property
    def differs(self) -> bool:
        """Whether wall time differs beyond chance and beyond what repeats differ by."""
        size = abs(math.log(self.speedup.value))
        return not self.speedup.covers(1.0) and size > math.log1p((self.noise_percent or 0) / 100)

    @property
    def verdict(self) -> str:
        """What may be said, as one sentence without a full stop."""
        cpus, ratio = counted(self.cpus, "CPU"), self.speedup.value
        against = f"{cpus} against {self.base_cpus}"
        measured = counted(self.speedup.subjects, "subject")
        if not self.speedup.known:
            return f"{against}: {ratio:.2f}× the speed on {measured}, too few to say more"
        bounds = f"{self.speedup.low:.2f} to {self.speedup.high:.2f}"
        noise = "which nobody measured"
        if self.noise_percent is not None:
            noise = f"of {percent(self.noise_percent)}"
        if self.differs and ratio > 1:
            return f"{cpus} are {ratio:.2f}× faster than {self.base_cpus} ({bounds}; {measured})"
        if self.differs:
            bounds = f"{1 / self.speedup.high:.2f} to {1 / self.speedup.low:.2f}"
            return (
                f"{cpus} are {1 / ratio:.2f}× slower than {self.base_cpus} ({bounds}; {measured})"
            )
        return (
            f"{against}: no difference beyond the repeat noise {noise} "
            f"({ratio:.2f}× the speed, {bounds}; {measured})"
        )


def repeat_noise(runs: pd.DataFrame, by: Sequence[str] = ()) -> list[Noise]:
    """Pool the scatter of repeats of completed runs.

    Parameters
    ----------
    runs : DataFrame
        Completed profiles.
    by : sequence of str
        Any of ``app``, ``device``, ``cpus``; nothing pools over all.

    Returns
    -------
    list of Noise
        Only of groups in which something was repeated; empty if nothing was.
    """
    cells = runs.groupby(_VOLUME + _CONFIGURATION, dropna=False)["cell_key"]
    repeated = runs[cells.transform("size") > 1]
    if repeated.empty:
        return []
    if not by:
        return [_pooled(repeated, {})]
    groups = repeated.groupby(list(by), sort=True)
    return [_pooled(own, dict(zip(by, key, strict=True))) for key, own in groups]


def _pooled(repeated: pd.DataFrame, of: dict[str, object]) -> Noise:
    from scipy.stats import chi2

    keys = [repeated[name] for name in _VOLUME + _CONFIGURATION]
    cells = repeated.groupby(keys, dropna=False).ngroups
    freedom = len(repeated) - cells
    cv = {}
    for target in TARGETS:
        logs = repeated[target].astype(float).clip(lower=1e-9).map(math.log)
        excess = logs - logs.groupby(keys, dropna=False).transform("mean")
        squares = float((excess**2).sum())
        low, high = (squares / float(chi2.ppf(p, freedom)) for p in (0.975, 0.025))
        cv[target] = Interval(
            _cv_percent(squares / freedom), _cv_percent(low), _cv_percent(high), cells
        )
    app, device, cpus = of.get("app"), of.get("device"), of.get("cpus")
    return Noise(
        None if app is None else str(app),
        None if device is None else str(device),
        None if cpus is None else int(str(cpus)),
        cells,
        len(repeated),
        cv,
    )


def _cv_percent(variance: float) -> float:
    # Of a log-normal quantity; the exponent is kept below where it would overflow.
    return 100 * math.sqrt(math.expm1(min(variance, 50.0)))


def compare_cpus(runs: pd.DataFrame) -> list[Comparison]:
    """Compare every number of CPUs with the smallest one, on the volumes that have both.

    ``runs`` are completed profiles; repeats of a run count as their geometric mean.
    """
    found = []
    for (app, device), own in runs.groupby(["app", "device"], sort=True):
        noise = repeat_noise(own)
        noise_percent = noise[0].cv["runtime_s"].value if noise else None
        logs = own.assign(
            wall=np.log(own["runtime_s"].clip(lower=1e-9)),
            cpu=np.log(own["cpu_s"].clip(lower=1e-9)),
        )
        cells = logs.groupby([*_VOLUME, "subject", "cpus"], as_index=False)[["wall", "cpu"]].mean()
        base_cpus = int(cells["cpus"].min())
        base = cells[cells["cpus"] == base_cpus].drop(columns="cpus")
        for cpus in sorted(set(cells["cpus"]) - {base_cpus}):
            other = cells[cells["cpus"] == cpus].drop(columns="cpus")
            both = base.merge(other, on=[*_VOLUME, "subject"], suffixes=("_base", "_other"))
            if both.empty:
                continue
            gain = both["wall_base"] - both["wall_other"]
            spent = both["cpu_other"] - both["cpu_base"]
            pairs = both[["volume_id", "subject"]].assign(
                runtime_s=np.exp(both["wall_base"]), speedup=np.exp(gain)
            )
            subjects = both["subject"].tolist()
            found.append(
                Comparison(
                    str(app),
                    str(device),
                    base_cpus,
                    int(cpus),
                    _exp(clustered_mean(gain, subjects)),
                    _exp(clustered_mean(spent, subjects)),
                    noise_percent,
                    pairs,
                )
            )
    return found


def _exp(logs: Interval) -> Interval:
    low, high = math.exp(logs.low), math.exp(logs.high)
    return Interval(math.exp(logs.value), low, high, logs.subjects)
