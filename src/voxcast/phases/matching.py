"""Which receive belongs to which send, and which events are one collective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.traces.events import Kind

if TYPE_CHECKING:
    from voxcast.phases.traces.events import EventTable

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
