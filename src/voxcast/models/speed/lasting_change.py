"""Whether a machine has become faster or slower for good, as by another governor or firmware.

The days on record of a machine are split in two where they differ most. The split is believed
where a t test with one variance for both parts is significant, corrected by Bonferroni for the
number of possible splits (Student 1908; Hawkins, JASA 1977). Days before it then tell nothing of
the days to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.speed.speeds import by_day, day_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.models.speed.speeds import SittingSpeed

SIGNIFICANCE = 0.01
MINIMUM_DAYS = 2  # on both sides: a single day is odd by itself
MINIMUM_RUNS = 3  # since the change: fewer may all be disturbed


@dataclass(frozen=True)
class MeasuredDay:
    """The mean logarithmic speed of a machine on a day (ISO), its variance, and runs."""

    day: str
    log_speed: float
    variance: float
    runs: int


def measured_days(sittings: Iterable[SittingSpeed]) -> list[MeasuredDay]:
    """Return the days of sittings; sittings of one day are alike, so that each counts the same."""
    return [
        MeasuredDay(
            day_of(of_day[0].last_at),
            float(np.mean([sitting.log_speed for sitting in of_day])),
            sum(sitting.sd**2 for sitting in of_day) / len(of_day) ** 2,
            sum(sitting.runs for sitting in of_day),
        )
        for of_day in by_day(sittings)
    ]


def level_start(days: Sequence[MeasuredDay], spread: float, freedom: float) -> str:
    """Return the first day at the present level of a machine, empty if it never changed.

    Parameters
    ----------
    days : sequence of MeasuredDay
        In any order, each day once. Days of unknown date (empty) are left out.
    spread : float
        Standard deviation between the days at one level, before these.
    freedom : float
        Degrees of freedom of its estimate.

    Examples
    --------
    >>> speeds = (0.02, -0.03, 0.01, -0.41, -0.38)
    >>> days = [MeasuredDay(f"2026-01-0{n}", s, 1e-4, 6) for n, s in enumerate(speeds, 1)]
    >>> level_start(days, 0.05, 4.0)
    '2026-01-04'
    >>> level_start(days[:4], 0.05, 4.0)
    ''
    """
    from scipy.special import stdtr

    left = sorted((day for day in days if day.day), key=lambda day: day.day)
    start = ""
    while True:
        log_speeds = np.array([day.log_speed for day in left])
        count, error = len(left), float(np.mean([day.variance for day in left] or [0.0]))
        runs_since = np.cumsum([day.runs for day in left][::-1])[::-1]
        splits = [
            n
            for n in range(MINIMUM_DAYS, count - MINIMUM_DAYS + 1)
            if runs_since[n] >= MINIMUM_RUNS
        ]
        if not splits:
            return start
        by_split = []
        for n in splits:
            squares = n * log_speeds[:n].var() + (count - n) * log_speeds[n:].var()
            # The variance before the data has no error of measurement in it; theirs has.
            variance = (freedom * (spread**2 + error) + squares) / (freedom + count - 2)
            gap = abs(log_speeds[:n].mean() - log_speeds[n:].mean())
            by_split.append(gap / np.sqrt(variance * (1 / n + 1 / (count - n))))
        best = int(np.argmax(by_split))
        probability = 2 * float(stdtr(freedom + count - 2, -by_split[best])) * len(splits)
        if probability > SIGNIFICANCE:
            return start
        left = left[splits[best] :]  # it may have changed again since
        start = left[0].day
