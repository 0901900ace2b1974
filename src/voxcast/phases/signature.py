"""The signature of a run: its phases with their times and weights, which add up to its time.

The time of a tick is of one process each; clocks of different processes are never compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.events import NS_PER_S
from voxcast.phases.logical import logical_trace
from voxcast.phases.simo import DROPPED, communication_texts, phases_of

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.simo import Grouping


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
    """Phases of a run and what is beside them.

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
        What the trace lacks.
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
        """Time of the run by its phases: the sum of time times weight, and what is beside them.

        Dropped phases count with the time that they took. Where all passes were averaged this is
        the elapsed time, whatever the grouping.
        """
        return sum(p.weight * p.time_s for p in self.phases) + self.dropped_s + self.after_s


def signature(
    trace: LogicalTrace, grouping: Grouping | None = None, *, passes: int | None = None
) -> Signature:
    """Return the signature of a run.

    The representative time is the arithmetic mean over the passes. It alone makes the sum of time
    times weight the elapsed time: the times of a phase are skewed to the right by interruptions
    that recur in the long run, and a median or trimmed mean leaves these out.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    grouping : Grouping, optional
        Phases of its ticks; by default those of `voxcast.phases.simo.phases_of`.
    passes : int, optional
        Take the times from so many ticks of each phase, evenly spread over its ticks, as if only
        these had been run; by default from all.
    """
    grouping = phases_of(trace) if grouping is None else grouping
    times = tick_times(trace)
    kind, texts = communication_texts(trace)
    elapsed_s = max(times.elapsed_s, np.finfo(float).tiny)
    phases = []
    for first, ticks in zip(grouping.first_tick.tolist(), grouping.ticks(), strict=True):
        time_s = float(times.advance_s[_spread(ticks, passes)].mean())
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


def _spread(ticks: np.ndarray, passes: int | None) -> np.ndarray:
    if passes is None or passes >= len(ticks):
        return ticks
    places = (np.arange(passes) + 0.5) * len(ticks) / passes
    spread: np.ndarray = ticks[places.astype(np.int64)]
    return spread


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

    The front telescopes: whatever the ticks are grouped into, the sums add up to the elapsed time.
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

    Each process ends with its last event before the tick. Since the order extends that of causes,
    no event in it waits for one that is cut off.
    """
    events = trace.events
    stays = trace.tick < tick
    process = events["process"][stays]
    end_ns = events.start_ns.copy()
    np.maximum.at(end_ns, process, events["end_ns"][stays])
    columns = {name: column[stays] for name, column in events.columns.items()}
    return logical_trace(replace(events, columns=columns, end_ns=end_ns))
