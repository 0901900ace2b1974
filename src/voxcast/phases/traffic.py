"""Traffic of a trace: messages between pairs of processes, and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.traces.events import NS_PER_S, Kind

if TYPE_CHECKING:
    from voxcast.phases.traces.events import EventTable


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
        From the process of the row to that of the column.
    collectives : tuple of CollectiveTraffic
        Those with most time first.
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
