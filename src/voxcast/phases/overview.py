"""An overview of a trace for terminal and page: phases, timelines, and communication."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.phases.events import NS_PER_S, Kind
from voxcast.phases.signature import DROPPED, signature

if TYPE_CHECKING:
    from voxcast.phases.events import EventTable
    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.signature import Grouping, Signature

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, eq=False)
class TraceOverview:
    """A trace, ready to be shown.

    Attributes
    ----------
    signature : Signature
        Phases with times, weights and shares.
    order : tuple of int
        Indices of the phases, the largest share first. The first `marked` have a mark each, in
        that order, and their places are the categories of the timelines; the next category has
        all other ticks, the last the time after the last event.
    marked : int
        Number of phases with a mark.
    timeline : Timeline
        The run.
    processes : Timeline
        The run in a single bin, each process by itself.
    traffic : Traffic
        Messages and collectives.
    computation_unit : str
        What computation was compared in, see `voxcast.phases.events.EventTable`.
    """

    signature: Signature
    order: tuple[int, ...]
    marked: int
    timeline: Timeline
    processes: Timeline
    traffic: Traffic
    computation_unit: str

    def as_json(self) -> dict[str, Any]:
        """Return all but the timelines, as what JSON can hold."""
        marks = dict(zip(self.order, MARKS[: self.marked], strict=False))
        run = asdict(self.signature)
        run["phases"] = [
            {"mark": marks.get(n, ""), **phase} for n, phase in enumerate(run["phases"])
        ]
        by_part = self.processes.time_s[:, :-1].sum(axis=(1, 3))
        after_s = self.processes.time_s[:, -1].sum(axis=(1, 2))
        messages, size_bytes = self.traffic.messages, self.traffic.size_bytes
        return {
            **run,
            "computation_unit": self.computation_unit,
            "by_process": [
                {
                    "process": name,
                    "computation_s": float(part[COMPUTATION]),
                    "communication_s": float(part[COMMUNICATION]),
                    "after_s": float(rest),
                }
                for name, part, rest in zip(self.processes.lanes, by_part, after_s, strict=True)
            ],
            "messages": [
                {
                    "sender": int(sender),
                    "receiver": int(receiver),
                    "messages": int(messages[sender, receiver]),
                    "size_bytes": int(size_bytes[sender, receiver]),
                }
                for sender, receiver in np.argwhere(messages)
            ],
            "collectives": [asdict(collective) for collective in self.traffic.collectives],
        }


def trace_overview(
    trace: LogicalTrace,
    grouping: Grouping,
    *,
    bins: int,
    max_lanes: int,
    max_marked: int = len(MARKS),
) -> TraceOverview:
    """Return what there is to see in a trace.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    grouping : Grouping
        Its phases.
    bins, max_lanes : int
        Of the timelines, see `voxcast.phases.overview.timeline`.
    max_marked : int
        Most phases that get a mark.
    """
    run = signature(trace, grouping)
    order = sorted(range(len(run.phases)), key=lambda n: -run.phases[n].share)
    marked = min(len(order), max_marked)
    # The last element is for the label of dropped phases, -1.
    places = np.full(len(order) + 1, marked)
    places[order[:marked]] = np.arange(marked)
    category = places[np.where(grouping.label == DROPPED, len(order), grouping.label)]
    lines = partial(timeline, trace, category, marked + 1)
    return TraceOverview(
        run, tuple(order), marked, lines(bins=bins, max_lanes=max_lanes),
        lines(bins=1, max_lanes=run.processes), traffic(trace.events),
        trace.events.computation_unit,
    )  # fmt: skip


COMPUTATION, COMMUNICATION = 0, 1


@dataclass(frozen=True, eq=False)
class Timeline:
    """Time by lane, bin and category; a lane is a process, or several neighbours.

    Attributes
    ----------
    end_s : float
        The end of the last bin; the first starts at 0, the start of each process by its clock.
    lanes : tuple of str
        Names.
    time_s : ndarray, shape (lanes, categories, 2, bins)
        Time of computation and of communication. The last category is the time after the last
        event of a process. A bin in which a process had not started, or had ended, lacks its time.
    """

    end_s: float
    lanes: tuple[str, ...]
    time_s: np.ndarray

    @property
    def category(self) -> np.ndarray:
        """The category with most time, shape (lanes, bins); -1 without time."""
        by_category = self.time_s.sum(axis=2)
        largest = by_category.argmax(axis=1)
        return np.where(by_category.any(axis=1), largest, -1)

    @property
    def communication_share(self) -> np.ndarray:
        """Share of communication of the time in events' ticks, shape (lanes, bins); 0 if none."""
        by_part = self.time_s.sum(axis=1)
        total = by_part.sum(axis=1)
        part = by_part[:, COMMUNICATION]
        return np.asarray(np.divide(part, total, out=np.zeros_like(total), where=total > 0))


