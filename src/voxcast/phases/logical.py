"""The logical trace: events of all processes in the order of their dependences, without clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

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
        Gaps of the recorded events, and events without a counterpart.
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
        return np.asarray(np.add.reduceat(values[self.rows], self.starts))

    def events_by_tick(self) -> np.ndarray:
        """Return the number of events of each tick, shape (ticks,)."""
        return np.diff(self.starts, append=len(self.rows))

    def elapsed_ns(self) -> np.ndarray:
        """Return the time of each event with the computation before it, shape (events,).

        It runs from the end of the process's event before, or from the start of the process, to
        the end of the event, by the clock of that process.
        """
        process, end_ns = self.events["process"], self.events["end_ns"]
        before = np.roll(end_ns, 1)
        is_first = np.diff(process, prepend=-1) != 0
        before[is_first] = self.events.start_ns[process[is_first]]
        return np.asarray(np.maximum(end_ns - before, 0))


def logical_trace(events: EventTable) -> LogicalTrace:
    """Order events by logical time.

    An event comes one tick after the latest event that it depends on (Lamport 1978): the one
    before it in its process; for a receive also its send; for a collective the events before it in
    all processes of the group, which have it in the same tick. This is the idea of PAS2P, where a
    receive has the logical time of its send plus one (Wong, Rexachs & Luque 2015), except that an
    event never goes before an earlier one of its process.

    The nth receive from a process with a tag in a group belongs to the nth such send (messages do
    not overtake: MPI 4.1, section 3.5). The nth collective of a process in a group belongs to the
    nth of each other process of that group (MPI 4.1, section 6.14). Clocks play no part.

    Where a trace lacks events, their counterparts depend on their process only, and `missing`
    counts them. It also counts receives and collectives that wait for each other in a circle, as
    non-blocking calls recorded at their start may; the circle is cut at the earliest of its
    receives.
    """
    send, unmatched = _sends(events)
    collective, incomplete = _collectives(events)
    tick, circles = _ticks(events, send, collective)
    rows = np.argsort(tick, kind="stable")
    starts = np.flatnonzero(np.diff(tick[rows], prepend=-1))
    missing = (*events.missing, *unmatched, *incomplete)
    if circles:
        order = f"the order of events that wait for each other in a circle; circles cut: {circles}"
        missing += (order,)
    return LogicalTrace(events, tick, rows, starts, missing)


def _ticks(events: EventTable, send: np.ndarray, collective: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the tick of each event, and the number of circles that were cut.

    Each process runs until it must wait; every event is visited once. The loop is over lists,
    whose elements are read several times faster than elements of arrays.
    """
    # For each event: the row of its send, or -2 minus the number of its collective, or -1.
    in_collective = collective >= 0
    waits_for = np.where(in_collective, -2 - collective, send).tolist()
    members_left = np.bincount(collective[in_collective]).tolist()
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
            # Processes that come later take it as an event of their own.
            cause = min(gathered, key=lambda cause: max(now[p] for p in gathered[cause]))
            members_left[-2 - cause] = 0
            ready += gathered.pop(cause)
        else:
            return np.array(tick, dtype=np.int64), circles
        circles += 1


def _sends(events: EventTable) -> tuple[np.ndarray, list[str]]:
    """Return the row of the send of each receive, -1 elsewhere; and how many lack each other."""
    kind, peer = events["kind"], events["peer"]
    with_peer = (peer >= 0) & (peer < len(events.processes))
    columns = {name: events[name] for name in ("process", "peer", "tag", "group")}
    frame = pd.DataFrame(columns | {"row": np.arange(len(events))})
    sends = frame[(kind == Kind.SEND) & with_peer]
    receives = frame[(kind == Kind.RECEIVE) & with_peer]
    receives = receives.rename(columns={"process": "peer", "peer": "process"})
    keys = list(columns)
    sends, receives = (
        part.assign(nth=part.groupby(keys).cumcount()) for part in (sends, receives)
    )
    pairs = receives.merge(sends, on=[*keys, "nth"], suffixes=("", "_of_send"))
    send = np.full(len(events), -1)
    send[pairs["row"]] = pairs["row_of_send"]
    unmatched = []
    for side, other, kind_of_side in (
        ("send", "receives", Kind.RECEIVE), ("receive", "sends", Kind.SEND),
    ):  # fmt: skip
        count = int((kind == kind_of_side).sum())
        if len(pairs) < count:
            unmatched.append(f"the {side} of {count - len(pairs)} of {count} {other}")
    return send, unmatched


def _collectives(events: EventTable) -> tuple[np.ndarray, list[str]]:
    """Return the number of the collective of each event, -1 elsewhere; and members without it."""
    is_collective, group = events["kind"] == Kind.COLLECTIVE, events["group"]
    rows = np.flatnonzero(is_collective & (group >= 0) & (group < len(events.groups)))
    frame = pd.DataFrame({"group": group[rows], "process": events["process"][rows]})
    frame["nth"] = frame.groupby(["group", "process"]).cumcount()
    collective = np.full(len(events), -1)
    collective[rows] = frame.groupby(["group", "nth"], sort=False).ngroup()
    counts = frame.groupby(["group", "process"]).size().to_dict()
    incomplete = []
    for n, members in enumerate(events.groups):
        of_members = {p: counts.get((n, p), 0) for p in range(len(events.processes))}
        most = max(of_members.values(), default=0)
        incomplete += [
            f"{most - of_members[p]} of {most} collectives of group {n} in process "
            f"{events.processes[p]}"
            for p in members
            if p in of_members and of_members[p] < most
        ]
    without_group = int(is_collective.sum()) - len(rows)
    if without_group:
        incomplete.append(f"the group of {without_group} collectives")
    return collective, incomplete
