"""Groups of runs that can be compared, the noise of their repeats, and how wall time varies.

A group is one application in one allocation, at one scale. The noise floor is the difference
between repeats of the same run. Wall time varies over images or settings: the distribution that is
closest, and the number of modes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.fits import Variation, rank_fits, variation
from voxcast.laws.intervals import Interval
from voxcast.records import TARGETS, Configuration
from voxcast.runs.table import REPEATED, once_each, plain_repeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

FULL_SCALE = "full_scale"
BOOTSTRAP = 200
QUANTILES = (0.05, 0.5, 0.95)
# Mean absolute deviation of a normal quantity, of its standard deviation.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class RunGroup:
    """The runs of one application in one allocation, at one scale."""

    app: str
    configuration: Configuration
    scale: str
    runs: pd.DataFrame


def by_configuration(runs: pd.DataFrame) -> list[RunGroup]:
    """Group a table of runs by application, allocation and scale, in this order.

    A table without a scale, such as predictions, is all at full scale.
    """
    scales = runs["scale"] if "scale" in runs.columns else runs["app"].map(lambda _: FULL_SCALE)
    groups = runs.groupby(["app", "device", "cpus", scales.rename("scale")], sort=True)
    return [
        RunGroup(str(app), Configuration(str(device), int(str(cpus))), str(scale), group)
        for (app, device, cpus, scale), group in groups
    ]


@dataclass(frozen=True)
class RepeatNoise:
    """Coefficients of variation of repeats, in percent, pooled over repeated cells.

    Attributes
    ----------
    app, device, cpus, scale, host_class : str, str, int, str, str, or None
        The group of runs; None means pooled over all.
    cells, runs : int
        Number of cells that were repeated, and number of runs of these cells.
    cv : dict of str to Interval
        By target. The 95 % interval follows chi-squared for the variance of logarithms.
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
        """Return the mean absolute error of a model that predicts the mean of the repeats.

        It is about the square root of 2/π times the CV, since repeats differ log-normally. This
        is the floor for models that do not know the momentary speed of the machine. With runs of
        `voxcast.runs.speed.at_usual_speed` it is the floor for errors that are
        speed-normalised, too; their coefficients come from other cells, so the interval holds.
        """
        return MEAN_ABSOLUTE * self.cv[target].value


def repeat_noise(runs: pd.DataFrame, by: Sequence[str] = ()) -> list[RepeatNoise]:
    """Pool the scatter of plain repeats of completed runs.

    Parameters
    ----------
    runs : DataFrame
        Completed profiles.
    by : sequence of str
        Any of ``app device cpus scale host_class``; an empty sequence pools over all runs.

    Returns
    -------
    list of RepeatNoise
        One for each group that has repeats; empty if there are none.
    """
    plain = plain_repeats(runs)
    cells = plain.groupby(REPEATED, dropna=False)["cell_key"]
    repeated = plain[cells.transform("size") > 1]
    if repeated.empty:
        return []
    if not by:
        return [_pooled(repeated, {})]
    groups = repeated.groupby(list(by), sort=True)
    return [_pooled(group, dict(zip(by, key, strict=True))) for key, group in groups]


def _pooled(repeated: pd.DataFrame, group_key: dict[str, object]) -> RepeatNoise:
    from scipy.stats import chi2

    keys = [repeated[name] for name in REPEATED]
    cells = repeated.groupby(keys, dropna=False).ngroups
    cv = {}
    for target in TARGETS:
        is_measured = repeated[target].notna()
        logs = repeated.loc[is_measured, target].astype(float).clip(lower=1e-9).map(math.log)
        groups = logs.groupby([key[is_measured] for key in keys], dropna=False)
        n_free = len(logs) - groups.ngroups
        if not n_free:
            cv[target] = Interval(math.nan, math.nan, math.nan, groups.ngroups)
            continue
        squares = float(((logs - groups.transform("mean")) ** 2).sum())
        low, high = (squares / float(chi2.ppf(p, n_free)) for p in (0.975, 0.025))
        cv[target] = Interval(
            _cv_percent(squares / n_free), _cv_percent(low), _cv_percent(high), groups.ngroups
        )
    names = {
        name: None if group_key.get(name) is None else str(group_key[name])
        for name in ("app", "device", "scale", "host_class")
    }
    return RepeatNoise(
        cpus=int(str(group_key["cpus"])) if "cpus" in group_key else None,
        cells=cells,
        runs=len(repeated),
        cv=cv,
        **names,
    )


def _cv_percent(variance: float) -> float:
    # CV of a log-normal quantity. The exponent is limited so that it cannot overflow.
    return 100 * math.sqrt(math.expm1(min(variance, 50.0)))


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
