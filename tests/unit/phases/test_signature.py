"""Signatures of planted runs: times that add up, whatever the clocks, and the parts of a run."""

from __future__ import annotations

import numpy as np
import pytest

from event_tables import COLLECTIVE, collective, event_table, receive, send
from voxcast.phases.logical import logical_trace
from voxcast.phases.signature import before_tick, signature, tick_times

STEPS = 50


def program(rng, processes=4, steps=STEPS, start=5e6):
    """Start, then steps of a long and a short computation, jittered and uneven, and a ring."""
    shares = rng.lognormal(0.0, 0.3, processes)
    events = [[collective(computation=start * share)] for share in shares]
    for _ in range(steps):
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
    skews_ns = rng.integers(-(10**12), 10**12, 4).tolist()
    table = event_table(events, skews_ns=skews_ns)
    result = signature(logical_trace(table))
    slowest_s = max((table.end_ns - table.start_ns) / 1e9)
    assert result.elapsed_s == pytest.approx(slowest_s, abs=1e-9)
    assert result.total_s == pytest.approx(slowest_s, abs=1e-9)
    plain = signature(logical_trace(event_table(events)))
    assert [phase.weight for phase in result.phases] == [phase.weight for phase in plain.phases]
    assert [phase.time_s for phase in result.phases] == pytest.approx(
        [phase.time_s for phase in plain.phases]
    )


def test_phases_have_the_times_and_the_communication_that_were_planted() -> None:
    steps = [collective(size_bytes=800, computation=1e6, duration_ns=250_000)] * STEPS
    table = event_table([[collective(computation=9e6, duration_ns=1_000_000), *steps]] * 3)
    first, step = signature(logical_trace(table)).phases
    assert (first.weight, first.time_s) == (1, pytest.approx(10e-3))
    assert (step.weight, step.first_tick) == (STEPS, 1)
    assert step.communication == "MPI_Allreduce 100-1000 B"
    assert step.computation_s == pytest.approx(1e-3)
    assert step.communication_s == pytest.approx(0.25e-3)
    assert step.share == pytest.approx(62.5 / 72.5)


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
    times = tick_times(logical_trace(table))
    assert times.advance_s == pytest.approx([2.0001e-3] * 3)


def test_the_first_part_of_a_run_is_a_run_that_stopped() -> None:
    trace = logical_trace(event_table(program(np.random.default_rng(1))))
    part = before_tick(trace, 40)
    assert len(part) == 40
    assert part.missing == ()
    assert tick_times(part).elapsed_s == pytest.approx(tick_times(trace).advance_s[:40].sum())
    kinds = part.events["kind"] == COLLECTIVE
    assert kinds.sum() % 4 == 0
