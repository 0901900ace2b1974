"""Phases by order of magnitude, against the published segment and planted phases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from event_tables import collective, event_table, local, receive, send
from planted_phases import PHASES, planted
from voxcast.phases.logical import logical_trace
from voxcast.phases.signature import (
    communication,
    grouped,
    mean_order,
    orders_of_magnitude,
    phases_of,
    simo,
)

PUBLISHED = json.loads(
    (Path(__file__).parents[2] / "data" / "pas2p_deepgalaxy.json").read_text(encoding="utf-8")
)


def traced(*processes):
    return logical_trace(event_table(processes))


def partition(values):
    """The values numbered in the order in which they appear."""
    first = {}
    return [first.setdefault(value, len(first)) for value in values.tolist()]


def test_the_published_orders_sum_to_the_published_simo() -> None:
    rows = PUBLISHED["ticks"]
    complete = [row for row in rows if len(row["orders"]) == 8]
    rng = np.random.default_rng(0)
    digits = rng.uniform(1, 10, (len(complete), 8))
    counts = np.floor(digits * 10.0 ** np.array([row["orders"] for row in complete]))
    trace = traced(*([collective(computation=n) for n in column] for column in counts.T))
    printed = np.array([row["simo"] for row in complete])
    differs = np.flatnonzero(simo(trace) != printed)
    # The last row lacks a process, and seven others do not add up as printed.
    assert len(rows) == len(complete) + 1 == 37
    ticks = [complete[n]["tick"] for n in differs] + [36]
    assert ticks == PUBLISHED["ticks_that_do_not_add_up_as_printed"]


@pytest.mark.parametrize("exponent", range(1, 20))
def test_orders_do_not_err_beside_a_power_of_ten(exponent) -> None:
    power = 10.0**exponent
    below, above = np.nextafter(power, 0), np.nextafter(power, np.inf)
    assert orders_of_magnitude(np.array([below, power, above])).tolist() == [
        exponent - 1, exponent, exponent,
    ]  # fmt: skip


def test_a_process_without_an_event_adds_nothing_and_does_not_count_in_the_mean() -> None:
    trace = traced([send(1, computation=1e6)], [receive(0, computation=1e2)])
    assert simo(trace).tolist() == [6, 2]
    assert mean_order(trace).tolist() == [6, 2]
    both = traced([collective(computation=1e6)], [collective(computation=1e2)])
    assert (simo(both).tolist(), mean_order(both).tolist()) == ([8], [4])


def test_communication_is_operation_and_order_of_size_in_however_many_processes() -> None:
    trace = traced(
        [collective(size_bytes=100), collective(size_bytes=999), collective(size_bytes=1000),
         collective(operation=0, size_bytes=100), collective(size_bytes=100), local(), local()],
        [collective(size_bytes=900), collective(size_bytes=100), collective(size_bytes=1000),
         collective(operation=0, size_bytes=100), collective(size_bytes=1000), local()],
    )  # fmt: skip
    assert partition(communication(trace)) == [0, 0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("n_processes", [4, 16, 64])
def test_planted_phases_are_recovered_at_any_number_of_processes(n_processes, seed) -> None:
    events, truth = planted(n_processes, 600, seed)
    trace = logical_trace(events)
    assert not trace.missing
    phases = phases_of(trace, min_share=0)
    assert adjusted_rand_score(truth, phases.label[trace.tick]) >= 0.95
    assert len(phases.founder) == len(set(truth.tolist())) == 8


def test_simo_with_the_published_tolerance_splits_planted_phases_as_processes_grow() -> None:
    numbers = []
    for n_processes in (4, 64):
        trace = logical_trace(planted(n_processes, 600, 0)[0])
        numbers.append(len(grouped(simo(trace), 1, communication=communication(trace)).founder))
    assert numbers[1] > 1.5 * numbers[0]


def test_the_share_is_of_the_time_of_all_processes() -> None:
    events, _ = planted(4, 600, 0)
    trace = logical_trace(events)
    phases = phases_of(trace, min_share=0.01)
    elapsed_ns = trace.elapsed_ns()
    assert elapsed_ns.sum() == pytest.approx((events.end_ns - events.start_ns).sum(), rel=1e-3)
    for n, share in enumerate(phases.share):
        of_phase = elapsed_ns[phases.label[trace.tick] == n].sum()
        assert of_phase / elapsed_ns.sum() == pytest.approx(share)
    assert phases.share.min() >= 0.01
    assert phases.share.sum() + phases.dropped_share == pytest.approx(1)
    assert phases.dropped_phases == len(PHASES) + 2 - len(phases.founder) > 0
