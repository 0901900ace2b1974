"""Phases of a run, and its signature: their times and weights, which add up to its time.

Phases are ticks of a similar order of magnitude of computation (SIMO) and equal communication. The
time of a tick is measured in each process; clocks of different processes are never compared.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from voxcast.phases.events import NS_PER_S
from voxcast.phases.logical import LogicalTrace, logical_trace

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
    with the number of processes, while the noise of a sum grows. It is the logarithm of the
    geometric mean over the processes with an event in the tick, rounded to hundredths, so that the
    number of different values stays small.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    least_computation : float
        Less computation counts as this much, in the unit of the events: differences that a
        clock cannot resolve should found no phase.
    """
    logarithms = np.log10(np.maximum(trace.events["computation"], max(least_computation, 1.0)))
    mean = trace.sum_by_tick(logarithms) / trace.events_by_tick()
    return np.asarray(np.rint(mean / RESOLUTION_DECADES) * RESOLUTION_DECADES)


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
    return np.asarray(trace.events["operation"].astype(np.int64) * (len(_POWERS) + 1) + sizes)


def _hashed(values: np.ndarray) -> np.ndarray:
    """Mix 64-bit values (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
    hashes = wide.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(hashes ^ (hashes >> np.uint64(31)))


def _sums(hashes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the hash of the set of hashes from each start to the next."""
    return np.add.reduceat(hashes, starts) if len(starts) else hashes[:0]


