"""Groups of runs that can be compared: one application in one allocation, at one scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.records import Configuration

if TYPE_CHECKING:
    import pandas as pd

FULL_SCALE = "full_scale"


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
