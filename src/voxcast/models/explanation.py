"""Explanation of a prediction: its change when one feature is set to its median.

Columns that carry the same information, such as voxels and their logarithm, change together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.features.rows import Row
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.query import Query

COUNT = 3
NEGLIGIBLE = 0.005  # of the logarithm: rounds to 0 per cent


@dataclass(frozen=True)
class Reason:
    """A feature that changed a prediction.

    Attributes
    ----------
    name : str
        Name without prefix, unit and scale, such as ``foreground_voxels``.
    factor : float
        The prediction divided by that at the usual value.
    value, usual : float
        Value of one of its columns in the query, and its median over the training runs.
    """

    name: str
    factor: float
    value: float
    usual: float


def explain(
    forecaster: Forecaster,
    query: Query,
    *,
    target: str = "runtime_s",
    count: int = COUNT,
) -> list[Reason]:
    """Return the features that changed a prediction most, largest change first.

    The small volume is not changed.
    """
    row, medians = query.features, forecaster.medians(query)
    groups: dict[str, list[str]] = {}
    for name in medians:
        if isinstance(row.get(name), int | float) and row[name] != medians[name]:
            groups.setdefault(stem(name), []).append(name)
    changed = [
        replace(query, features={**row, **{name: medians[name] for name in names}})
        for names in groups.values()
    ]
    predictions = forecaster.predict([query, *changed])
    predicted, *others = (prediction.quantiles[target][1] for prediction in predictions)
    reasons = [
        Reason(name, predicted / other, *_values(row, medians, names))
        for (name, names), other in zip(groups.items(), others, strict=True)
    ]
    moved = [reason for reason in reasons if abs(np.log(reason.factor)) > NEGLIGIBLE]
    return sorted(moved, key=lambda reason: -abs(np.log(reason.factor)))[:count]


def stem(name: str) -> str:
    """Return the quantity of a column, without unit and scale.

    Examples
    --------
    >>> {stem(n) for n in ("header.log_voxels", "header.megavoxels", "header.log_working_voxels")}
    {'voxels'}
    >>> stem("content.log_foreground_ml"), stem("allocation.log2_cpus")
    ('foreground_voxels', 'cpus')
    """
    plain = name.partition(".")[2] or name
    plain = re.sub(r"^log2?[_ ]", "", plain).replace("working_", "").replace("mega", "")
    return re.sub(r"_ml$", "_voxels", plain)


def _values(row: Row, medians: Mapping[str, float], names: Sequence[str]) -> tuple[float, float]:
    column = min(names, key=lambda name: ("log" in name, name))  # not a logarithm, if possible
    return float(row[column]), float(medians[column])
