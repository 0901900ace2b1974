"""The signature of a run: its phases with their times and weights, which add up to its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.communication_text import communication_texts
from voxcast.phases.leader import DROPPED
from voxcast.phases.simo import phases_of
from voxcast.phases.tick_times import tick_times

if TYPE_CHECKING:
    from voxcast.phases.leader import Grouping
    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.tick_times import TickTimes


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
