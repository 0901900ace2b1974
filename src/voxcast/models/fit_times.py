"""How long fits take: of every family on two small samples, and on a straight line beyond.

Families grow about linearly with the rows, or a little faster, for which users of these times
leave room.

A time limit on code that cannot be asked to stop, such as the fit of an estimator.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from voxcast.models import point_model
from voxcast.models.families.family import family
from voxcast.models.query import queries_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


AGAIN_S = 0.2  # a library's callback may swallow the exception: it is raised again until it ends


class TimeUpError(BaseException):
    """The time limit is reached; not an `Exception`, which libraries catch."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUpError` in the block after some seconds.

    The block must hold no lock and change no state that outlives it. No limit holds outside the
    main thread, or where another timer of the process runs.

    Parameters
    ----------
    seconds : float
        Infinity for no limit; at 0 or below the block does not start.

    Raises
    ------
    TimeUpError
        When the time is up.
    """
    if seconds <= 0:
        raise TimeUpError
    main_thread = threading.current_thread() is threading.main_thread()
    if math.isinf(seconds) or not main_thread or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    fired = False

    def stop(*_: object) -> NoReturn:
        nonlocal fired
        fired = True
        raise TimeUpError

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        yield
    except Exception as error:
        if fired:  # compiled code replaced our exception by its own
            raise TimeUpError from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if fired:  # it was swallowed, and the outcome may be incomplete
        raise TimeUpError
