"""Phases of a logical trace by order of magnitude of computation (SIMO), and by exact counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.leader import grouped

if TYPE_CHECKING:
    from voxcast.phases.leader import Grouping
    from voxcast.phases.logical import LogicalTrace

TOLERANCE_DECADES = 0.25
RESOLUTION_DECADES = 0.01
MIN_SHARE = 0.01

# Powers of ten are exact in binary up to 10^22, unlike the logarithms of numbers next to them.
_POWERS = 10.0 ** np.arange(1, 23)


def orders_of_magnitude(amounts: np.ndarray) -> np.ndarray:
    """Return the exponents of amounts in scientific notation; 0 for amounts below 10.

    Examples
    --------
    >>> orders_of_magnitude(np.array([0, 9, 10, 999, 1000, 2.5e6]))
    array([0, 0, 1, 2, 3, 6])
    """
    return np.searchsorted(_POWERS, amounts, side="right")


def simo(trace: LogicalTrace) -> np.ndarray:
    """Return the sum of the orders of magnitude of computation in each tick, shape (ticks,).

    The measure of PAS2P for AI applications. Processes without an event in a tick add nothing.
    """
    return trace.sum_by_tick(orders_of_magnitude(trace.events["computation"]))


def mean_order(trace: LogicalTrace, least_computation: float = 1.0) -> np.ndarray:
    """Return the mean logarithm to base 10 of computation in each tick, shape (ticks,).

    Unlike SIMO it does not jump where computation varies about a power of ten, and its noise falls
    with the number of processes, where that of a sum grows. It is the logarithm of the geometric
    mean over the processes with an event in the tick, rounded to hundredths, so that the number of
    different values stays small.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    least_computation : float
        Less computation counts as this much, in the unit of the events: what a clock cannot
        resolve should found no phase.
    """
    logarithms = np.log10(np.maximum(trace.events["computation"], max(least_computation, 1.0)))
    mean = trace.sum_by_tick(logarithms) / trace.events_by_tick()
    rounded: np.ndarray = np.rint(mean / RESOLUTION_DECADES) * RESOLUTION_DECADES
    return rounded


def communication(trace: LogicalTrace) -> np.ndarray:
    """Return a number for the communication of each tick, shape (ticks,); equal if alike.

    Ticks communicate alike if the same operations with the same orders of magnitude of size occur
    in them, in however many processes.
    """
    codes = _communication_codes(trace)[trace.rows]
    tick = trace.tick[trace.rows]
    pairs = np.unique(tick * (int(codes.max(initial=0)) + 1) + codes, return_index=True)[1]
    starts = np.searchsorted(pairs, trace.starts)
    return _numbered(_sums(_hashed(codes[pairs]), starts))


def exact_values(trace: LogicalTrace) -> np.ndarray:
    """Return a number for each tick, shape (ticks,); equal if all is equal, process by process.

    Equal are the communication of each process, and its computation to the last instruction: what
    PAS2P compared before it took orders of magnitude.
    """
    events = trace.events
    hashes = _hashed(events["process"])
    for column in (_communication_codes(trace), events["computation"]):
        hashes = _hashed(hashes ^ _hashed(column))
    return _numbered(_sums(hashes[trace.rows], trace.starts))


def phases_of(
    trace: LogicalTrace,
    tolerance_decades: float = TOLERANCE_DECADES,
    *,
    min_share: float = MIN_SHARE,
    least_computation: float = 1.0,
) -> Grouping:
    """Group the ticks of a trace by mean order of magnitude and communication.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    tolerance_decades : float
        Largest difference in mean order from the founder; a quarter is a factor of 1.8. It has the
        same meaning for any number of processes: the tolerance of 1 in SIMO that PAS2P takes for 8
        processes is an eighth of an order each, and for 64 processes 1/64.
    min_share : float
        Phases with a smaller share of the time of all processes are dropped.
    least_computation : float
        See `mean_order`.
    """
    return grouped(
        mean_order(trace, least_computation),
        tolerance_decades,
        communication=communication(trace),
        duration=trace.sum_by_tick(trace.elapsed_ns()),
        min_share=min_share,
    )


def _communication_codes(trace: LogicalTrace) -> np.ndarray:
    """Return a number for operation and order of size of each event."""
    sizes = orders_of_magnitude(trace.events["size_bytes"])
    codes: np.ndarray = trace.events["operation"].astype(np.int64) * (len(_POWERS) + 1) + sizes
    return codes


def _hashed(values: np.ndarray) -> np.ndarray:
    """Mix 64-bit values (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
    hashes = wide.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = hashes ^ (hashes >> np.uint64(31))
    return mixed


def _sums(hashes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the hash of the set of hashes from each start to the next."""
    return np.add.reduceat(hashes, starts) if len(starts) else hashes[:0]


def _numbered(hashes: np.ndarray) -> np.ndarray:
    import pandas as pd

    numbers: np.ndarray = pd.factorize(hashes)[0]
    return numbers
