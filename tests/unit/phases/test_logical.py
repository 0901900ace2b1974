"""The logical order, phases and their signature, and their overview."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from event_tables import COLLECTIVE, PHASES, collective, event_table, local, planted, receive, send
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.overview import COMMUNICATION, COMPUTATION, timeline, trace_overview, traffic
from voxcast.phases.signature import (
    before_tick,
    communication,
    grouped,
    mean_order,
    orders_of_magnitude,
    phases_of,
    signature,
    simo,
    tick_times,
)


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


PUBLISHED = json.loads(
    (Path(__file__).parents[2] / "data" / "pas2p_deepgalaxy.json").read_text(encoding="utf-8")
)
STEPS = 50


def traced(*processes, **options):
    return logical_trace(event_table(processes, **options))


def test_the_published_orders_sum_to_the_published_simo() -> None:
    rows = PUBLISHED["ticks"]
    complete = [row for row in rows if len(row["orders"]) == 8]
    digits = np.random.default_rng(0).uniform(1, 10, (len(complete), 8))
    counts = np.floor(digits * 10.0 ** np.array([row["orders"] for row in complete]))
    trace = traced(*([collective(computation=n) for n in column] for column in counts.T))
    differs = np.flatnonzero(simo(trace) != np.array([row["simo"] for row in complete]))
    # The last row lacks a process, and seven others do not add up as printed.
    assert len(rows) == len(complete) + 1 == 37
    ticks = [complete[n]["tick"] for n in differs] + [36]
    assert ticks == PUBLISHED["ticks_that_do_not_add_up_as_printed"]


def test_the_published_segment_has_the_published_phases() -> None:
    phases = grouped(np.array([row["simo"] for row in PUBLISHED["ticks"]]), 1, min_share=0.01)
    assert phases.founder.tolist() == PUBLISHED["tolerance_1"]["founders"]
    assert phases.weight.tolist() == PUBLISHED["tolerance_1"]["weights"]
    assert (phases.dropped_phases, phases.dropped_share) == (0, 0)
    for n, ticks in enumerate(phases.ticks()):
        assert np.array_equal(np.flatnonzero(phases.label == n), ticks)
        assert ticks[0] == phases.first_tick[n]


def grouped_one_by_one(values, kinds, tolerance):
    """The definition, a tick at a time."""
    founders, labels = [], []
    for value, kind in zip(values, kinds, strict=True):
        for n, (founder, founder_kind) in enumerate(founders):
            if founder_kind == kind and abs(value - founder) <= tolerance:
                labels.append(n)
                break
        else:
            labels.append(len(founders))
            founders.append((value, kind))
    return labels, [value for value, _ in founders]


@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 2)), max_size=60),
    st.integers(0, 12),
    st.sampled_from([1, 8]),  # eighths are exact in binary, so that both sides round alike
)
def test_grouping_is_as_tick_by_tick(ticks, tolerance, divisor) -> None:
    values = np.array([value for value, _ in ticks]) / divisor
    kinds = np.array([kind for _, kind in ticks], dtype=np.int64)
    labels, founders = grouped_one_by_one(values.tolist(), kinds.tolist(), tolerance / divisor)
    phases = grouped(values, tolerance / divisor, communication=kinds)
    assert (phases.label.tolist(), phases.founder.tolist()) == (labels, founders)
    assert phases.first_tick.tolist() == [labels.index(n) for n in range(len(founders))]


def test_phases_with_a_small_share_of_the_time_are_dropped_and_counted() -> None:
    phases = grouped(np.array([3] * 60 + [9] + [5] * 38 + [7]), min_share=0.02)
    assert phases.founder.tolist() == [3, 5]
    assert phases.label[[0, 60, 61, 99]].tolist() == [0, -1, 1, -1]
    assert (phases.dropped_phases, phases.dropped_share) == (2, pytest.approx(0.02))
    seconds = np.array([0.0001] * 99 + [10.0])
    by_time = grouped(np.array([3] * 99 + [9]), duration=seconds, min_share=0.01)
    assert by_time.founder.tolist() == [9]
    assert by_time.dropped_share == pytest.approx(0.0099 / 10.0099)


@pytest.mark.parametrize(
    ("values", "options"),
    [([1.0, np.nan], {}), ([1], {"tolerance": -1}), ([1], {"min_share": 1.5})],
)
def test_nonsense_is_refused(values, options) -> None:
    with pytest.raises(ValueError, match=r"finite|out of range"):
        grouped(np.array(values), **options)


@pytest.mark.parametrize("exponent", range(1, 20))
def test_orders_do_not_err_beside_a_power_of_ten(exponent) -> None:
    power = 10.0**exponent
    beside = np.array([np.nextafter(power, 0), power, np.nextafter(power, np.inf)])
    assert orders_of_magnitude(beside).tolist() == [exponent - 1, exponent, exponent]


def test_a_process_without_an_event_adds_nothing_and_does_not_count_in_the_mean() -> None:
    apart = traced([send(1, computation=1e6)], [receive(0, computation=1e2)])
    both = traced([collective(computation=1e6)], [collective(computation=1e2)])
    assert (simo(apart).tolist(), mean_order(apart).tolist()) == ([6, 2], [6, 2])
    assert (simo(both).tolist(), mean_order(both).tolist()) == ([8], [4])


def test_communication_is_operation_and_order_of_size_in_however_many_processes() -> None:
    trace = traced(
        [collective(size_bytes=100), collective(size_bytes=999), collective(size_bytes=1000),
         collective(operation=0, size_bytes=100), collective(size_bytes=100), local(), local()],
        [collective(size_bytes=900), collective(size_bytes=100), collective(size_bytes=1000),
         collective(operation=0, size_bytes=100), collective(size_bytes=1000), local()],
    )  # fmt: skip
    assert communication(trace).tolist() == [0, 0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(("n_processes", "seed"), [(4, 0), (4, 1), (16, 0), (64, 1)])
def test_planted_phases_are_recovered_at_any_number_of_processes(n_processes, seed) -> None:
    events, truth = planted(n_processes, 600, seed)
    trace = logical_trace(events)
    assert not trace.missing
    phases = phases_of(trace, min_share=0)
    assert adjusted_rand_score(truth, phases.label[trace.tick]) >= 0.95
    assert len(phases.founder) == len(set(truth.tolist())) == 8


def test_simo_with_the_published_tolerance_splits_planted_phases_as_processes_grow() -> None:
    traces = [logical_trace(planted(n_processes, 600, 0)[0]) for n_processes in (4, 64)]
    few, many = (
        len(grouped(simo(trace), 1, communication=communication(trace)).founder)
        for trace in traces
    )
    assert many > 1.5 * few


def test_the_share_is_of_the_time_of_all_processes() -> None:
    events, _ = planted(4, 600, 0)
    trace = logical_trace(events)
    phases = phases_of(trace, min_share=0.01)
    elapsed_ns = trace.elapsed_ns()
    assert elapsed_ns.sum() == pytest.approx((events.end_ns - events.start_ns).sum(), rel=1e-3)
    label = phases.label[trace.tick]
    of_phase = np.bincount(label[label >= 0], elapsed_ns[label >= 0])
    assert phases.share == pytest.approx(of_phase / elapsed_ns.sum())
    assert phases.share.sum() + phases.dropped_share == pytest.approx(1)
    assert phases.dropped_phases == len(PHASES) + 2 - len(phases.founder) > 0


def program(rng, processes=4, start=5e6):
    """Start, then steps of a long and a short computation, jittered and uneven, and a ring."""
    shares = rng.lognormal(0.0, 0.3, processes)
    events = [[collective(computation=start * share)] for share in shares]
    for _ in range(STEPS):
        for process, share in enumerate(shares):
            jitter = rng.normal(1.0, 0.1, 3)
            events[process] += [
                collective(size_bytes=800, computation=1e6 * share * jitter[0]),
                send((process + 1) % processes, computation=3e3 * jitter[1]),
                receive((process - 1) % processes, computation=2e3 * jitter[2]),
            ]
    return events


@pytest.mark.parametrize("seed", range(5))
def test_times_add_up_to_the_elapsed_time_of_the_slowest_process_with_any_clocks(seed) -> None:
    rng = np.random.default_rng(seed)
    events = program(rng)
    table = event_table(events, skews_ns=rng.integers(-(10**12), 10**12, 4).tolist())
    result, plain = signature(logical_trace(table)), signature(traced(*events))
    slowest_s = max((table.end_ns - table.start_ns) / 1e9)
    assert [result.elapsed_s, result.total_s] == pytest.approx([slowest_s] * 2, abs=1e-9)
    assert [phase.weight for phase in result.phases] == [phase.weight for phase in plain.phases]
    assert [phase.time_s for phase in result.phases] == pytest.approx(
        [phase.time_s for phase in plain.phases]
    )


def test_phases_have_the_times_and_the_communication_that_were_planted() -> None:
    steps = [collective(size_bytes=800, computation=1e6, duration_ns=250_000)] * STEPS
    start = collective(computation=9e6, duration_ns=1_000_000)
    first, step = signature(traced(*[[start, *steps]] * 3)).phases
    assert (first.weight, first.time_s) == (1, pytest.approx(10e-3))
    assert (step.weight, step.first_tick) == (STEPS, 1)
    assert step.communication == "MPI_Allreduce 100-1000 B"
    times = [step.computation_s, step.communication_s, step.share]
    assert times == pytest.approx([1e-3, 0.25e-3, 62.5 / 72.5])


def test_dropped_phases_and_the_end_are_accounted_for() -> None:
    rare = [collective(size_bytes=10**6, computation=10.0)]
    steps = [collective(computation=1e6)] * STEPS
    table = event_table([[*steps, *rare, *steps]] * 2)
    table.end_ns[1] += 5_000_000
    result = signature(logical_trace(table))
    assert [phase.weight for phase in result.phases] == [2 * STEPS]
    assert (result.dropped_phases, result.dropped_s) == (1, pytest.approx(110e-9))
    assert result.after_s == pytest.approx(5e-3)
    assert result.total_s == pytest.approx(result.elapsed_s)


def test_the_front_is_that_of_the_process_that_works_alone() -> None:
    table = event_table([[collective(computation=1e6)], [collective(computation=2e6)] * 3],
                        groups=((0,), (1,)))  # fmt: skip
    table.columns["group"][:] = [0, 1, 1, 1]
    assert tick_times(logical_trace(table)).advance_s == pytest.approx([2.0001e-3] * 3)


def test_the_first_part_of_a_run_is_a_run_that_stopped() -> None:
    trace = traced(*program(np.random.default_rng(1)))
    part = before_tick(trace, 40)
    assert (len(part), part.missing) == (40, ())
    assert tick_times(part).elapsed_s == pytest.approx(tick_times(trace).advance_s[:40].sum())
    assert (part.events["kind"] == COLLECTIVE).sum() % 4 == 0


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
