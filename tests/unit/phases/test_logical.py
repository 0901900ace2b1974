"""The logical order: a linear extension of happened-before, and partial traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_tables import collective, event_table, local, receive, send
from voxcast.phases.logical import logical_trace


def ticks(*processes, **options):
    trace = logical_trace(event_table(processes, **options))
    split = np.cumsum([len(events) for events in processes])[:-1]
    return [part.tolist() for part in np.split(trace.tick, split)], trace.missing


@st.composite
def executed_programs(draw):
    """A program as it ran: events by process, and the vector clock of each.

    It is run one step after another in one order that could have been; the vector clocks
    (Fidge 1988, Mattern 1989) are kept by each process and sent along with its messages.
    """
    n = draw(st.integers(1, 5))
    groups = [tuple(range(n)), *draw(st.lists(
        st.lists(st.integers(0, n - 1), min_size=1, unique=True).map(lambda g: tuple(sorted(g))),
        max_size=2))]  # fmt: skip
    clocks, programs, stamps = (
        np.zeros((n, n), int),
        [[] for _ in range(n)],
        [[] for _ in range(n)],
    )
    in_flight = {}

    def step(process, event, *others):
        clocks[process][process] += 1
        for other in others:
            np.maximum(clocks[process], other, out=clocks[process])
        programs[process].append(event)
        stamps[process].append(clocks[process].copy())

    for _ in range(draw(st.integers(0, 40))):
        process, choice = draw(st.integers(0, n - 1)), draw(st.integers(0, 3))
        if choice == 0:
            step(process, local())
        elif choice == 1:
            peer, tag = draw(st.integers(0, n - 1)), draw(st.integers(-1, 1))
            step(process, send(peer, tag))
            in_flight.setdefault((process, peer, tag), []).append(clocks[process].copy())
        elif choice == 2 and in_flight:
            channel = draw(st.sampled_from(sorted(in_flight)))
            sender, receiver, tag = channel
            step(receiver, receive(sender, tag), in_flight[channel].pop(0))
            if not in_flight[channel]:
                del in_flight[channel]
        elif choice == 3:
            group = draw(st.integers(0, len(groups) - 1))
            members = list(groups[group])
            clocks[members, members] += 1
            clocks[members] = clocks[members].max(axis=0)
            for member in members:
                programs[member].append(collective(group))
                stamps[member].append(clocks[member].copy())
    skews_ns = draw(st.lists(st.integers(-(10**12), 10**12), min_size=n, max_size=n))
    return programs, stamps, groups, skews_ns


@settings(max_examples=100)
@given(executed_programs())
def test_the_order_extends_happened_before(program) -> None:
    programs, stamps, groups, skews_ns = program
    trace = logical_trace(event_table(programs, tuple(groups), skews_ns))
    stamp = np.array([s for stamps_of in stamps for s in stamps_of]).reshape(-1, len(programs))
    not_after = (stamp[:, None] <= stamp[None]).all(axis=2)
    before = not_after & ~not_after.T
    assert (trace.tick[:, None] < trace.tick[None])[before].all()
    together = not_after & not_after.T  # members of one collective, and each event with itself
    assert (trace.tick[:, None] == trace.tick[None])[together].all()
    pairs = np.stack([trace.tick, trace.events["process"]])
    assert len(np.unique(pairs, axis=1).T) == len(trace.tick)  # one event of a process a tick
    assert np.array_equal(np.unique(trace.tick), np.arange(len(trace)))
    # No tick is later than need be: each event but those of the first tick has a cause one before.
    is_next = trace.tick[:, None] + 1 == trace.tick[None]
    assert (before & is_next).any(axis=0)[trace.tick > 0].all()
    assert not any("circle" in problem for problem in trace.missing)


def test_messages_of_a_tag_do_not_overtake() -> None:
    order, _ = ticks([send(1, 7), local(), send(1, 8), send(1, 7)],
                     [receive(0, 8), receive(0, 7), receive(0, 7)])  # fmt: skip
    assert order == [[0, 1, 2, 3], [3, 4, 5]]


def test_a_rank_that_stops_early() -> None:
    order, missing = ticks([collective(), send(1), collective(), collective()],
                           [collective()], [collective(), receive(1), collective()])  # fmt: skip
    assert order == [[0, 1, 2, 3], [0], [0, 1, 2]]
    assert missing == (
        "the send of 1 of 1 receives", "the receive of 1 of 1 sends",
        "2 of 3 collectives of group 0 in process rank 1",
        "1 of 3 collectives of group 0 in process rank 2",
    )  # fmt: skip


def test_unknown_peers_and_groups() -> None:
    order, missing = ticks([receive(-1), receive(9), collective(-1), collective(5), local()])
    assert order == [[0, 1, 2, 3, 4]]
    assert missing == ("the send of 2 of 2 receives", "the group of 2 collectives")


@pytest.mark.parametrize(
    ("processes", "order"),
    [
        (([receive(1), send(1)], [receive(0), send(0)]), [[0, 1], [2, 3]]),
        (([collective(0), collective(1)], [collective(1), collective(0)]), [[1, 2], [0, 1]]),
        (([receive(1), collective()], [collective(), send(0)]), [[0, 1], [1, 2]]),
    ],
)
def test_circles_are_cut_and_told(processes, order) -> None:
    result, missing = ticks(*processes, groups=((0, 1), (0, 1)))
    assert result == order
    assert (
        missing[-1] == "the order of events that wait for each other in a circle; circles cut: 1"
    )


def test_a_table_without_events() -> None:
    trace = logical_trace(event_table([[], []]))
    assert len(trace) == 0
    assert len(trace.sum_by_tick(trace.elapsed_ns())) == 0


def test_elapsed_time_is_that_of_each_clock() -> None:
    events = event_table(
        [[local(computation=50.0), local(computation=0.0, duration_ns=0)], [local()]],
        skews_ns=[10**9, -(10**9)],
    )
    trace = logical_trace(events)
    assert trace.elapsed_ns().tolist() == [150, 0, 1100]
    assert trace.sum_by_tick(trace.elapsed_ns()).tolist() == [1250, 0]
