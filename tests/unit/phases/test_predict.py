"""Times from the first part of a run, or from a short one elsewhere, and their intervals."""

import math

import numpy as np
import pytest

from event_tables import collective, event_table
from voxcast.errors import RunError
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import (
    aligned_ticks,
    backtest,
    cycle_times_s,
    cycles_of,
    error_of_sum_s,
    first_part,
    predict,
    transfer,
    trend_of,
)
from voxcast.phases.signature import tick_times

LEVEL, SHARE = 0.9, 0.2
N_CYCLES = 300
PASSED = np.arange(N_CYCLES) / N_CYCLES


def alike(events, processes=2):
    """A run of processes that do the same."""
    return logical_trace(event_table([events] * processes))


def training(rng, epochs=6, steps=16, correlation=0.0):
    """Epochs of steps with three all-reduces and one at the end, after a start of 100 steps."""
    events = [collective(computation=1e8)]
    level = 0.0
    for _ in range(epochs):
        for _ in range(steps):
            level = correlation * level + rng.normal(0.0, 0.1 * math.sqrt(1 - correlation**2))
            share = 1e6 * math.exp(level) / 3
            events += [collective(size_bytes=10**size, computation=share) for size in (5, 4, 3)]
        events.append(collective(size_bytes=4, computation=1e4))
    return alike(events)


def with_inner_iterations(counts):
    """Cycles of as many inner steps as `counts` tells, and one outer step."""
    events = []
    for inner in counts.tolist():
        events += [collective(size_bytes=10, computation=1e6)] * inner
        events += [collective(size_bytes=10**4, computation=1e5)]
    return alike(events)


def growing(work):
    """A start, and a step for each number of ms of work."""
    steps = [collective(size_bytes=1000, computation=1e6 * float(time)) for time in work]
    return alike([collective(computation=5e6), *steps])


def test_cycles_are_steps_counted_by_what_comes_once_in_each() -> None:
    cycles = cycles_of(training(np.random.default_rng(0)))
    assert (cycles.length_ticks, cycles.count, cycles.first_tick) == (3, 6 * 16, 1)
    assert cycles.counted.startswith("MPI_Allreduce 1")


def test_a_part_with_few_steps_of_an_epoch_is_counted_in_steps() -> None:
    step, epoch = collective(size_bytes=10**5, computation=1e6), collective(size_bytes=1)
    start = [collective(size_bytes=size, computation=1e6) for size in (10**5, 10**2, 10)]
    trace = alike(start + ([step] * 8 + [epoch]) * 8)
    cycles, prediction = backtest(trace, SHARE)
    assert (cycles.counted, cycles.count) == ("MPI_Allreduce 100-1000 kB", 12)
    assert prediction.total_s == pytest.approx(tick_times(trace).elapsed_s, rel=0.15)


def test_the_start_is_not_extrapolated() -> None:
    trace = training(np.random.default_rng(1))
    measured_s = tick_times(trace).elapsed_s
    assert backtest(trace, SHARE)[1].total_s == pytest.approx(measured_s, rel=0.02)
    assert tick_times(first_part(trace, SHARE)).elapsed_s / SHARE > 1.5 * measured_s


def test_a_run_without_noise_is_predicted_exactly() -> None:
    trace = alike([collective(computation=1e6)] * 100)
    _, prediction = backtest(trace, 0.25)
    assert prediction.total_s == pytest.approx(tick_times(trace).elapsed_s, abs=1e-9)
    assert prediction.upper_s - prediction.lower_s == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_batch_means_hold_the_level_where_cycles_depend_on_each_other(correlation) -> None:
    held = 0
    for seed in range(25):
        trace = training(np.random.default_rng(seed), epochs=40, correlation=correlation)
        _, prediction = backtest(trace, 0.25, LEVEL)
        held += prediction.lower_s <= tick_times(trace).elapsed_s <= prediction.upper_s
    # With a probability of 0.9, fewer than 19 of 25 would be one case in a hundred.
    assert held >= 19


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


@pytest.mark.parametrize(
    ("trace", "cycles", "problem"),
    [
        (alike([collective(size_bytes=10**n, computation=1e6) for n in range(5)]), 9,
         "no phase recurs in its 5 ticks"),
        (training(np.random.default_rng(4)), 90, "96 cycles, more than the 90 of the run"),
    ],
    ids=["no repetition", "more cycles than the run"],
)  # fmt: skip
def test_what_cannot_be_predicted_is_refused(trace, cycles, problem) -> None:
    with pytest.raises(RunError, match=problem):
        predict(trace, cycles_of(trace), cycles)


def test_too_few_cycles_have_no_interval() -> None:
    trace = alike([collective(computation=1e6)] * 2)
    assert predict(trace, cycles_of(trace), 100).upper_s == math.inf


def noise(seed):
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.1, N_CYCLES))


@pytest.mark.parametrize(
    "work",
    [1 + 2 * PASSED, 1000**PASSED, 100**-PASSED, 2.0 ** np.floor(PASSED / 0.15)],
    ids=["to 3 times", "to 1000 times", "to a 100th", "doubled again and again"],
)
def test_work_that_changes_has_no_interval(work) -> None:
    for seed in range(10):
        _, prediction = backtest(growing(work * noise(seed)), SHARE)
        assert prediction.trend is not None
        assert (prediction.trend.last_s > prediction.trend.first_s) == (work[-1] > work[0])
        assert (prediction.lower_s, prediction.upper_s) == (prediction.elapsed_s, math.inf)


