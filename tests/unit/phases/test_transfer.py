"""Times on another machine, by a short run there."""

from __future__ import annotations

import numpy as np
import pytest

from event_tables import collective, event_table
from voxcast.errors import RunError
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import aligned_ticks, transfer
from voxcast.phases.signature import tick_times


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
    events.append(step(100, 3e6, 1e4))
    return logical_trace(event_table([events] * processes))


def test_ticks_are_aligned_from_both_ends() -> None:
    place = aligned_ticks(run(20), run(3)).tolist()
    assert place == [0, 1, 2, 3, 4, 5, 6, 41]


@pytest.mark.parametrize(("compute", "network"), [(1.0, 1.0), (3.0, 1.0), (1.0, 4.0), (0.3, 2.0)])
def test_each_phase_takes_the_time_of_its_machine(compute, network) -> None:
    base = run(200)
    predicted = transfer(base, run(12, compute, network, seed=1))
    measured_s = tick_times(run(200, compute, network, seed=2)).elapsed_s
    assert predicted.total_s == pytest.approx(measured_s, rel=0.03)
    assert predicted.lower_s <= measured_s <= predicted.upper_s
    by_size = {phase.communication: phase for phase in predicted.phases}
    reduce = by_size["MPI_Allreduce 100-1000 kB"]
    assert reduce.time_s / reduce.base_s == pytest.approx(network, rel=0.03)
    assert (reduce.weight, reduce.passes) == (200, 12)


def test_a_phase_that_the_short_run_has_not_is_scaled_as_the_rest() -> None:
    late = [collective(size_bytes=10**6, computation=5e6)] * 20
    steps = [collective(computation=1e6)]
    end = [collective(size_bytes=100, computation=1e6)]
    base = logical_trace(event_table([steps * 100 + late + steps * 100 + end] * 2))
    slow = [collective(computation=2e6, duration_ns=200)]
    predicted = transfer(base, logical_trace(event_table([slow * 50] * 2)))
    by_size = {phase.communication: phase for phase in predicted.phases}
    assert by_size["MPI_Allreduce 1-10 MB"].passes == 0
    assert by_size["MPI_Allreduce 1-10 MB"].time_s == pytest.approx(2 * 5.0001e-3)
    assert predicted.total_s == pytest.approx(2 * tick_times(base).elapsed_s, rel=0.01)


def test_another_program_is_refused() -> None:
    other = logical_trace(event_table([[collective(size_bytes=10**7)] * 20] * 4))
    with pytest.raises(RunError, match="only 0% of its ticks communicate"):
        transfer(run(20), other)
    with pytest.raises(RunError, match="has 2 processes, the base 4"):
        transfer(run(20), run(5, processes=2))


def test_a_short_run_that_is_no_sample_of_the_base_widens_the_interval() -> None:
    """The work of a step grows by half over the base; the short run has its first fifth."""

    def growing(steps, slowed):
        rng = np.random.default_rng(slowed)
        work = slowed * 1e6 * (1 + 0.5 * np.arange(steps) / 300) * rng.normal(1, 0.02, steps)
        events = [collective(computation=5e6 * slowed)]
        events += [collective(size_bytes=1000, computation=float(time)) for time in work]
        return logical_trace(event_table([events] * 2))

    predicted = transfer(growing(300, 1), growing(60, 2))
    measured_s = tick_times(growing(300, 2)).elapsed_s
    assert predicted.base_by_same_ticks == pytest.approx(0.84, abs=0.02)
    assert predicted.total_s < 0.9 * measured_s
    assert predicted.lower_s <= measured_s <= predicted.upper_s
    assert transfer(run(200), run(12, 2.0)).base_by_same_ticks == pytest.approx(1.0, abs=0.02)
