"""The queue on nodes with memory: schedules worked out by hand, kills, and requests after them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast.allocation.node_room import Machine
from voxcast.allocation.queue_report import report
from voxcast.allocation.queueing import COMPLETED, OUT_OF_MEMORY, TIMEOUT, Schedule, simulate
from voxcast.allocation.resubmission import Resubmission
from voxcast.allocation.workload import Workload, workload_of
from voxcast.errors import TableError

NODE = Machine(2, 2, 8.0)  # two nodes of two cores and eight bytes


def jobs_of(*rows: tuple[float, ...]) -> Workload:
    """Return jobs of number, submission, runtime, request, processors, used and asked memory."""
    jobs = workload_of([row[:5] for row in rows])
    used, asked = (np.array([row[k] / row[4] for row in rows]) for k in (5, 6))
    return replace(jobs, used_bytes=used, requested_bytes=asked)


def test_memory_decides_how_many_jobs_a_node_takes() -> None:
    rows = [(n, 0, 10, 10, 1, 3, 5) for n in range(1, 5)]
    assert simulate(jobs_of(*rows), NODE).start_s.tolist() == [0, 0, 10, 10]
    tight = [(n, 0, 10, 10, 1, 3, 4) for n in range(1, 5)]
    assert simulate(jobs_of(*tight), NODE).start_s.tolist() == [0, 0, 0, 0]


def test_a_job_that_fits_no_node_now_waits_for_one() -> None:
    # Each node has a core and four bytes left: two cores are free, but not on one node.
    jobs = jobs_of((1, 0, 10, 10, 1, 1, 5), (2, 0, 20, 20, 1, 1, 5), (3, 0, 5, 5, 2, 1, 2))
    assert simulate(jobs, NODE).start_s.tolist() == [0, 0, 10]


def test_a_job_overtakes_on_the_node_that_the_head_does_not_need() -> None:
    # The head needs all of a node, and gets the first at 10; a long job may use the other.
    jobs = jobs_of(
        (1, 0, 10, 10, 1, 1, 8), (2, 0, 50, 50, 1, 1, 2), (3, 0, 5, 5, 2, 1, 8),
        (4, 0, 90, 90, 1, 1, 2), (5, 0, 90, 90, 1, 1, 2),
    )  # fmt: skip
    assert simulate(jobs, NODE).start_s.tolist() == [0, 0, 10, 0, 15]


def test_a_wide_job_is_spread_and_its_memory_is_counted_on_each_node() -> None:
    wide = (1, 0, 10, 10, 3, 3, 12)  # four bytes on each of three cores
    beside = (2, 0, 5, 5, 1, 1, 4)
    assert simulate(jobs_of(wide, beside), NODE).start_s.tolist() == [0, 0]
    assert simulate(jobs_of(wide, (*beside[:6], 5)), NODE).start_s.tolist() == [0, 10]


def test_a_job_short_of_memory_is_killed_where_it_needs_it_and_asked_for_again() -> None:
    jobs = jobs_of((1, 0, 10, 20, 1, 4, 2))
    schedule = simulate(jobs, NODE, peak_at=0.5, resubmission=Resubmission())
    assert schedule.outcome.tolist() == [OUT_OF_MEMORY, OUT_OF_MEMORY, COMPLETED]
    assert schedule.requested_bytes.tolist() == [2, 3, 4.5]
    assert schedule.end_s.tolist() == [5, 10, 20]
    summary = report(jobs, schedule, 4)
    assert (summary.attempts, summary.killed_for_memory, summary.given_up) == (3, 2, 0)
    assert summary.lost_core_h == pytest.approx(10 / 3600)
    assert summary.asked_gb_h == pytest.approx((2 + 3 + 4.5) / 1e9 * 20 / 3600)
    assert summary.mean_turnaround_s == 20


def test_time_and_memory_take_their_own_sequences() -> None:
    jobs = jobs_of((7, 0, 10, 4, 1, 4, 2))
    again = Resubmission({7: (4.0, 9.0, 12.0)}, {7: (2.0, 8.0)})
    schedule = simulate(jobs, NODE, resubmission=again)
    # At the end of its runtime it needs its peak; before that it is ended by its time.
    assert schedule.outcome.tolist() == [TIMEOUT, TIMEOUT, OUT_OF_MEMORY, COMPLETED]
    assert schedule.requested_s.tolist() == [4, 9, 12, 12]
    assert schedule.requested_bytes.tolist() == [2, 2, 2, 8]


def test_a_job_that_no_node_is_large_enough_for_is_given_up() -> None:
    jobs = jobs_of((1, 0, 10, 10, 1, 9, 6))
    schedule = simulate(jobs, NODE, resubmission=Resubmission())
    assert schedule.requested_bytes.tolist() == [6, 8]
    assert report(jobs, schedule, 4).given_up == 1


def test_a_job_without_a_request_of_memory_takes_none_and_is_not_killed() -> None:
    jobs = jobs_of((1, 0, 10, 10, 1, 9, 0), (2, 0, 10, 10, 1, 9, 0), (3, 0, 1, 1, 1, 1, 8))
    assert simulate(jobs, Machine(1, 3, 8.0)).start_s.tolist() == [0, 0, 0]


def test_a_request_above_every_node_is_refused() -> None:
    with pytest.raises(TableError, match="job 1: requests 9e-09 GB for each of 1 processors"):
        simulate(jobs_of((1, 0, 10, 10, 1, 1, 9)), NODE)


JOBS = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 12), st.integers(1, 15), st.integers(1, 4),
        st.integers(1, 4), st.integers(0, 4),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(jobs=JOBS, backfill=st.booleans(), again=st.booleans())
def test_nothing_is_ever_given_twice(jobs: list, backfill: bool, again: bool) -> None:
    rows = [
        (n, submit, runs, asks, wide, used * wide, asked * wide)
        for n, (submit, runs, asks, wide, used, asked) in enumerate(sorted(jobs), 1)
    ]
    workload = jobs_of(*rows)
    resubmission = Resubmission() if again else None
    schedule = simulate(workload, NODE, backfill=backfill, resubmission=resubmission)
    assert (schedule.start_s >= schedule.submit_s).all()
    _check_use(workload, schedule)
    last = {int(job): n for n, job in enumerate(schedule.job)}
    assert set(last) == set(range(len(workload)))
    for job, n in last.items():
        enough = (
            workload.runtime_s[job] <= schedule.requested_s[n]
            and (schedule.requested_bytes[n] == 0
                 or workload.used_memory()[job] <= schedule.requested_bytes[n])
        )  # fmt: skip
        assert (schedule.outcome[n] == COMPLETED) == enough
        if again:
            assert schedule.outcome[n] == COMPLETED


def _check_use(workload: Workload, schedule: Schedule) -> None:
    """At no time are more cores or bytes in use than there are."""
    wide = workload.processors[schedule.job]
    for at in schedule.start_s:
        running = (schedule.start_s <= at) & (at < schedule.end_s)
        assert wide[running].sum() <= NODE.processors
        assert (wide * schedule.requested_bytes)[running].sum() <= NODE.nodes * NODE.memory_bytes


def test_one_node_without_memory_is_a_number_of_processors() -> None:
    rng = np.random.default_rng(0)
    jobs = workload_of(
        [(n, 3 * n, rng.integers(1, 60), rng.integers(30, 90), rng.integers(1, 9))
         for n in range(200)]
    )  # fmt: skip
    one, plain = simulate(jobs, Machine(1, 8)), simulate(jobs, 8)
    assert one.start_s.tolist() == plain.start_s.tolist()
