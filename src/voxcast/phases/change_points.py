"""Change points of the trace of a single run, by an exact dynamic programme.

A segment is described by the mean and the variance of each of its signals, as if its steps were
drawn from a normal distribution; a change point costs a penalty. The optimal partition is that of
Jackson et al. (IEEE Signal Processing Letters 12(2), 2005), whose recursion PELT prunes (Killick,
Fearnhead & Eckley, JASA 107, 2012). At a few hundred steps it needs no pruning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.phases.trace_grid import TraceGrid

# By its F1 score either half of the SLANT runs chooses 1, which marks 13 changes of a run. 2 marks
# the larger ones, for a chain of fewer jobs.
PENALTY = 2.0
MIN_STEPS = 3  # of a segment, or its variance means nothing
# Standard deviation below which a signal does not vary: 2 % of memory, a fiftieth of a CPU.
SMALLEST_SD = 0.02


def change_points(grid: TraceGrid, penalty: float = PENALTY) -> NDArray[np.float64]:
    """Return the times in seconds at which a run changes its behaviour.

    Parameters
    ----------
    grid : TraceGrid
        Logarithm of memory and, if the trace has it, CPUs in use.
    penalty : float
        Price of a change point, in units of ``log(steps)`` for each parameter of a segment;
        1 is the Bayesian information criterion, which supposes independent steps.

    Returns
    -------
    ndarray
        Increasing, within the run; empty for a constant trace.
    """
    signals = grid.log_memory[:, None]
    if grid.cpus is not None:
        signals = np.column_stack([signals, grid.cpus])
    positions = partition(signals, penalty * (2 * signals.shape[1] + 1) / 2 * np.log(len(grid)))
    return grid.starts_s(positions)


def partition(signals: NDArray[np.float64], price: float) -> NDArray[np.intp]:
    """Return where the cheapest partition cuts, as positions of the first steps of segments.

    Parameters
    ----------
    signals : ndarray, shape (steps, signals)
        Their scale matters only against `SMALLEST_SD`.
    price : float
        Of a cut, in nats.

    Examples
    --------
    >>> partition(np.repeat([0.0, 1.0, 0.5], 10)[:, None], price=5.0).tolist()
    [10, 20]
    """
    steps = len(signals)
    centred = signals - signals.mean(axis=0)  # cumulative sums lose fewer digits
    sums, squares = (
        np.concatenate([np.zeros((1, signals.shape[1])), np.cumsum(centred**power, axis=0)])
        for power in (1, 2)
    )
    least = np.full(steps + 1, np.inf)
    least[0] = -price
    previous = np.zeros(steps + 1, dtype=np.intp)
    for end in range(min(MIN_STEPS, steps), steps + 1):
        starts = np.arange(max(end - MIN_STEPS, 0) + 1)
        lengths = (end - starts)[:, None]
        mean = (sums[end] - sums[starts]) / lengths
        variance = (squares[end] - squares[starts]) / lengths - mean**2
        deviance = np.log(np.maximum(variance, 0) + SMALLEST_SD**2).sum(axis=1)
        costs = least[starts] + price + lengths[:, 0] / 2 * deviance
        previous[end] = costs.argmin()
        least[end] = costs[previous[end]]
    cuts, end = [], previous[steps]
    while end > 0:
        cuts.append(end)
        end = previous[end]
    return np.array(cuts[::-1], dtype=np.intp)
