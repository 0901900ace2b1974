"""Floors: the error that repeats of the same run leave to any model, by protocol.

The logarithms of two runs of one cell differ by noise, and on two days also by the speed of the
machine. Half the mean square of the differences is the variance of one run that no model can
predict; the mean error of the best model is about √(2/π) times its standard deviation, as
logarithms are about normal.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.evaluation.protocols import Protocol

MINIMUM_PAIRS = 5
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)  # deviation of a normal quantity, of its standard deviation


def floor_percent(runs: pd.DataFrame, target: str, protocol: Protocol) -> float:
    """Return the floor of the mean absolute percentage error; NaN if too little was repeated.

    Parameters
    ----------
    runs : DataFrame
        The runs that are judged, with ``cell`` (equal for repeats), ``sitting``, ``day`` and the
        target.
    protocol : Protocol
        With local runs the speed is known as well as they can tell it, by the variances of noise
        and of days. One new machine does not show how much machines differ: there is no
        floor without local runs, and with them it is the noise of the run and of these.
    """
    within, between = _variance(runs, target), _variance(runs, target, apart=True)
    if protocol.place == "known sitting":
        return 100 * MEAN_ABSOLUTE * math.sqrt(within)
    if protocol.place == "new machine":
        count = protocol.local_runs
        return 100 * MEAN_ABSOLUTE * math.sqrt(within * (1 + 1 / count)) if count else float("nan")
    speed = max(between - within, 0.0)
    if protocol.local_runs and speed > 0:
        speed = 1 / (1 / speed + protocol.local_runs / within)
    return 100 * MEAN_ABSOLUTE * math.sqrt(within + speed)


def _variance(runs: pd.DataFrame, target: str, *, apart: bool = False) -> float:
    """Return half the mean square of differences within cells: in one sitting, or between days."""
    by_cell = []
    pairs = 0
    for _, repeats in runs.groupby("cell", sort=True):
        logs = np.log(repeats[target].to_numpy())
        places = repeats["day" if apart else "sitting"].tolist()
        squares = [
            (logs[a] - logs[b]) ** 2
            for a, b in combinations(range(len(logs)), 2)
            if (places[a] != places[b]) is apart
        ]
        pairs += len(squares)
        if squares:
            by_cell.append(np.mean(squares))
    return float(np.mean(by_cell)) / 2 if pairs >= MINIMUM_PAIRS else float("nan")
