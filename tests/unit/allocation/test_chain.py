"""Memory by phase: planted runs, and those that were published."""

import numpy as np
import pytest

from voxcast.allocation.requests.chain import PhasedRuns, chain, memory_held
from voxcast.allocation.requests.cost import CostModel
from voxcast.errors import TableError

GB_H = 3600e9


def planted(n: int = 40, seed: int = 0) -> PhasedRuns:
    rng = np.random.default_rng(seed)
    duration = np.array([600.0, 1200.0, 1800.0]) * rng.lognormal(0, 0.1, (n, 3))
    peak = np.array([2e9, 40e9, 4e9]) * rng.uniform(0.95, 1.0, (n, 3))
    return PhasedRuns(("first", "large", "last"), duration, peak)


def test_memory_held_is_peak_times_time() -> None:
    runs = PhasedRuns(("a", "b"), np.full((3, 2), 3600.0), np.tile([1e9, 3e9], (3, 1)),
                      np.full(3, 2 * GB_H))  # fmt: skip
    held = memory_held(runs)
    assert (held.at_run_peak, held.at_phase_peaks, held.used) == (6.0, 4.0, 2.0)


def test_a_chain_reserves_less_unless_checkpoints_are_expensive() -> None:
    runs = planted()
    free = chain(runs, CostModel())
    assert [job.phase for job in free.jobs] == ["first", "large", "last"]
    assert free.jobs[1].memory_bytes == runs.peak_bytes[:, 1].max()
    assert 2 < free.gain < 3
    gains = [chain(runs, CostModel(checkpoint=s, restart=s)).gain for s in (0, 60, 600, 6000)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 1
    # The first job reads no checkpoint and the last one writes none.
    dear = chain(runs, CostModel(checkpoint=100.0, restart=10.0))
    extra = [b.walltimes.lengths[0] - a.walltimes.lengths[0]
             for a, b in zip(free.jobs, dear.jobs, strict=True)]  # fmt: skip
    assert extra == pytest.approx([100, 110, 10], abs=15)


def test_skipped_phases_and_too_few_runs() -> None:
    runs = planted()
    runs.duration_s[::3, 0] = 0.0
    assert np.isfinite(chain(runs, CostModel()).expected_gb_h)
    with pytest.raises(TableError, match="2 runs"):
        PhasedRuns(("a",), np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(TableError, match="peaks"):
        PhasedRuns(("a",), np.ones((3, 1)), np.full((3, 1), np.nan))
