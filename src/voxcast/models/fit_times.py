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
ENOUGH_ROWS = 3000  # from which more rows help less than another family
MIN_FAMILIES = 3
WARM_ROWS = 20
LARGEST_SHARE = 0.6  # of the time that is left, for a family; the most important come first
STEP = 0.85


@dataclass(frozen=True)
class FitTimes:
    """Seconds of a fit with default parameters: ``fixed + slope × rows``, by family."""

    lines: dict[str, tuple[float, float]]

    def of(self, name: str, rows: int) -> float:
        """Return the seconds of one fit, with predictions of the same rows; above 0."""
        fixed_s, slope = self.lines[name]
        return max(fixed_s, 1e-3) + slope * rows

    def affordable(
        self, rows: int, *, fits: float, budget_s: float, first: Sequence[str] = ()
    ) -> tuple[list[str], int]:
        """Return the families and the number of rows whose fits stay in a budget.

        A slow family would cost all others most of their rows. So the families of ``first`` are
        taken, then the rest, the fastest first, as long as `ENOUGH_ROWS` rows stay affordable;
        the rest of the budget is for more rows.

        Parameters
        ----------
        rows : int
            Number of rows that there are.
        fits : float
            Number of fits of all rows that every family needs.

        Returns
        -------
        families : list of str
            Out of the timed ones.
        rows : int
            At least `MIN_ROWS`, or all rows; few where hardly a family could be timed.
        """

        def needed_s(names: Sequence[str], count: int) -> float:
            usable = [name for name in names if count <= (family(name).max_rows or count)]
            return fits * sum(self.of(name, count) for name in usable)

        enough = min(rows, ENOUGH_ROWS)
        names = [name for name in first if name in self.lines]
        others = [name for name in self.lines if name not in names]
        for name in sorted(others, key=lambda name: self.of(name, enough)):
            if needed_s([*names, name], enough) <= budget_s:
                names.append(name)
        count = rows if len(self.lines) >= MIN_FAMILIES else MIN_ROWS
        while count > MIN_ROWS and needed_s(names, count) > budget_s:
            count = max(int(count * STEP), MIN_ROWS)
        return names, min(count, rows)


def measure(
    table: pd.DataFrame, target: str, families: Sequence[str], *, budget_s: float, seed: int = 0
) -> FitTimes:
    """Time every family on two samples; one that does not end in its share has no line.

    The first families may take the most time.

    Parameters
    ----------
    table : DataFrame, shape (n_rows, …)
        Features and target.
    budget_s : float
        Total time for the samples.
    """
    order = np.random.default_rng(seed).permutation(len(table))
    samples = [table.iloc[np.sort(order[:rows])] for rows in SAMPLE_ROWS]
    for name in families[:MIN_FAMILIES]:
        _fit_s(samples[0].head(WARM_ROWS), target, name, seed)  # imports count for no family
    end = time.monotonic() + budget_s
    lines = {}
    for name in families:
        try:
            with time_limit((end - time.monotonic()) * LARGEST_SHARE):
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
