"""The subjects at the ends of the range, which show how well a model extrapolates.

A side is one end of one feature that decides about being out of range. The subjects beyond
`OUTER_SHARE` of it are held out, all their runs, and a model of the rest predicts them. The
features of tables of other tools are too many for that: one side then holds the subjects that are
least like all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.features.table import rows_of
from voxcast.models.distance import side_name
from voxcast.models.families.encoder import Encoder

if TYPE_CHECKING:
    from voxcast.models.point_model import InputLevel

OUTER_SHARE = 0.2  # of the subjects of each application
MOST_OUTER = 0.5  # where many subjects share the outermost value
MINIMUM_SUBJECTS = 10  # with fewer, the outermost hardly differ from the rest
OUTERMOST = "outermost"
# A machine, an allocation and a column of another tool are not at the end of a range of sizes.
NO_SIDE = ("allocation.", "host.", "column.")


def sides(table: pd.DataFrame, input_level: InputLevel = "volume") -> dict[str, np.ndarray]:
    """Return one mask of runs for each side that has subjects, by application.

    Parameters
    ----------
    table : DataFrame
        Training runs.

    Returns
    -------
    dict of str to ndarray of bool, shape (n_runs,)
        By name, see `voxcast.models.distance.side_name`. Empty with fewer than `MINIMUM_SUBJECTS`
        in every application. If no feature has a side, the mask of `outermost` alone.
    """
    masks: dict[str, np.ndarray] = {}
    for indices in _by_app(table):
        runs = table.iloc[indices]
        encoder = Encoder.fit(rows_of(runs), content=input_level == "volume")
        for name, low, high in encoder.ranges:
            if low == high or name.startswith(NO_SIDE):
                continue
            for is_high in (False, True):
                is_outer = _end(runs, name, is_high=is_high)
                if is_outer.any():
                    side = side_name(name, is_high=is_high)
                    mask = masks.setdefault(side, np.zeros(len(table), dtype=bool))
                    mask[indices] = is_outer
    if masks:
        return masks
    mask = outermost(table, input_level)
    return {OUTERMOST: mask} if mask.any() else {}


def _end(runs: pd.DataFrame, name: str, *, is_high: bool) -> np.ndarray:
    """Return the runs of the subjects at one end of a feature; none where no other would vary."""
    values = runs[name].astype(float) * (1.0 if is_high else -1.0)
    by_subject = values.groupby(runs["subject"].to_numpy()).max().dropna()
    limit = by_subject.quantile(1 - OUTER_SHARE, interpolation="lower")
    outer = by_subject.index[by_subject > limit]
    if outer.empty:  # many share the outermost value
        outer = by_subject.index[by_subject == by_subject.max()]
    is_outer = runs["subject"].isin(set(outer)).to_numpy()
    inside = values[~is_outer]
    if len(outer) > MOST_OUTER * len(by_subject) or inside.nunique() < 2:
        return np.zeros(len(runs), dtype=bool)
    return is_outer


def outermost(table: pd.DataFrame, input_level: InputLevel = "volume") -> np.ndarray:
    """Return a mask of the runs of subjects least like the rest, by application.

    The measure is the mean distance of a subject's features from their means, in standard
    deviations. No run is selected for applications with fewer than `MINIMUM_SUBJECTS`.

    Returns
    -------
    ndarray of bool, shape (n_runs,)
    """
    is_outer = np.zeros(len(table), dtype=bool)
    for indices in _by_app(table):
        subjects = table["subject"].iloc[indices]
        rows = rows_of(table.iloc[indices])
        x = Encoder.fit(rows, content=input_level == "volume").transform(rows)
        sd = x.std(axis=0)
        from_mean = np.abs(x - x.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
        by_subject = pd.Series(from_mean.mean(axis=1)).groupby(subjects.to_numpy()).mean()
        outer = by_subject.nlargest(round(OUTER_SHARE * len(by_subject))).index
        is_outer[indices] = subjects.isin(set(outer)).to_numpy()
    return is_outer


def _by_app(table: pd.DataFrame) -> list[np.ndarray]:
    """Return the positions of the runs of each application that has enough subjects."""
    apps = table["app"].to_numpy() if "app" in table else np.zeros(len(table))
    positions = [np.flatnonzero(apps == app) for app in pd.unique(apps)]
    return [p for p in positions if table["subject"].iloc[p].nunique() >= MINIMUM_SUBJECTS]
