"""Phases of a logical trace by order of magnitude of computation (SIMO) and communication."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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


DROPPED = -1


@dataclass(frozen=True, eq=False)
class Grouping:
    """Phases of a run and the phase of each tick.

    Attributes
    ----------
    label : ndarray of int, shape (ticks,)
        Index of the tick's phase, in the order of founding; -1 in ticks of dropped phases.
    founder : ndarray, shape (phases,)
        The value that founded each phase.
    first_tick : ndarray of int, shape (phases,)
        The tick that founded each phase.
    weight : ndarray of int, shape (phases,)
        Number of ticks.
    share : ndarray of float, shape (phases,)
        Share of the run, 0 to 1.
    dropped_phases : int
        Number of phases with less than the least share.
    dropped_share : float
        Their share of the run together.
    """

    label: np.ndarray
    founder: np.ndarray
    first_tick: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    dropped_phases: int
    dropped_share: float

    def ticks(self) -> list[np.ndarray]:
        """Return the ticks of each phase, ascending."""
        by_label = np.argsort(self.label, kind="stable")
        ends = np.cumsum(np.bincount(self.label - DROPPED, minlength=len(self.founder) + 1))
        return np.split(by_label, ends)[1:-1]


def grouped(
    values: np.ndarray,
    tolerance: float = 0,
    *,
    communication: np.ndarray | None = None,
    duration: np.ndarray | None = None,
    min_share: float = 0.0,
) -> Grouping:
    """Group ticks whose values lie near the value that founded their phase.

    Ticks are taken in order. A tick joins the earliest founded phase whose founder differs by at
    most ``tolerance`` and communicates alike; if there is none, it founds a phase. This is the
    leader algorithm (Hartigan, Clustering Algorithms, 1975, chapter 3), in one pass; its result
    depends on the order, and two ticks of a phase may differ by twice the tolerance.

    Parameters
    ----------
    values : ndarray of int or float, shape (ticks,)
        For example SIMO. Time grows with the number of different values, and hardly with that of
        ticks.
    tolerance : float
        In the unit of the values.
    communication : ndarray of int, shape (ticks,), optional
        Kind of communication of each tick; only equal ones are grouped.
    duration : ndarray, shape (ticks,), optional
        What the share of a phase is counted in; ticks if omitted.
    min_share : float
        Phases with a smaller share of the run are dropped.

    Raises
    ------
    ValueError
        If a value is not finite, or the tolerance or the least share is out of range.

    Examples
    --------
    >>> phases = grouped(np.array([50, 51, 47, 46, 45, 47]), tolerance=1)
    >>> phases.founder, phases.weight
    (array([50, 47, 45]), array([2, 3, 1]))
    """
    import pandas as pd

    if not (0 <= tolerance < np.inf and 0 <= min_share <= 1):
        raise ValueError(f"tolerance {tolerance} or share {min_share} out of range")
    if not np.all(np.isfinite(values)):
        raise ValueError("values must be finite")
    # All ticks of one value and communication have one founder, that of the first of them: a
    # founder that fits then is the earliest for ever. So only different values are compared.
    codes, distinct = pd.factorize(values)
    if communication is None:
        kinds = np.zeros(len(distinct), dtype=np.int64)
    else:
        kind_codes, kind_names = pd.factorize(communication)
        codes, pairs = pd.factorize(codes * len(kind_names) + kind_codes)
        distinct, kinds = distinct[pairs // len(kind_names)], pairs % len(kind_names)
    phase, founding = _founders(distinct, kinds, tolerance)
    label = phase[codes]
    first_tick = _first_ticks(label, len(founding))
    weight = np.bincount(label, minlength=len(founding))
    total = weight if duration is None else np.bincount(label, duration, len(founding))
    share = total / max(total.sum(), np.finfo(float).tiny)
    stays = share >= min_share
    renumbered = np.where(stays, np.cumsum(stays) - 1, DROPPED)
    return Grouping(
        renumbered[label] if len(label) else label,
        distinct[founding][stays],
        first_tick[stays],
        weight[stays],
        share[stays],
        int((~stays).sum()),
        float(share[~stays].sum()),
    )


def _first_ticks(label: np.ndarray, n_phases: int) -> np.ndarray:
    first = np.zeros(n_phases, dtype=np.int64)
    first[label[::-1]] = np.arange(len(label) - 1, -1, -1)  # of several writes the last holds
    return first


def _founders(
    distinct: np.ndarray, kinds: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the phase of each different value, and the values that founded the phases."""
    if tolerance == 0:
        every = np.arange(len(distinct))
        return every, every
    phase = np.empty(len(distinct), dtype=np.int64)
    founding: list[int] = []
    # Of each kind the founders so far, sorted, with their phases. They are more than the
    # tolerance apart, so that at most two lie near a value.
    sorted_founders: dict[int, tuple[list[float], list[int]]] = {}
    for n, (value, kind) in enumerate(zip(distinct.tolist(), kinds.tolist(), strict=True)):
        founders, phases = sorted_founders.setdefault(kind, ([], []))
        start = bisect.bisect_left(founders, value - tolerance)
        stop = bisect.bisect_right(founders, value + tolerance)
        if start < stop:
            phase[n] = min(phases[start:stop])
        else:
            phase[n] = len(founding)
            founders.insert(start, value)
            phases.insert(start, len(founding))
            founding.append(n)
    return phase, np.array(founding, dtype=np.int64)


_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def communication_texts(trace: LogicalTrace) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the kind of communication of each tick, and each kind in words.

    Returns
    -------
    kind : ndarray of int, shape (ticks,)
        Index of the words; as `voxcast.phases.simo.communication`.
    texts : tuple of str
        Operations with the order of magnitude of their sizes, such as ``MPI_Allreduce 1-10 kB``.
    """
    kind = communication(trace)
    events = trace.events
    first = np.unique(kind, return_index=True)[1]
    stops = np.append(trace.starts, len(trace.rows))
    texts = []
    for tick in first.tolist():
        rows = trace.rows[stops[tick] : stops[tick + 1]]
        orders = orders_of_magnitude(events["size_bytes"][rows])
        operations = events["operation"][rows]
        sizes = events["size_bytes"][rows] > 0
        pairs = sorted(set(zip(operations.tolist(), orders.tolist(), sizes.tolist(), strict=True)))
        texts.append(
            " + ".join(_text(events.operations[n], order, has_size=has) for n, order, has in pairs)
        )
    return kind, tuple(texts)


def _text(operation: str, order: int, *, has_size: bool) -> str:
    if not has_size:
        return operation
    prefix, power = divmod(order, 3)
    return f"{operation} {10**power}-{10 ** (power + 1)} {_PREFIXES[prefix]}B"
