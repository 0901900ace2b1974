"""The allocations of an application side by side, as they were measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import clustered_mean, exponential
from voxcast.runs.table import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.laws.intervals import Interval

_SIZE = ("gpus", "device", "cpus")  # a run without a GPU is smaller than one with
_WORK = ["app_version", "parameters_json", "volume_id"]


@dataclass(frozen=True)
class MeasuredAllocation:
    """Completed runs of an application in one allocation, on one kind of machine.

    Attributes
    ----------
    runs, subjects : int
        How many.
    runtime_s, cpu_s, peak_rss_bytes : float
        Medians; NaN where unknown.
    ratio : Interval or None
        Geometric mean of the runtime relative to the same work in the smallest allocation, with
        a 95 % interval over subjects (Student's t of logarithms). None for the smallest, and where
        no work was run in both.
    """

    app: str
    host_class: str
    device: str
    cpus: int
    gpus: int
    runs: int
    subjects: int
    runtime_s: float
    cpu_s: float
    peak_rss_bytes: float
    ratio: Interval | None


def measured_allocations(runs: pd.DataFrame) -> Iterator[MeasuredAllocation]:
    """Yield the allocations of each application and kind of machine, the smallest first.

    Parameters
    ----------
    runs : DataFrame
        As `voxcast.runs.table`. Scaled-down and disturbed runs are left out.
    """
    wanted = (runs["outcome"] == "completed") & (runs["scale"] != "scaled_down")
    usable = settled(runs[wanted & (runs["runtime_s"] > 0)])
    for (app, host_class), of_app in usable.groupby(["app", "host_class"], sort=True):
        smallest: pd.DataFrame | None = None
        for gpus, device, cpus in sorted(set(zip(*(of_app[n] for n in _SIZE), strict=True))):
            has_size = (of_app["gpus"] == gpus) & (of_app["device"] == device)
            of_size = of_app[has_size & (of_app["cpus"] == cpus)]
            yield MeasuredAllocation(
                str(app), str(host_class), str(device), int(cpus), int(gpus),
                len(of_size), int(of_size["subject"].nunique()),
                _median(of_size["runtime_s"]), _median(of_size["cpu_s"]),
                _median(of_size["peak_rss_bytes"]),
                None if smallest is None else _ratio(of_size, smallest),
            )  # fmt: skip
            smallest = of_size if smallest is None else smallest


def _median(values: pd.Series) -> float:
    numbers = values.to_numpy(dtype=float, na_value=np.nan)
    numbers = numbers[np.isfinite(numbers)]
    return float(np.median(numbers)) if len(numbers) else math.nan


def _ratio(runs: pd.DataFrame, smallest: pd.DataFrame) -> Interval | None:
    logs, reference = (
        np.log(frame["runtime_s"]).groupby([frame[name] for name in (*_WORK, "subject")]).mean()
        for frame in (runs, smallest)
    )
    differences = (logs - reference).dropna()
    if differences.empty:
        return None
    subjects = differences.index.get_level_values("subject").tolist()
    return exponential(clustered_mean(differences.to_numpy(), subjects))
