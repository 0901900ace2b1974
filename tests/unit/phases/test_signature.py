"""Phases by order of magnitude and their signature: the published segment, and planted runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from event_tables import COLLECTIVE, collective, event_table, local, receive, send
from planted_phases import PHASES, planted
from voxcast.phases.logical import logical_trace
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
