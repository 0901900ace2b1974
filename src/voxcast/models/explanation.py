"""Why a prediction is what it is: by how much it would differ were one thing as it usually is.

What says the same in two columns, such as voxels and their logarithm, is changed together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.features.rows import Row
    from voxcast.models.forecaster import Forecaster

SHOWN = 3
LEAST = 0.005  # of the logarithm: what rounds to no per cent moved nothing


@dataclass(frozen=True)
class Reason:
    """One thing that moved a prediction.

    Attributes
    ----------
    name : str
        Such as ``foreground_voxels``.
    factor : float
        What the prediction is, over what it would be with the usual value.
    value, usual : float
        Of one of its columns, as the model sees it.
    """

    name: str
    factor: float
    value: float
    usual: float


def explain(
    forecaster: Forecaster,
    row: Row,
    cpus: int,
    volume: np.ndarray | None,
    *,
    target: str = "runtime_s",
    host_class: str | None = None,
    shown: int = SHOWN,
) -> list[Reason]:
    """Return what moved a prediction most, largest first.

    Parameters
    ----------
    row : Row
        Features of the run, see `voxcast.models.forecaster.Forecaster.predict`.
    volume : ndarray or None
        Its small volume, which stays as it is.
    """
    usual = forecaster.usual(row, volume)
    groups: dict[str, list[str]] = {}
    for name in usual:
        if isinstance(row.get(name), int | float) and row[name] != usual[name]:
            groups.setdefault(stem(name), []).append(name)
    changed = [row, *({**row, **{n: usual[n] for n in names}} for names in groups.values())]
    said = forecaster.predict(
        changed, [cpus] * len(changed), [volume] * len(changed),
        host_classes=[host_class] * len(changed),
    )  # fmt: skip
    medians = [one.quantiles[target][1] for one in said]
    reasons = [
        Reason(name, medians[0] / median, *_shown(row, usual, names))
        for (name, names), median in zip(groups.items(), medians[1:], strict=True)
    ]
    moved = [one for one in reasons if abs(np.log(one.factor)) > LEAST]
    return sorted(moved, key=lambda one: -abs(np.log(one.factor)))[:shown]


def stem(name: str) -> str:
    """Return what a column is about, however it is written.

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


def _shown(row: Row, usual: Mapping[str, float], names: Sequence[str]) -> tuple[float, float]:
    first = min(names, key=lambda name: ("log" in name, name))  # a plain number, if there is one
    return float(row[first]), float(usual[first])
