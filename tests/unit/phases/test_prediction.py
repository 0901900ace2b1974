"""Predictions from the first part of a run: cycles, time, and the level of the interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from event_tables import collective, event_table
from voxcast.errors import ConfigError, RunError
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import (
    backtest,
    calibrated,
    cycles_of,
    error_of_sum_s,
    first_part,
    predict,
)
from voxcast.phases.signature import tick_times

LEVEL = 0.9


def training(rng, epochs=6, steps=16, step_ns=1e6, correlation=0.0):
    """Epochs of steps with three all-reduces and one at the end, after a start of 100 steps."""
    events = [collective(computation=100 * step_ns)]
    level = 0.0
    for _ in range(epochs):
        for _ in range(steps):
            level = correlation * level + rng.normal(0.0, 0.1 * math.sqrt(1 - correlation**2))
            share = step_ns * math.exp(level) / 3
            events += [collective(size_bytes=10**size, computation=share) for size in (5, 4, 3)]
        events.append(collective(size_bytes=4, computation=1e4))
    return logical_trace(event_table([events, events]))


def test_cycles_are_steps_counted_by_what_comes_once_in_each() -> None:
    cycles = cycles_of(training(np.random.default_rng(0)))
    assert cycles.length_ticks == 3
    assert cycles.count == 6 * 16
    assert cycles.counted.startswith("MPI_Allreduce 1")
    assert cycles.first_tick == 1


def test_a_part_with_few_steps_of_an_epoch_is_counted_in_steps() -> None:
    step, epoch = collective(size_bytes=10**5, computation=1e6), collective(size_bytes=1)
    start = [collective(size_bytes=size, computation=1e6) for size in (10**5, 10**2, 10)]
    trace = logical_trace(event_table([start + ([step] * 8 + [epoch]) * 8] * 2))
    cycles, prediction = backtest(trace, 0.2)
    assert (cycles.counted, cycles.count) == ("MPI_Allreduce 100-1000 kB", 12)
    assert prediction.total_s == pytest.approx(tick_times(trace).elapsed_s, rel=0.15)


def test_the_start_is_not_extrapolated() -> None:
    trace = training(np.random.default_rng(1))
    measured_s = tick_times(trace).elapsed_s
    _, prediction = backtest(trace, 0.2)
    assert prediction.total_s == pytest.approx(measured_s, rel=0.02)
    part = first_part(trace, 0.2)
    proportional_s = tick_times(part).elapsed_s / 0.2
    assert proportional_s > 1.5 * measured_s


def test_a_run_without_noise_is_predicted_exactly() -> None:
    steps = [collective(computation=1e6)] * 100
    trace = logical_trace(event_table([steps] * 2))
    part = first_part(trace, 0.25)
    prediction = predict(part, cycles_of(part), 100)
    assert prediction.total_s == pytest.approx(tick_times(trace).elapsed_s, abs=1e-9)
    assert prediction.upper_s - prediction.lower_s == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_batch_means_hold_the_level_where_cycles_depend_on_each_other(correlation) -> None:
    held = []
    for seed in range(100):
        trace = training(np.random.default_rng(seed), epochs=40, correlation=correlation)
        _, prediction = backtest(trace, 0.25, LEVEL)
        held.append(prediction.lower_s <= tick_times(trace).elapsed_s <= prediction.upper_s)
    # With a probability of 0.9, fewer than 83 of 100 would be one case in a hundred.
    assert sum(held) >= 83


def flicker(rng, n):
    """1/f noise with a standard deviation of about 10 %."""
    spectrum = rng.normal(size=n // 2 + 1) + 1j * rng.normal(size=n // 2 + 1)
    spectrum[1:] /= np.sqrt(np.arange(1, n // 2 + 1))
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, n)
    return 1 + 0.1 * noise / noise.std()


def test_of_noise_that_does_not_average_out_the_interval_keeps_its_width() -> None:
    held = 0
    for seed in range(100):
        times_s = flicker(np.random.default_rng(seed), 2000)
        passed_s, ahead_s = times_s[:400], times_s[400:1600]
        error = abs(passed_s.mean() * len(ahead_s) - ahead_s.sum())
        held += error <= error_of_sum_s(passed_s, 1200, LEVEL)
    assert held >= 83


def test_past_runs_make_an_interval_and_their_number_its_level() -> None:
    trace = training(np.random.default_rng(2))
    _, prediction = backtest(trace, 0.2, LEVEL)
    errors = [0.01, -0.02, 0.03, -0.04, 0.05, 0.01, 0.0, -0.1, 0.02]
    result = calibrated(prediction, errors)
    assert result.upper_s == pytest.approx(result.total_s * math.exp(0.1))
    assert result.lower_s == pytest.approx(result.total_s * math.exp(-0.1))
    with pytest.raises(ConfigError, match="needs 9 past runs, not 8"):
        calibrated(prediction, errors[1:])


def test_conformal_intervals_hold_the_level_on_average() -> None:
    rng = np.random.default_rng(3)
    _, prediction = backtest(training(rng), 0.2, LEVEL)
    held = []
    for _ in range(400):
        *past, new = rng.standard_t(3, 20) * 0.05
        result = calibrated(prediction, past)
        measured_s = prediction.total_s * math.exp(new)
        held.append(result.lower_s <= measured_s <= result.upper_s)
    assert 0.86 <= np.mean(held) <= 0.95


def test_a_trace_that_does_not_repeat_itself_is_refused() -> None:
    sizes = [collective(size_bytes=10**n, computation=1e6) for n in range(5)]
    with pytest.raises(RunError, match="no phase recurs in its 5 ticks"):
        cycles_of(logical_trace(event_table([sizes] * 2)))


def test_more_cycles_than_the_run_has_are_refused() -> None:
    trace = training(np.random.default_rng(4))
    with pytest.raises(RunError, match="96 cycles, more than the 90 of the run"):
        predict(trace, cycles_of(trace), 90)


def test_too_few_cycles_have_no_interval() -> None:
    trace = logical_trace(event_table([[collective(computation=1e6)] * 2] * 2))
    assert predict(trace, cycles_of(trace), 100).upper_s == math.inf
