"""How long fits take: of every family on two small samples, and on a straight line beyond.

Families grow about linearly with the rows, or a little faster, for which users of these times
leave room.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models import point_model
from voxcast.models.families.family import family
from voxcast.models.query import queries_of
from voxcast.models.selection.time_limit import TimeUpError, time_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

SAMPLE_ROWS = (100, 400)
MIN_ROWS = 500
MIN_FAMILIES = 3
PATIENCE = 3.0  # times its share that a family may take, since most take less
STEP = 0.85


@dataclass(frozen=True)
class FitTimes:
    """Seconds of a fit with default parameters: ``fixed + slope × rows``, by family."""

    lines: dict[str, tuple[float, float]]

    def of(self, name: str, rows: int) -> float:
        """Return the seconds of one fit, with predictions of the same rows; above 0."""
        fixed_s, slope = self.lines[name]
        return max(fixed_s, 1e-3) + slope * rows

    def affordable_rows(self, rows: int, *, fits: float, budget_s: float) -> int:
        """Return the largest number of rows for which the fits of all families stay in a budget.

        Parameters
        ----------
        rows : int
            Number of rows that there are.
        fits : float
            Number of fits of all rows that every family needs.

        Returns
        -------
        int
            At least `MIN_ROWS`, or all rows; few where hardly a family could be timed.
        """
        if len(self.lines) < MIN_FAMILIES:
            return min(rows, MIN_ROWS)

        def needed_s(count: int) -> float:
            usable = [n for n in self.lines if count <= (family(n).max_rows or count)]
            return fits * sum(self.of(name, count) for name in usable)

        count = rows
        while count > MIN_ROWS and needed_s(count) > budget_s:
            count = max(int(count * STEP), MIN_ROWS)
        return min(count, rows)


def measure(
    table: pd.DataFrame, target: str, families: Sequence[str], *, budget_s: float, seed: int = 0
) -> FitTimes:
    """Time every family on two samples; one that does not end in its share has no line.

    Parameters
    ----------
    table : DataFrame, shape (n_rows, …)
        Features and target.
    budget_s : float
        Total time for the samples.
    """
    order = np.random.default_rng(seed).permutation(len(table))
    samples = [table.iloc[np.sort(order[:rows])] for rows in SAMPLE_ROWS]
    _fit_s(samples[0], target, families[0], seed)  # imports are not part of the times
    end = time.monotonic() + budget_s
    lines = {}
    for number, name in enumerate(families):
        try:
            left_s = end - time.monotonic()
            with time_limit(min(PATIENCE * left_s / (len(families) - number), left_s)):
                times_s = [_fit_s(sample, target, name, seed) for sample in samples]
        except TimeUpError:
            continue
        added = max(len(samples[1]) - len(samples[0]), 1)
        slope = max((times_s[1] - times_s[0]) / added, 0.0)
        lines[name] = (times_s[0] - slope * len(samples[0]), slope)
    return FitTimes(lines)


def _fit_s(table: pd.DataFrame, target: str, name: str, seed: int) -> float:
    started = time.monotonic()
    model = point_model.fit(table, None, name, family(name).defaults, "header", seed, (target,))
    model.predict(queries_of(table))
    return time.monotonic() - started
