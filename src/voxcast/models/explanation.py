"""Why a prediction is what it is: how much it would differ with one feature at its median.

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
NEGLIGIBLE = 0.005  # of the logarithm: what rounds to no per cent


@dataclass(frozen=True)
class Reason:
    """A feature that moved a prediction.

    Attributes
    ----------
    name : str
        Such as ``foreground_voxels``.
    factor : float
        The prediction over that with the usual value.
    value, usual : float
        Of one of its columns: in the query, and the median of the training runs.
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
    """Return the features that moved a prediction most, largest first.

    The small volume stays as it is.
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
    actual, *others = (prediction.quantiles[target][1] for prediction in predictions)
    reasons = [
        Reason(name, actual / other, *_values(row, medians, names))
        for (name, names), other in zip(groups.items(), others, strict=True)
    ]
    moved = [reason for reason in reasons if abs(np.log(reason.factor)) > NEGLIGIBLE]
    return sorted(moved, key=lambda reason: -abs(np.log(reason.factor)))[:count]


def stem(name: str) -> str:
    """Return the quantity of a column, whatever its unit or scale.

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
    first = min(names, key=lambda name: ("log" in name, name))  # a plain number, if there is one
    return float(row[first]), float(medians[first])
