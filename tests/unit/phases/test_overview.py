"""Time of processes in bins, and traffic, of small tables of events and of a recorded run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_tables import collective, event_table, receive, send
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.overview import (
    COMMUNICATION,
    COMPUTATION,
    timeline,
    trace_overview,
    traffic,
)
from voxcast.phases.signature import phases_of

SAMPLE = Path(__file__).parents[2] / "samples" / "kmeans_mpi_trace"
NS = 1e-9


def alternating(n, computation=3000, duration_ns=1000):
    """Events of one process that come every so many ns."""
    return [collective(computation=computation, duration_ns=duration_ns) for _ in range(n)]


def test_bins_have_the_time_of_computation_and_communication() -> None:
    trace = logical_trace(event_table([alternating(2), alternating(2)], skews_ns=[0, 10**12]))
    category = np.array([0, 1])
    line = timeline(trace, category, 2, bins=4, max_lanes=8)
    assert line.end_s == pytest.approx(8000 * NS)
    of_first = line.time_s[0] / NS
    assert of_first[0, COMPUTATION].tolist() == pytest.approx([2000, 1000, 0, 0])
    assert of_first[0, COMMUNICATION].tolist() == pytest.approx([0, 1000, 0, 0])
    assert of_first[1, COMPUTATION].tolist() == pytest.approx([0, 0, 2000, 1000])
    assert of_first[1, COMMUNICATION].tolist() == pytest.approx([0, 0, 0, 1000])
    assert not of_first[2].any()
    np.testing.assert_allclose(line.time_s[1], line.time_s[0])  # whatever its clock is
    assert line.category.tolist() == [[0, 0, 1, 1]] * 2
    np.testing.assert_allclose(line.communication_share, [[0, 0.5, 0, 0.5]] * 2)


def test_what_is_after_the_last_event_and_after_the_end_differs() -> None:
    table = event_table([alternating(1), alternating(1)])
    table = replace(table, end_ns=np.array([8000, 4000]))
    line = timeline(logical_trace(table), np.array([0]), 1, bins=2, max_lanes=2)
    assert line.category.tolist() == [[0, 1], [0, -1]]


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 5000), st.integers(0, 3000)), min_size=1, max_size=12
        ),
        min_size=1, max_size=7,
    ),
    st.integers(1, 13), st.integers(1, 9),
)  # fmt: skip
def test_no_time_is_lost_or_counted_twice(programs, bins, max_lanes) -> None:
    table = event_table([
        [{"computation": before, "duration_ns": length} for before, length in program]
        for program in programs
    ])  # fmt: skip
    trace = logical_trace(table)
    category = np.arange(len(trace)) % 3
    line = timeline(trace, category, 3, bins=bins, max_lanes=max_lanes)
    lifetimes = (table.end_ns - table.start_ns) * NS
    assert len(line.lanes) == min(len(programs), max_lanes)
    assert (line.time_s >= -1e-12).all()
    assert line.time_s.sum() == pytest.approx(lifetimes.sum(), abs=1e-12)
    communication_s = sum(length for program in programs for _, length in program) * NS
    assert line.time_s[:, :, COMMUNICATION].sum() == pytest.approx(communication_s, abs=1e-12)


def test_neighbours_share_a_lane_where_processes_are_many() -> None:
    trace = logical_trace(event_table([alternating(1)] * 10))
    line = timeline(trace, np.array([0]), 1, bins=2, max_lanes=4)
    assert line.lanes == ("rank 0 to rank 2", "rank 3 to rank 4", "rank 5 to rank 7",
                          "rank 8 to rank 9")  # fmt: skip
    np.testing.assert_allclose(line.time_s.sum(axis=(1, 2, 3)), [12e-6, 8e-6, 12e-6, 8e-6])


def test_traffic_counts_a_message_once_and_takes_the_side_that_saw_more() -> None:
    programs = [
        [send(1, size_bytes=100), send(1, size_bytes=50), collective(size_bytes=8)],
        [receive(0, size_bytes=100), receive(0, size_bytes=50), collective(size_bytes=8)],
        [receive(0, size_bytes=7), collective(size_bytes=8), collective(group=1, size_bytes=4)],
    ]
    counted = traffic(event_table(programs, groups=[(0, 1, 2), (2,)]))
    assert counted.messages.tolist() == [[0, 2, 1], [0, 0, 0], [0, 0, 0]]
    assert counted.size_bytes.tolist() == [[0, 150, 7], [0, 0, 0], [0, 0, 0]]
    rows = {(c.processes, c.calls, c.size_bytes) for c in counted.collectives}
    assert rows == {(3, 1, 24), (1, 1, 4)}
    messages, size_bytes = counted.summed(2)
    assert (messages.tolist(), size_bytes.tolist()) == ([[2, 1], [0, 0]], [[150, 7], [0, 0]])


def test_an_overview_of_a_recorded_run_adds_up() -> None:
    trace = logical_trace(read_trace(SAMPLE))
    overview = trace_overview(trace, phases_of(trace), bins=50, max_lanes=8)
    run = overview.signature
    assert run.phases[overview.order[0]].weight == 40  # the iterations
    assert run.phases[overview.order[0]].communication == "MPI_Allreduce 1-10 kB"
    content = overview.as_json()
    assert [phase["mark"] for phase in content["phases"]] == ["B", "A"]
    assert content["messages"] == []
    by_process = content["by_process"]
    lifetimes = (trace.events.end_ns - trace.events.start_ns) * NS
    for n, part in enumerate(by_process):
        parts_s = part["computation_s"] + part["communication_s"] + part["after_s"]
        assert parts_s == pytest.approx(lifetimes[n])
    communication_s = sum(part["communication_s"] for part in by_process)
    in_events_s = communication_s + sum(part["computation_s"] for part in by_process)
    assert communication_s / in_events_s == pytest.approx(run.communication_share)
    assert sum(collective.calls for collective in overview.traffic.collectives) == 42
    # The last call may return microseconds after the recorder noted the end.
    assert overview.timeline.time_s.sum() == pytest.approx(lifetimes.sum(), rel=1e-5)
