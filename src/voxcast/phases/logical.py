"""The logical trace: events of all processes in the order of their dependences, without clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.events import Kind

if TYPE_CHECKING:
    from voxcast.phases.events import EventTable

_PLAIN = -1  # waits for the event before it in its process only
_UNSET = -1


@dataclass(frozen=True, eq=False)
class LogicalTrace:
    """Events by tick of logical time; a process has at most one event in a tick.

    Attributes
    ----------
    events : EventTable
        The events, by process.
    tick : ndarray of int, shape (events,)
        Tick of each event, from 0; no tick is empty.
    rows : ndarray of int, shape (events,)
        Rows of the events by tick and, within a tick, by process.
    starts : ndarray of int, shape (ticks,)
        Where each tick starts in `rows`.
    missing : tuple of str
        What the trace lacks: that of the events, and events without a counterpart.
    """

    events: EventTable
    tick: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    missing: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of ticks."""
        return len(self.starts)

    def sum_by_tick(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over the events of each tick, of values of shape (events,)."""
        if not len(self):
            return values[:0]
        sums: np.ndarray = np.add.reduceat(values[self.rows], self.starts)
        return sums

    def events_by_tick(self) -> np.ndarray:
        """Return the number of events of each tick, shape (ticks,)."""
        return np.diff(self.starts, append=len(self.rows))

    def by_process(self, values: np.ndarray) -> np.ndarray:
        """Return values of shape (events,) as a matrix of shape (ticks, processes).

        NaN where a process has no event in a tick. The memory is that of ticks times processes.
        """
        matrix = np.full((len(self), len(self.events.processes)), np.nan)
        matrix[self.tick, self.events["process"]] = values
        return matrix

    def elapsed_ns(self) -> np.ndarray:
        """Return the time of each event with the computation before it, shape (events,).

        It runs from the end of the process's event before, or from the start of the process, to
        the end of the event, by the clock of that process.
        """
        process, end_ns = self.events["process"], self.events["end_ns"]
        before = np.roll(end_ns, 1)
        is_first = np.diff(process, prepend=-1) != 0
        before[is_first] = self.events.start_ns[process[is_first]]
        elapsed: np.ndarray = np.maximum(end_ns - before, 0)
        return elapsed


def logical_trace(events: EventTable) -> LogicalTrace:
    """Order events by logical time.

    An event comes one tick after the latest event that it depends on (Lamport 1978): the one
    before it in its process; for a receive also its send; for a collective the events before it in
    all processes of the group, which have it in the same tick. This is the idea of PAS2P, where a
    receive has the logical time of its send plus one (Wong, Rexachs & Luque 2015), except that an
    event never goes before an earlier one of its process.

    Where a trace lacks events, those without a counterpart depend on their process only, and
    `missing` tells of them. It also tells of receives and collectives that wait for each other in
    a circle, as those of non-blocking calls recorded at their start may; the circle is cut at the
    earliest of its receives.
    """
    matching = matched(events)
    tick, circles = _ticks(events, matching)
    rows = np.argsort(tick, kind="stable")
    starts = np.flatnonzero(np.diff(tick[rows], prepend=-1))
    missing = (*events.missing, *matching.missing)
    if circles:
        order = f"the order of events that wait for each other in a circle; circles cut: {circles}"
        missing += (order,)
    return LogicalTrace(events, tick, rows, starts, missing)


def _ticks(events: EventTable, matching: Matching) -> tuple[np.ndarray, int]:
    """Return the tick of each event, and the number of circles that were cut.

    Each process runs until it must wait; every event is visited once. The loop is over lists,
    whose elements are read several times faster than those of arrays.
    """
    # For each event: the row of its send, or -2 minus the number of its collective, or -1.
    in_collective = matching.collective >= 0
    waits_for = np.where(in_collective, -2 - matching.collective, matching.send).tolist()
    members_left = np.bincount(matching.collective[in_collective]).tolist()
    n_processes = len(events.processes)
    bounds = np.searchsorted(events["process"], np.arange(n_processes + 1)).tolist()
    tick: list[int] = [_UNSET] * len(events)
    next_row, now = bounds[:-1], [-1] * n_processes
    gathered: dict[int, list[int]] = {}  # processes that wait in a collective
    receiver: dict[int, int] = {}  # process that waits for the send in a row
    ready = list(range(n_processes))
    circles = 0
    while True:
        while ready:
            process = ready.pop()
            row, clock, stop = next_row[process], now[process], bounds[process + 1]
            while row < stop:
                cause = waits_for[row]
                if cause >= 0:
                    sent = tick[cause]
                    if sent < 0:
                        receiver[cause] = process
                        break
                    clock = max(clock, sent)
                elif cause < _PLAIN and members_left[-2 - cause] > 0:
                    members = gathered.setdefault(cause, [])
                    members.append(process)
                    members_left[-2 - cause] -= 1
                    if members_left[-2 - cause]:
                        break
                    now[process] = clock
                    clock = max(now[member] for member in members)
                    del gathered[cause]
                    members.pop()
                    for member in members:
                        now[member] = clock + 1
                        tick[next_row[member]] = clock + 1
                        next_row[member] += 1
                    ready += members
                clock += 1
                tick[row] = clock
                if row in receiver:
                    ready.append(receiver.pop(row))
                row += 1
            next_row[process], now[process] = row, clock
        if receiver:
            _, process, cause = min((now[p], p, send) for send, p in receiver.items())
            del receiver[cause]
            waits_for[next_row[process]] = _PLAIN
            ready.append(process)
        elif gathered:
            # Those that come later take it as an event of their process alone.
            cause = min(gathered, key=lambda cause: max(now[p] for p in gathered[cause]))
            members_left[-2 - cause] = 0
            ready += gathered.pop(cause)
        else:
            return np.array(tick, dtype=np.int64), circles
        circles += 1


NONE = -1


@dataclass(frozen=True, eq=False)
class Matching:
    """Events that belong together.

    Attributes
    ----------
    send : ndarray of int, shape (events,)
        Row of the send of each receive; -1 for other events, and for receives without a send.
    collective : ndarray of int, shape (events,)
        Number of the collective; -1 for other events.
    missing : tuple of str
        Receives, sends and collectives without a counterpart.
    """

    send: np.ndarray
    collective: np.ndarray
    missing: tuple[str, ...]


def matched(events: EventTable) -> Matching:
    """Match events by their order in each process alone; clocks play no part.

    The nth receive from a process with a tag in a group is that of the nth such send (messages do
    not overtake: MPI 4.1, section 3.5). The nth collective of a process in a group belongs to the
    nth of each other process of that group (MPI 4.1, section 6.14).
    """
    send, unmatched = _sends(events)
    collective, incomplete = _collectives(events)
    return Matching(send, collective, (*unmatched, *incomplete))


def _sends(events: EventTable) -> tuple[np.ndarray, list[str]]:
    import pandas as pd

    kind, process, peer = events["kind"], events["process"].astype(np.int64), events["peer"]
    n_processes = len(events.processes)
    with_peer = (peer >= 0) & (peer < n_processes)
    sends = np.flatnonzero((kind == Kind.SEND) & with_peer)
    receives = np.flatnonzero((kind == Kind.RECEIVE) & with_peer)
    rows = np.concatenate([sends, receives])
    is_send = np.arange(len(rows)) < len(sends)
    sender = np.where(is_send, process[rows], peer[rows])
    receiver = np.where(is_send, peer[rows], process[rows])
    tags, tag_names = pd.factorize(events["tag"][rows])
    groups, group_names = pd.factorize(events["group"][rows])
    channel = (sender * n_processes + receiver) * len(tag_names) + tags
    channels, _ = pd.factorize(channel * len(group_names) + groups)
    n_channels = int(channels.max(initial=-1)) + 1
    sent, received = channels[: len(sends)], channels[len(sends) :]
    by_channel = np.argsort(sent, kind="stable")
    n_sent = np.bincount(sent, minlength=n_channels)
    nth = _nth(received)
    has_send = nth < n_sent[received]
    send = np.full(len(events), NONE)
    position = (np.cumsum(n_sent) - n_sent)[received[has_send]] + nth[has_send]
    send[receives[has_send]] = sends[by_channel[position]]
    n_receives, n_sends = int((kind == Kind.RECEIVE).sum()), int((kind == Kind.SEND).sum())
    n_pairs = int(has_send.sum())
    unmatched = []
    if n_pairs < n_receives:
        unmatched.append(f"the send of {n_receives - n_pairs} of {n_receives} receives")
    if n_pairs < n_sends:
        unmatched.append(f"the receive of {n_sends - n_pairs} of {n_sends} sends")
    return send, unmatched


def _collectives(events: EventTable) -> tuple[np.ndarray, list[str]]:
    import pandas as pd

    group = events["group"]
    in_group = (group >= 0) & (group < len(events.groups))
    rows = np.flatnonzero((events["kind"] == Kind.COLLECTIVE) & in_group)
    n_processes = max(len(events.processes), 1)
    of_group, of_process = group[rows].astype(np.int64), events["process"][rows]
    nth = _nth(of_group * n_processes + of_process)
    n_most = int(nth.max(initial=-1)) + 1
    numbers, _ = pd.factorize(of_group * n_most + nth)
    collective = np.full(len(events), NONE)
    collective[rows] = numbers
    counts = np.zeros((len(events.groups), n_processes), dtype=np.int64)
    np.add.at(counts, (of_group, of_process), 1)
    incomplete = []
    for n, members in enumerate(events.groups):
        most = int(counts[n].max())
        incomplete += [
            f"{most - counts[n, p]} of {most} collectives of group {n} in process "
            f"{events.processes[p]}"
            for p in members
            if 0 <= p < len(events.processes) and counts[n, p] < most
        ]
    without_group = int((events["kind"] == Kind.COLLECTIVE).sum()) - len(rows)
    if without_group:
        incomplete.append(f"the group of {without_group} collectives")
    return collective, incomplete


def _nth(keys: np.ndarray) -> np.ndarray:
    """Return how many equal keys precede each.

    Examples
    --------
    >>> _nth(np.array([7, 3, 7, 7, 3]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(keys, kind="stable")
    is_first = np.diff(keys[order], prepend=keys[order][:1] - 1) != 0
    starts = np.flatnonzero(is_first)
    nth = np.empty(len(keys), dtype=np.int64)
    nth[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(starts, append=len(keys)))
    return nth
