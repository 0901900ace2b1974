"""Wall time of the ticks of a logical trace, and the part of a trace before a tick.

The durations are of one process each; clocks of different processes are never compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.logical import logical_trace
from voxcast.phases.traces.events import NS_PER_S

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace


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