def _numbered(hashes: np.ndarray) -> np.ndarray:
    return np.asarray(pd.factorize(hashes)[0])


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
    most ``tolerance`` and communicates alike; without one, it founds a phase. This is the
    leader algorithm (Hartigan, Clustering Algorithms, 1975, chapter 3), in one pass; its result
    depends on the order, and two ticks of a phase may differ by twice the tolerance.

    Parameters
    ----------
    values : ndarray of int or float, shape (ticks,)
        For example SIMO. Time grows with the number of different values, hardly with the ticks.
    tolerance : float
        In the unit of the values.
    communication : ndarray of int, shape (ticks,), optional
        Kind of communication of each tick; only equal ones are grouped.
    duration : ndarray, shape (ticks,), optional
        Of each tick, for the share of a phase; by default each tick counts as 1.
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
    if not (0 <= tolerance < np.inf and 0 <= min_share <= 1):
        raise ValueError(f"tolerance {tolerance} or share {min_share} out of range")
    if not np.all(np.isfinite(values)):
        raise ValueError("values must be finite")
    # All ticks of one value and communication have one founder: the one that fits the first of
    # these ticks stays the earliest. So only different values are compared.
    codes, distinct = pd.factorize(values)
    kind_codes, kind_names = pd.factorize(
        np.zeros(len(values)) if communication is None else communication
    )
    n_kinds = max(len(kind_names), 1)
    codes, pairs = pd.factorize(codes * n_kinds + kind_codes)
    distinct, kinds = distinct[pairs // n_kinds], pairs % n_kinds
    phase, founding = _founders(distinct, kinds, tolerance)
    label = phase[codes]
    first_tick = np.unique(label, return_index=True)[1]
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
        Index of the words; as in `communication`.
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


@dataclass(frozen=True)
class SignaturePhase:
    """A phase of a run.

    Attributes
    ----------
    communication : str
        Operations and orders of magnitude of their sizes, of the tick that founded it.
    first_tick, weight : int
        The tick that founded it, and its number of ticks.
    time_s : float
        Representative time of a tick.
    computation_s, communication_s : float
        The parts of it, by the shares of the time of all processes in its ticks. Waiting for
        others in an event is communication.
    share : float
        ``weight * time_s`` as a share of the elapsed time of the run.
    """

    communication: str
    first_tick: int
    weight: int
    time_s: float
    computation_s: float
    communication_s: float
    share: float

    @property
    def communication_share(self) -> float:
        """Share of its time that is communication."""
        return self.communication_s / self.time_s if self.time_s else 0.0


@dataclass(frozen=True)
class Signature:
    """Phases of a run and the time outside of them.

    Attributes
    ----------
    phases : tuple of SignaturePhase
        In the order of founding.
    ticks, processes : int
        Of the logical trace.
    elapsed_s : float
        Measured, by the slowest process.
    dropped_phases : int
        Phases that are too small to be in the list.
    dropped_s : float
        Their time together.
    after_s : float
        From the last event to the end. The time before the first event is in the phase of that.
    communication_share : float
        Share of the time of all processes that was spent in events.
    source : str
        Where the trace was read.
    missing : tuple of str
        Gaps in the trace.
    """

    phases: tuple[SignaturePhase, ...]
    ticks: int
    processes: int
    elapsed_s: float
    dropped_phases: int
    dropped_s: float
    after_s: float
    communication_share: float
    source: str
    missing: tuple[str, ...]

    @property
    def total_s(self) -> float:
        """Time of the run by its phases: the sum of time times weight, and the rest.

        Dropped phases count with the time that they took. If all passes were averaged, this equals
        the elapsed time for any grouping.
        """
        return sum(p.weight * p.time_s for p in self.phases) + self.dropped_s + self.after_s


def signature(trace: LogicalTrace, grouping: Grouping | None = None) -> Signature:
    """Return the signature of a run.

    The representative time is the arithmetic mean over the passes. It alone makes the sum of time
    times weight the elapsed time: the times of a phase are skewed to the right by interruptions
    that recur in the long run, and a median or trimmed mean leaves these out.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    grouping : Grouping, optional
        Phases of its ticks; by default from `phases_of`.
    """
    grouping = phases_of(trace) if grouping is None else grouping
    times = tick_times(trace)
    kind, texts = communication_texts(trace)
    elapsed_s = max(times.elapsed_s, np.finfo(float).tiny)
    phases = []
    for first, ticks in zip(grouping.first_tick.tolist(), grouping.ticks(), strict=True):
        time_s = float(times.advance_s[ticks].mean())
        share = communication_share(times, ticks)
        phases.append(
            SignaturePhase(
                texts[kind[first]], first, len(ticks), time_s, time_s * (1 - share),
                time_s * share, len(ticks) * time_s / elapsed_s,
            )
        )  # fmt: skip
    return Signature(
        tuple(phases),
        len(trace),
        len(trace.events.processes),
        times.elapsed_s,
        grouping.dropped_phases,
        float(times.advance_s[grouping.label == DROPPED].sum()),
        times.after_s,
        communication_share(times, slice(None)),
        trace.events.source,
        trace.missing,
    )


def communication_share(times: TickTimes, ticks: np.ndarray | slice) -> float:
    """Return the share of the time of all processes in some ticks that was spent in events."""
    total_s = float(times.process_s[ticks].sum())
    return float(times.communication_process_s[ticks].sum()) / total_s if total_s else 0.0


@dataclass(frozen=True, eq=False)
class TickTimes:
    """Wall time of each tick.

    Attributes
    ----------
    advance_s : ndarray, shape (ticks,)
        By how much a tick moves the completion front: the longest that any process has run, by its
        clock, up to its last event so far. It is 0 where no event is the latest so far. The sum
        over all ticks is the elapsed time of the slowest process up to its last event.
    process_s, communication_process_s : ndarray, shape (ticks,)
        Time of all processes together, and how much of it was spent in events.
    after_s : float
        From the last event to the end of the run.
    """

    advance_s: np.ndarray
    process_s: np.ndarray
    communication_process_s: np.ndarray
    after_s: float

    @property
    def elapsed_s(self) -> float:
        """Elapsed time of the run, by its slowest process."""
        return float(self.advance_s.sum()) + self.after_s


def tick_times(trace: LogicalTrace) -> TickTimes:
    """Return the wall time of each tick.

    The front telescopes: for any grouping of the ticks, the sums add up to the elapsed time.
    A mean over the processes would lose the time for which the slowest runs alone.
    """
    events = trace.events
    process, elapsed_ns = events["process"], trace.elapsed_ns()
    total = np.cumsum(elapsed_ns)
    before = np.searchsorted(process, np.arange(len(events.processes)))
    offset = np.concatenate([[0], total])[before]
    done_ns = total - offset[process]
    latest = np.maximum.reduceat(done_ns[trace.rows], trace.starts) if len(trace) else done_ns[:0]
    front = np.maximum.accumulate(latest)
    within = np.minimum(events["end_ns"] - events["start_ns"], elapsed_ns)
    lifetime_ns = int(np.max(events.end_ns - events.start_ns, initial=0))
    last_ns = int(front[-1]) if len(front) else 0
    return TickTimes(
        np.diff(front, prepend=0) / NS_PER_S,
        trace.sum_by_tick(elapsed_ns) / NS_PER_S,
        trace.sum_by_tick(np.maximum(within, 0)) / NS_PER_S,
        max(lifetime_ns - last_ns, 0) / NS_PER_S,
    )


def before_tick(trace: LogicalTrace, tick: int) -> LogicalTrace:
    """Return the trace of a run as it was when all events before a tick had ended.

    Each process ends with its last event before the tick. Since causes come before their
    effects, no event in it waits for one that is cut off.
    """
    events = trace.events
    stays = trace.tick < tick
    process = events["process"][stays]
    end_ns = events.start_ns.copy()
    np.maximum.at(end_ns, process, events["end_ns"][stays])
    columns = {name: column[stays] for name, column in events.columns.items()}
    return logical_trace(replace(events, columns=columns, end_ns=end_ns))
