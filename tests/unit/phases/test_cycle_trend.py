"""Cycles that get longer or shorter have no interval; those that only vary keep theirs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from event_tables import collective, event_table
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import backtest, cycle_times_s, cycles_of, trend_of
from voxcast.phases.signature import tick_times

N_CYCLES = 300
SHARE = 0.2
PASSED = np.arange(N_CYCLES) / N_CYCLES


def run(times_ms):
    start = collective(computation=5e6)
    steps = [collective(size_bytes=1000, computation=1e6 * time) for time in times_ms]
    return logical_trace(event_table([[start, *steps]] * 2))


def noise(seed):
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.1, N_CYCLES))


@pytest.mark.parametrize(
    "work",
    [1 + 2 * PASSED, 1 + 9 * PASSED, 1000**PASSED, 100**-PASSED, 2.0 ** np.floor(PASSED / 0.15)],
    ids=["to 3 times", "to 10 times", "to 1000 times", "to a 100th", "doubled again and again"],
)
def test_work_that_changes_has_no_interval(work) -> None:
    for seed in range(20):
        _, prediction = backtest(run(work * noise(seed)), SHARE)
        assert prediction.trend is not None
        assert (prediction.trend.last_s > prediction.trend.first_s) == (work[-1] > work[0])
        assert prediction.upper_s == math.inf
        assert prediction.lower_s == prediction.elapsed_s


def test_independent_noise_is_seldom_taken_for_a_trend() -> None:
    seen = sum(trend_of(noise(seed)[:60]) is not None for seed in range(400))
    # Of two tests at 5 % and 1 in 60: more than 40 of 400 would be one case in a thousand.
    assert seen <= 40


def test_times_of_cycles_with_inner_iterations_add_up() -> None:
    """Each cycle has one to four inner steps; ticks alone would not tell how cycles vary."""
    rng = np.random.default_rng(1)
    events = []
    for inner in rng.integers(1, 5, 200).tolist():
        events += [collective(size_bytes=10, computation=1e6)] * inner
        events += [collective(size_bytes=10**4, computation=1e5)]
    trace = logical_trace(event_table([events] * 2))
    cycles, times = cycles_of(trace), tick_times(trace)
    cycle_s = cycle_times_s(trace, cycles, times.advance_s)
    assert len(cycle_s) == cycles.repeated
    # The outer step that follows the last tick that is counted is in no cycle.
    part = times.advance_s[cycles.first_tick : cycles.stop_tick - 1]
    assert cycle_s.sum() == pytest.approx(part.sum())


def test_inner_iterations_that_vary_are_in_the_interval() -> None:
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        events = []
        for inner in rng.geometric(0.25, 250).tolist():
            events += [collective(size_bytes=10, computation=1e6)] * inner
            events += [collective(size_bytes=10**4, computation=1e5)]
        trace = logical_trace(event_table([events] * 2))
        _, prediction = backtest(trace, SHARE)
        if not prediction.trend:
            measured_s = tick_times(trace).elapsed_s
            held.append(prediction.lower_s <= measured_s <= prediction.upper_s)
    assert len(held) >= 40
    assert np.mean(held) >= 0.8
