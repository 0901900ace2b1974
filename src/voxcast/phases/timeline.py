"""Time of each process by phase, in bins: what a picture of a run shows, however long it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.traces.events import NS_PER_S

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace

COMPUTATION, COMMUNICATION = 0, 1


@dataclass(frozen=True, eq=False)
class Timeline:
    """Time by lane, bin and category; a lane is a process, or several neighbours.

    Attributes
    ----------
    start_s, end_s : float
        The ends of the bins, since the start of each process by its clock.
    lanes : tuple of str
        Names.
    time_s : ndarray, shape (lanes, categories, 2, bins)
        Time of computation and of communication. The last category is the time after the last
        event of a process. A bin in which a process had not started, or had ended, lacks its time.
    """

    start_s: float
    end_s: float
    lanes: tuple[str, ...]
    time_s: np.ndarray

    @property
    def category(self) -> np.ndarray:
        """The category with most time, shape (lanes, bins); -1 where there is no time."""
        by_category = self.time_s.sum(axis=2)
        largest = by_category.argmax(axis=1)
        return np.where(by_category.any(axis=1), largest, -1)

    @property
    def communication_share(self) -> np.ndarray:
        """Share of communication of the time in events' ticks, shape (lanes, bins); 0 if none."""
        by_part = self.time_s.sum(axis=1)
        total = by_part.sum(axis=1)
        share: np.ndarray = np.divide(
            by_part[:, COMMUNICATION], total, out=np.zeros_like(total), where=total > 0
        )
        return share


def timeline(
    trace: LogicalTrace,
    category: np.ndarray,
    n_categories: int,
    *,
    bins: int,
    max_lanes: int,
    span_s: tuple[float, float] | None = None,
) -> Timeline:
    """Sum the time of each process in bins of equal length.

    Time between two events belongs to the tick of the later one, as computation; time in an event
    is communication, or input and output. Clocks of different processes are not compared: each
    begins at 0. The result has the same size for any number of events.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    category : ndarray of int, shape (ticks,)
        Category of each tick, from 0.
    n_categories : int
        Number of categories; what is after the last event gets one more.
    bins, max_lanes : int
        Number of bins, and largest number of lanes. Of more processes, neighbours share a lane.
    span_s : tuple of float, optional
        From where to where; by default all of the longest process.
    """
    events = trace.events
    n_processes = len(events.processes)
    lifetime_s = (events.end_ns - events.start_ns) / NS_PER_S
    start_s, end_s = span_s or (0.0, float(lifetime_s.max(initial=0.0)))
    n_lanes = min(n_processes, max_lanes)
    lane_of = np.arange(n_processes) * n_lanes // max(n_processes, 1)
    time_s = np.zeros((n_lanes, n_categories + 1, 2, bins))
    if end_s - start_s < 1 / NS_PER_S:  # less than any clock resolves
        return Timeline(start_s, end_s, _lane_names(events.processes, lane_of), time_s)
    process = events["process"]
    end = (events["end_ns"] - events.start_ns[process]) / NS_PER_S
    before = end - trace.elapsed_ns() / NS_PER_S
    start = np.clip((events["start_ns"] - events.start_ns[process]) / NS_PER_S, before, end)
    last = np.zeros(n_processes)
    np.maximum.at(last, process, end)
    everyone = np.arange(n_processes)
    after = np.full(n_processes, n_categories)
    row = category[trace.tick] if len(trace) else np.zeros(0, np.int64)
    for part, of_process, of_category, begin, stop in (
        (COMPUTATION, process, row, before, start),
        (COMMUNICATION, process, row, start, end),
        (COMPUTATION, everyone, after, last, np.maximum(lifetime_s, last)),
    ):
        cells = lane_of[of_process] * (n_categories + 1) + of_category
        scale = bins / (end_s - start_s)
        sums = _binned(
            cells, (begin - start_s) * scale, (stop - start_s) * scale,
            n_lanes * (n_categories + 1), bins,
        )  # fmt: skip
        time_s[:, :, part] += sums.reshape(n_lanes, n_categories + 1, bins) / scale
    return Timeline(start_s, end_s, _lane_names(events.processes, lane_of), time_s)


def middle_span_s(trace: LogicalTrace, ticks: int) -> tuple[float, float] | None:
    """Return the span of some ticks in the middle of a run; None if it has not more than these.

    It is that of the process which the middle tick is in first, by its clock.
    """
    if len(trace) <= ticks:
        return None
    first = (len(trace) - ticks) // 2
    process = int(trace.events["process"][trace.rows[trace.starts[first]]])
    rows = np.flatnonzero(
        (trace.events["process"] == process) & (trace.tick >= first) & (trace.tick < first + ticks)
    )
    begin_ns = trace.events.start_ns[process]
    end_ns = trace.events["end_ns"][rows]
    start_s = float(end_ns[0] - trace.elapsed_ns()[rows[0]] - begin_ns) / NS_PER_S
    end_s = float(end_ns[-1] - begin_ns) / NS_PER_S
    return (start_s, end_s) if end_s > start_s else None


def _binned(
    cells: np.ndarray, begin: np.ndarray, stop: np.ndarray, n_cells: int, bins: int
) -> np.ndarray:
    """Return the length of intervals in each bin of each cell, shape (cells, bins).

    An interval adds its parts to its first and last bin, and 1 to all between them. That is added
    where they start and taken off where they end, and summed up at the end.
    """
    begin, stop = np.clip(begin, 0, bins), np.clip(stop, 0, bins)
    first = np.minimum(begin.astype(np.int64), bins - 1)
    last = np.minimum(stop.astype(np.int64), bins - 1)
    within = first == last
    width = bins + 1
    keys = cells * width
    size = n_cells * width
    lengths = np.bincount(keys + first, np.where(within, stop - begin, first + 1 - begin), size)
    lengths += np.bincount(keys + last, np.where(within, 0.0, stop - last), size)
    between = np.bincount((keys + first + 1)[~within], minlength=size).astype(float)
    between -= np.bincount((keys + last)[~within], minlength=size)
    total = lengths.reshape(n_cells, width) + between.reshape(n_cells, width).cumsum(axis=1)
    binned: np.ndarray = total[:, :bins]
    return binned


def _lane_names(processes: tuple[str, ...], lane_of: np.ndarray) -> tuple[str, ...]:
    names = []
    for lane in range(int(lane_of.max(initial=-1)) + 1):
        members = np.flatnonzero(lane_of == lane)
        first, last = processes[int(members[0])], processes[int(members[-1])]
        names.append(first if first == last else f"{first} to {last}")
    return tuple(names)