def test_independent_noise_is_seldom_taken_for_a_trend() -> None:
    seen = sum(trend_of(noise(seed)[:60]) is not None for seed in range(400))
    # Of two tests at 5 % and 1 in 60: more than 40 of 400 would be one case in a thousand.
    assert seen <= 40


def test_times_of_cycles_with_inner_iterations_add_up() -> None:
    """Each cycle has one to four inner steps; ticks alone would not tell how cycles vary."""
    trace = with_inner_iterations(np.random.default_rng(1).integers(1, 5, 200))
    cycles, times = cycles_of(trace), tick_times(trace)
    cycle_s = cycle_times_s(trace, cycles, times.advance_s)
    assert len(cycle_s) == cycles.repeated
    # The outer step that follows the last tick that is counted is in no cycle.
    part = times.advance_s[cycles.first_tick : cycles.stop_tick - 1]
    assert cycle_s.sum() == pytest.approx(part.sum())


def test_inner_iterations_that_vary_are_in_the_interval() -> None:
    held = []
    for seed in range(30):
        trace = with_inner_iterations(np.random.default_rng(seed).geometric(0.25, 250))
        _, prediction = backtest(trace, SHARE)
        if not prediction.trend:
            measured_s = tick_times(trace).elapsed_s
            held.append(prediction.lower_s <= measured_s <= prediction.upper_s)
    assert len(held) >= 20
    assert np.mean(held) >= 0.8


def run(iterations, compute=1.0, network=1.0, processes=4, seed=0):
    """A start, iterations of a long and a short step, and an end, on a machine of two speeds."""
    rng = np.random.default_rng(seed)

    def step(size, computation, duration_ns):
        jitter = rng.normal(1.0, 0.02)
        return collective(
            size_bytes=size, computation=computation * compute * jitter,
            duration_ns=int(duration_ns * network * jitter),
        )  # fmt: skip

    events = [step(1, 2e7, 1e6)]
    for _ in range(iterations):
        events += [step(10, 1e6, 2e4), step(10**5, 1e3, 8e5)]
    return alike([*events, step(100, 3e6, 1e4)], processes)


def test_ticks_are_aligned_from_both_ends() -> None:
    assert aligned_ticks(run(20), run(3)).tolist() == [0, 1, 2, 3, 4, 5, 6, 41]


@pytest.mark.parametrize(("compute", "network"), [(1.0, 1.0), (3.0, 1.0), (1.0, 4.0), (0.3, 2.0)])
def test_each_phase_takes_the_time_of_its_machine(compute, network) -> None:
    predicted = transfer(run(200), run(12, compute, network, seed=1))
    measured_s = tick_times(run(200, compute, network, seed=2)).elapsed_s
    assert predicted.total_s == pytest.approx(measured_s, rel=0.03)
    assert predicted.lower_s <= measured_s <= predicted.upper_s
    (reduce,) = (p for p in predicted.phases if p.communication == "MPI_Allreduce 100-1000 kB")
    assert reduce.time_s / reduce.base_s == pytest.approx(network, rel=0.03)
    assert (reduce.weight, reduce.passes) == (200, 12)
    assert predicted.base_by_same_ticks == pytest.approx(1.0, abs=0.02)


def test_a_phase_that_the_short_run_has_not_is_scaled_as_the_rest() -> None:
    late = [collective(size_bytes=10**6, computation=5e6)] * 20
    steps = [collective(computation=1e6)] * 100
    base = alike([*steps, *late, *steps, collective(size_bytes=100, computation=1e6)])
    predicted = transfer(base, alike([collective(computation=2e6, duration_ns=200)] * 50))
    (lacking,) = (p for p in predicted.phases if p.communication == "MPI_Allreduce 1-10 MB")
    assert (lacking.passes, lacking.time_s) == (0, pytest.approx(2 * 5.0001e-3))
    assert predicted.total_s == pytest.approx(2 * tick_times(base).elapsed_s, rel=0.01)


@pytest.mark.parametrize(
    ("other", "problem"),
    [(alike([collective(size_bytes=10**7)] * 20, 4), "only 0% of its ticks communicate"),
     (run(5, processes=2), "has 2 processes, the base 4")],
    ids=["program", "processes"],
)  # fmt: skip
def test_another_program_is_refused(other, problem) -> None:
    with pytest.raises(RunError, match=problem):
        transfer(run(20), other)


def test_a_short_run_that_is_no_sample_of_the_base_widens_the_interval() -> None:
    """The work of a step grows by half over the base; the short run has its first fifth."""

    def slowed(steps, factor):
        jitter = np.random.default_rng(factor).normal(1, 0.02, steps)
        return growing(factor * (1 + 0.5 * np.arange(steps) / 300) * jitter)

    predicted = transfer(slowed(300, 1), slowed(60, 2))
    measured_s = tick_times(slowed(300, 2)).elapsed_s
    assert predicted.base_by_same_ticks == pytest.approx(0.84, abs=0.02)
    assert predicted.total_s < 0.9 * measured_s
    assert predicted.lower_s <= measured_s <= predicted.upper_s
