"""The noise floor: how far repeats of the same run differ, and what numbers of CPUs change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.history.repeats import REPEATED, WORK, plain_repeats, settled
from voxcast.laws.intervals import Interval, clustered_mean
from voxcast.records import TARGETS
from voxcast.report.formatting import counted, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


@dataclass(frozen=True)
class Noise:
    """Coefficients of variation of repeats, in percent, pooled over what was repeated.

    Attributes
    ----------
    app, device, cpus, scale, host_class : str, str, int, str, str, or None
        What it is of; None means pooled over all.
    cells, runs : int
        How many runs were repeated, and how often in all.
    cv : dict of str to Interval
        By target, with the 95 % interval of chi-squared.
    """

    app: str | None
    device: str | None
    cpus: int | None
    scale: str | None
    host_class: str | None
    cells: int
    runs: int
    cv: dict[str, Interval]

    def error_percent(self, target: str) -> float:
        """Return the mean absolute error that a model without fault would be left with.

        Of repeats that differ log-normally, about the square root of 2/π times their CV.
        """
        return math.sqrt(2 / math.pi) * self.cv[target].value


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
        One row a piece of work: ``volume_id subject runtime_s speedup``.
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
    def label(self) -> str:
        """The application, and that it is scaled down if it is."""
        return self.app if self.scale == "full_scale" else f"{self.app}, scaled down"

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
        measured = counted(self.speedup.subjects, self._of)
        if not self.speedup.bounded:
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

    @property
    def _of(self) -> str:
        # Runs without an image are independent where their parameters differ.
        return "subject" if (self.pairs["subject"] != "").any() else "setting"


def repeat_noise(runs: pd.DataFrame, by: Sequence[str] = ()) -> list[Noise]:
    """Pool the scatter of plain repeats of completed runs.

    Parameters
    ----------
    runs : DataFrame
        Completed profiles.
    by : sequence of str
        Any of ``app device cpus scale host_class``; nothing pools over all.

    Returns
    -------
    list of Noise
        Only of groups in which something was repeated; empty if nothing was.
    """
    plain = plain_repeats(runs)
    cells = plain.groupby(REPEATED, dropna=False)["cell_key"]
    repeated = plain[cells.transform("size") > 1]
    if repeated.empty:
        return []
    if not by:
        return [_pooled(repeated, {})]
    groups = repeated.groupby(list(by), sort=True)
    return [_pooled(own, dict(zip(by, key, strict=True))) for key, own in groups]


def _pooled(repeated: pd.DataFrame, of: dict[str, object]) -> Noise:
    from scipy.stats import chi2

    keys = [repeated[name] for name in REPEATED]
    cells = repeated.groupby(keys, dropna=False).ngroups
    cv = {}
    for target in TARGETS:
        known = repeated[target].notna()
        logs = repeated.loc[known, target].astype(float).clip(lower=1e-9).map(math.log)
        own = [key[known] for key in keys]
        groups = logs.groupby(own, dropna=False)
        freedom = len(logs) - groups.ngroups
        if not freedom:
            cv[target] = Interval(math.nan, math.nan, math.nan, groups.ngroups)
            continue
        squares = float(((logs - groups.transform("mean")) ** 2).sum())
        low, high = (squares / float(chi2.ppf(p, freedom)) for p in (0.975, 0.025))
        cv[target] = Interval(
            _cv_percent(squares / freedom), _cv_percent(low), _cv_percent(high), groups.ngroups
        )
    texts = {
        name: None if of.get(name) is None else str(of[name])
        for name in ("app", "device", "scale", "host_class")
    }
    cpus = int(str(of["cpus"])) if "cpus" in of else None
    return Noise(cpus=cpus, cells=cells, runs=len(repeated), cv=cv, **texts)


def _cv_percent(variance: float) -> float:
    # Of a log-normal quantity; the exponent is kept below where it would overflow.
    return 100 * math.sqrt(math.expm1(min(variance, 50.0)))


def compare_cpus(runs: pd.DataFrame) -> list[Comparison]:
    """Compare every number of CPUs with the smallest one, on the volumes that have both.

    ``runs`` are completed profiles; repeats of a run count as their geometric mean.
    """
    found = []
    for (app, device, scale), every in runs.groupby(["app", "device", "scale"], sort=True):
        noise = repeat_noise(every)
        own = settled(every)
        noise_percent = noise[0].cv["runtime_s"].value if noise else None
        logs = own.assign(
            wall=np.log(own["runtime_s"].clip(lower=1e-9)),
            cpu=np.log(own["cpu_s"].clip(lower=1e-9)),
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
            spent = both["cpu_other"] - both["cpu_base"]
            pairs = both[["volume_id", "subject"]].assign(
                runtime_s=np.exp(both["wall_base"]), speedup=np.exp(gain)
            )
            subjects = both["subject"].where(both["subject"] != "", both["parameters_json"])
            found.append(
                Comparison(
                    str(app),
                    str(device),
                    str(scale),
                    base_cpus,
                    int(cpus),
                    _exp(clustered_mean(gain, subjects.tolist())),
                    _exp(clustered_mean(spent, subjects.tolist())),
                    noise_percent,
                    pairs,
                )
            )
    return found


def _exp(logs: Interval) -> Interval:
    low, high = math.exp(logs.low), math.exp(logs.high)
    return Interval(math.exp(logs.value), low, high, logs.subjects)
