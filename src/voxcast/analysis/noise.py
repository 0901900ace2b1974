"""The noise floor: the difference between repeats of the same run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.laws.intervals import Interval
from voxcast.records import TARGETS
from voxcast.runs.table import REPEATED, plain_repeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


# Mean absolute deviation of a normal quantity, of its standard deviation.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


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
    degrees_of_freedom : dict of str to int
        By target: runs minus cells, over the runs whose target was measured.
    """

    app: str | None
    device: str | None
    cpus: int | None
    scale: str | None
    host_class: str | None
    cells: int
    runs: int
    cv: dict[str, Interval]
    degrees_of_freedom: dict[str, int]

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
    cv, degrees_of_freedom = {}, {}
    for target in TARGETS:
        is_measured = repeated[target].notna()
        logs = repeated.loc[is_measured, target].astype(float).clip(lower=1e-9).map(math.log)
        groups = logs.groupby([key[is_measured] for key in keys], dropna=False)
        n_free = degrees_of_freedom[target] = len(logs) - groups.ngroups
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
        degrees_of_freedom=degrees_of_freedom,
        **names,
    )


def _cv_percent(variance: float) -> float:
    # CV of a log-normal quantity. The exponent is limited so that it cannot overflow.
    return 100 * math.sqrt(math.expm1(min(variance, 50.0)))
