"""Explanation of a prediction: its change when one feature is set to its usual value.

Columns that carry the same information, such as voxels and their logarithm, change together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.descriptions import change, natural, plain_name, plainest, stem, usual

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.features.rows import Row
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.query import Query


COUNT = 3
CPUS = "allocation.log2_cpus"
NEGLIGIBLE = 0.005  # of the logarithm: rounds to 0 per cent


@dataclass(frozen=True)
class Reason:
    """A feature that changed a prediction.

    Attributes
    ----------
    name : str
        Name of the quantity, such as ``foreground_voxels``.
    factor : float
        The prediction divided by that at the usual value.
    value, usual : float
        Its value in the query and its median over the training runs, in the unit of the quantity:
        voxels, CPUs.
    text : str
        The same as a phrase.
    """

    name: str
    factor: float
    value: float
    usual: float
    text: str


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
    row = query.features
    usual_row = {name: usual(name, value) for name, value in forecaster.medians(query).items()}
    groups: dict[str, list[str]] = {}
    for name, value in usual_row.items():
        if isinstance(row.get(name), int | float) and row[name] != value:
            groups.setdefault(stem(name), []).append(name)
    changed = [_with_usual(query, usual_row, names) for names in groups.values()]
    (answer,) = forecaster.predict([query])
    predicted, *others = (
        prediction.quantiles[target][1] for prediction in [answer, *forecaster.predict(changed)]
    )
    reasons = [
        _reason(plainest(names), predicted / other, row, usual_row)
        for names, other in zip(groups.values(), others, strict=True)
    ]
    moved = [reason for reason in reasons if abs(np.log(reason.factor)) > NEGLIGIBLE]
    return sorted(moved, key=lambda reason: -abs(np.log(reason.factor)))[:count]


def _with_usual(query: Query, usual_row: Mapping[str, float], names: Sequence[str]) -> Query:
    features = {**query.features, **{name: usual_row[name] for name in names}}
    if CPUS in names:  # wall time follows the slowdown law, which has the number of its own
        return replace(query, features=features, cpus=round(natural(CPUS, usual_row[CPUS])))
    return replace(query, features=features)


def _reason(column: str, factor: float, row: Row, usual_row: Mapping[str, float]) -> Reason:
    name = plain_name(column)
    values = natural(column, float(row[column])), natural(column, usual_row[column])
    return Reason(name, factor, *values, change(name, factor, *values))
