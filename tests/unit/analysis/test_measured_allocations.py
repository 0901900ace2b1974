"""Allocations side by side: medians, and the ratio of runtimes of the same work."""

import numpy as np

from recorded_jobs import measured_row
from voxcast.analysis.measured_allocations import measured_allocations
from voxcast.runs.table import frame_of


def test_a_planted_ratio_is_recovered_although_other_work_was_run_in_each() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for volume in range(40):
        work_s = float(rng.uniform(10, 100))
        for cpus, factor in ((1, 1.0), (2, 0.6), (4, 0.4)):
            # Large volumes were run on one CPU only, small ones on four only.
            if (cpus == 4 and work_s > 60) or (cpus == 2 and work_s < 30):
                continue
            runtime_s = work_s * factor * float(np.exp(rng.normal(0, 0.02)))
            rows.append(measured_row(volume, cpus, runtime_s))
    rows.append(measured_row(99, 2, 1e6, scale="scaled_down"))
    rows.append(measured_row(98, 2, 1e6, outcome="timeout"))
    smallest, two, four = measured_allocations(frame_of(rows))
    assert [a.cpus for a in (smallest, two, four)] == [1, 2, 4]
    assert (smallest.runs, smallest.subjects, smallest.ratio) == (40, 40, None)
    for allocation, planted in ((two, 0.6), (four, 0.4)):
        assert allocation.ratio is not None
        assert allocation.ratio.covers(planted)
        assert allocation.ratio.high - allocation.ratio.low < 0.05 * planted
        assert allocation.ratio.subjects == allocation.runs
    # The medians alone would say otherwise.
    assert four.runtime_s / smallest.runtime_s < 0.35
