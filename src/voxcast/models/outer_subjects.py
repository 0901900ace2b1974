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
from voxcast.models.families.training_range import TrainingRange

if TYPE_CHECKING:
    from voxcast.models.point_model import InputLevel

OUTER_SHARE = 0.2  # of the subjects
MOST_OUTER = 0.5  # where many subjects share the outermost value
MINIMUM_SUBJECTS = 10  # with fewer, the outermost hardly differ from the rest
OUTERMOST = "outermost"
# A machine, an allocation and a column of another tool are not at the end of a range of sizes.
NO_SIDE = ("allocation.", "host.", "column.")


def sides(table: pd.DataFrame, input_level: InputLevel = "volume") -> dict[str, np.ndarray]:
    """Return one mask of runs for each side that has subjects.

    Parameters
    ----------
    table : DataFrame
        Training runs.

    Returns
    -------
    dict of str to ndarray of bool, shape (n_runs,)
        By name, see `voxcast.models.distance.side_name`. Empty with fewer than `MINIMUM_SUBJECTS`.
        If no feature has a side, the mask of `outermost` alone.
    """
    masks: dict[str, np.ndarray] = {}
    if table["subject"].nunique() < MINIMUM_SUBJECTS:
        return masks
    training_range = TrainingRange.fit(rows_of(table), content=input_level == "volume")
    for name, (low, high) in training_range.numbers.items():
        if low == high or name.startswith(NO_SIDE):
            continue
        for is_high in (False, True):
            is_outer = _end(table, name, is_high=is_high)
            if is_outer.any():
                masks[side_name(name, is_high=is_high)] = is_outer
    return masks or {OUTERMOST: outermost(table, input_level)}


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
    """Return a mask of the runs of subjects least like the rest.

    The measure is the mean distance of a subject's features from their means, in standard
    deviations.

    Returns
    -------
    ndarray of bool, shape (n_runs,)
    """
    rows = rows_of(table)
    x = Encoder.fit(rows, content=input_level == "volume").transform(rows)
    sd = x.std(axis=0)
    from_mean = np.abs(x - x.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    subjects = table["subject"].to_numpy()
    by_subject = pd.Series(from_mean.mean(axis=1)).groupby(subjects).mean()
    outer = by_subject.nlargest(round(OUTER_SHARE * len(by_subject))).index
    return np.isin(subjects, outer)