def timeline(
    trace: LogicalTrace,
    category: np.ndarray,
    n_categories: int,
    *,
    bins: int,
    max_lanes: int,
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
        Number of categories; time after the last event gets one more.
    bins, max_lanes : int
        Number of bins, and largest number of lanes. Of more processes, neighbours share a lane.
    """
    events = trace.events
    n_processes = len(events.processes)
    lifetime_s = (events.end_ns - events.start_ns) / NS_PER_S
    end_s = float(lifetime_s.max(initial=0.0))
    n_lanes = min(n_processes, max_lanes)
    lane_of = np.arange(n_processes) * n_lanes // max(n_processes, 1)
    time_s = np.zeros((n_lanes, n_categories + 1, 2, bins))
    if end_s < 1 / NS_PER_S:  # less than any clock resolves
        return Timeline(end_s, _lane_names(events.processes, lane_of), time_s)
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
        scale = bins / end_s
        sums = _binned(
            cells, begin * scale, stop * scale,
            n_lanes * (n_categories + 1), bins,
        )  # fmt: skip
        time_s[:, :, part] += sums.reshape(n_lanes, n_categories + 1, bins) / scale
    return Timeline(end_s, _lane_names(events.processes, lane_of), time_s)


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
    return np.asarray(total[:, :bins])


def _lane_names(processes: tuple[str, ...], lane_of: np.ndarray) -> tuple[str, ...]:
    names = []
    for lane in range(int(lane_of.max(initial=-1)) + 1):
        members = np.flatnonzero(lane_of == lane)
        first, last = processes[int(members[0])], processes[int(members[-1])]
        names.append(first if first == last else f"{first} to {last}")
    return tuple(names)


@dataclass(frozen=True)
class CollectiveTraffic:
    """Collectives of one operation in one group.

    Attributes
    ----------
    operation : str
        For example ``MPI_Allreduce``.
    processes : int
        Size of the group; 0 if it is not in the trace.
    calls : int
        Of the process that made most of them.
    size_bytes : int
        Of all processes and calls together.
    time_s : float
        Of all processes together, waiting included.
    """

    operation: str
    processes: int
    calls: int
    size_bytes: int
    time_s: float


@dataclass(frozen=True, eq=False)
class Traffic:
    """Communication of a run.

    Attributes
    ----------
    messages, size_bytes : ndarray of int, shape (processes, processes)
        From the process of the row to the process of the column.
    collectives : tuple of CollectiveTraffic
        The longest time first.
    """

    messages: np.ndarray
    size_bytes: np.ndarray
    collectives: tuple[CollectiveTraffic, ...]

    def summed(self, lanes: int) -> tuple[np.ndarray, np.ndarray]:
        """Return both matrices with neighbouring processes summed, so that so many are left."""
        n = len(self.messages)
        if n <= lanes:
            return self.messages, self.size_bytes
        starts = -(-np.arange(lanes) * n // lanes)
        messages, size_bytes = (
            np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
            for matrix in (self.messages, self.size_bytes)
        )
        return messages, size_bytes


def traffic(events: EventTable) -> Traffic:
    """Sum the communication of a run.

    A message is seen by its sender and by its receiver. Of a pair in which the receiver saw more
    of them, as where the file of the sender is missing, its figures are taken.
    """
    seen_by_sender, seen_by_receiver = _pairs(events, Kind.SEND), _pairs(events, Kind.RECEIVE)
    messages = np.maximum(seen_by_sender[0], seen_by_receiver[0].T)
    by_sender = seen_by_sender[0] == messages
    size_bytes = np.where(by_sender, seen_by_sender[1], seen_by_receiver[1].T)
    return Traffic(messages, size_bytes, _collectives(events))


def _pairs(events: EventTable, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    """Return number and size of the messages by the process that saw them and by its peer."""
    n = len(events.processes)
    peer = events["peer"]
    rows = np.flatnonzero((events["kind"] == kind) & (peer >= 0) & (peer < n))
    matrices = np.zeros((2, n, n), np.int64)
    pair = events["process"][rows], peer[rows]
    np.add.at(matrices[0], pair, 1)
    np.add.at(matrices[1], pair, events["size_bytes"][rows])
    return matrices[0], matrices[1]


def _collectives(events: EventTable) -> tuple[CollectiveTraffic, ...]:
    rows = np.flatnonzero(events["kind"] == Kind.COLLECTIVE)
    group = events["group"][rows].astype(np.int64)
    group[(group < 0) | (group >= len(events.groups))] = len(events.groups)
    keys = events["operation"][rows].astype(np.int64) * (len(events.groups) + 1) + group
    kinds, kind_of = np.unique(keys, return_inverse=True)
    calls = np.zeros((len(kinds), len(events.processes)), np.int64)
    np.add.at(calls, (kind_of, events["process"][rows]), 1)
    sizes = np.bincount(kind_of, events["size_bytes"][rows], len(kinds))
    elapsed_s = (events["end_ns"][rows] - events["start_ns"][rows]) / NS_PER_S
    times = np.bincount(kind_of, np.maximum(elapsed_s, 0), len(kinds))
    members = [len(group) for group in events.groups] + [0]
    operation, number = np.divmod(kinds, len(events.groups) + 1)
    collectives = [
        CollectiveTraffic(
            events.operations[operation[n]], members[number[n]], int(calls[n].max()),
            int(sizes[n]), float(times[n]),
        )
        for n in range(len(kinds))
    ]  # fmt: skip
    return tuple(sorted(collectives, key=lambda traffic: -traffic.time_s))
