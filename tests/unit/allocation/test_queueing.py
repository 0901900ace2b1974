"""The queue: schedules worked out by hand, a simulator as slow as it is plain, invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast.allocation.queue_report import report
from voxcast.allocation.queueing import simulate
from voxcast.allocation.workload import Workload, workload_of
from voxcast.errors import TableError

# Number, submission, runtime, request, processors; on four processors.
WIDE, HEAD = (1, 0, 10, 10, 3), (2, 0, 10, 10, 4)


def starts(jobs: list[tuple], processors: int = 4, backfill: bool = True) -> list[float]:
    start_s: list[float] = simulate(
        workload_of(jobs), processors, backfill=backfill
    ).start_s.tolist()
    return start_s


def test_first_come_first_served_alone() -> None:
    jobs = [WIDE, HEAD, (3, 0, 5, 5, 1), (4, 1, 20, 20, 1)]
    assert starts(jobs, backfill=False) == [0, 10, 20, 20]


def test_a_job_overtakes_when_it_ends_before_the_reservation() -> None:
    # The third ends at 5, before the head may start at 10; the fourth would not.
    jobs = [WIDE, HEAD, (3, 0, 5, 5, 1), (4, 1, 20, 20, 1)]
    assert starts(jobs) == [0, 10, 0, 20]


def test_a_job_overtakes_when_it_leaves_enough_for_the_head() -> None:
    # The head needs three of the four, so one is to spare for as long as it takes.
    jobs = [WIDE, (2, 0, 10, 10, 3), (3, 0, 50, 50, 1), (4, 0, 50, 50, 1)]
    assert starts(jobs) == [0, 10, 0, 20]


def test_the_head_is_not_delayed_by_one_that_asks_for_too_much() -> None:
    assert starts([WIDE, HEAD, (3, 0, 5, 50, 1)]) == [0, 10, 20]


def test_a_shorter_request_lets_a_job_in() -> None:
    jobs = workload_of([WIDE, HEAD, (3, 0, 5, 50, 1)])
    as_requested, recommended = (
        report(workload, simulate(workload, 4), 4)
        for workload in (jobs, jobs.with_requests({3: 6.0}))
    )
    assert as_requested.mean_wait_s == pytest.approx((0 + 10 + 20) / 3)
    assert recommended.mean_wait_s == pytest.approx((0 + 10 + 0) / 3)
    assert as_requested.makespan_s == 25
    assert recommended.makespan_s == 20
    assert recommended.utilisation == pytest.approx((30 + 40 + 5) / (4 * 20))
    assert recommended.utilisation > as_requested.utilisation
    # Stretch: 1, 2 and 1; the five seconds of the third count as ten.
    assert recommended.mean_bounded_stretch == pytest.approx((1 + 2 + 1) / 3)


def test_early_ends_start_the_head_before_its_reservation() -> None:
    schedule = simulate(workload_of([(1, 0, 4, 10, 3), HEAD]), 4)
    assert schedule.start_s.tolist() == [0, 4]
    assert schedule.promised_s.tolist()[1] == 10
    assert np.isnan(schedule.promised_s[0])


def test_jobs_are_ended_at_their_requested_time() -> None:
    jobs = workload_of([(1, 0, 10, 6, 4), (2, 0, 5, 5, 4)])
    schedule = simulate(jobs, 4)
    assert schedule.end_s.tolist() == [6, 11]
    assert schedule.killed.tolist() == [True, False]
    summary = report(jobs, schedule, 4)
    assert (summary.killed, summary.utilisation) == (1, 1.0)
    assert summary.useful_utilisation == pytest.approx(5 / 11)


def test_equal_ends_are_all_free_for_the_reservation() -> None:
    # Both end at 10: the head takes three of four then, and one is to spare.
    jobs = [(1, 0, 10, 10, 2), (2, 0, 10, 10, 1), (3, 0, 9, 9, 3), (4, 0, 99, 99, 1)]
    assert starts(jobs) == [0, 0, 10, 0]


def test_invalid_workloads_are_refused() -> None:
    with pytest.raises(TableError, match="job 2: requests 4 processors where there are 3"):
        simulate(workload_of([WIDE, HEAD]), 3)
    with pytest.raises(TableError, match="at least 1"):
        simulate(workload_of([WIDE]), 0)
    with pytest.raises(TableError, match="no job"):
        simulate(workload_of([]), 4)
    with pytest.raises(TableError, match="no job 7"):
        workload_of([WIDE]).with_requests({7: 1.0})


def test_jobs_of_zero_duration_use_no_processors() -> None:
    jobs = workload_of([(1, 0, 0, 10, 4), (2, 0, 0, 10, 4)])
    summary = report(jobs, simulate(jobs, 4), 4)
    assert (summary.makespan_s, summary.utilisation, summary.mean_wait_s) == (0, 0, 0)


def slowly(workload: Workload, processors: int, backfill: bool) -> list[float]:
    """Schedule second by second, asking of every overtaking whether the head still starts."""
    jobs = list(
        zip(workload.submit_s, workload.runtime_s, workload.requested_s, workload.processors,
            strict=True)
    )  # fmt: skip
    start: list[float | None] = [None] * len(jobs)

    def in_use(at: float, planned: bool, more: tuple[int, ...] = (), since: float = 0) -> int:
        used = sum(int(jobs[n][3]) for n in more if at < since + jobs[n][2])
        for n, (_, lasts, requested, wide) in enumerate(jobs):
            start_s = start[n]
            if start_s is not None and at < start_s + (
                requested if planned else min(lasts, requested)
            ):
                used += int(wide)
        return used

    for now in range(10_000):
        waiting = [n for n, job in enumerate(jobs) if start[n] is None and job[0] <= now]
        while waiting and in_use(now, False) + jobs[waiting[0]][3] <= processors:
            start[waiting.pop(0)] = now
        if backfill and waiting:
            wide = jobs[waiting[0]][3]
            # It was at `now` that jobs which ended early gave up what they had planned.
            running = [n for n in range(len(jobs)) if start[n] is not None
                       and now < start[n] + min(jobs[n][1], jobs[n][2])]  # fmt: skip

            def planned_use(at: float, extra: int | None = None, running: list = running,
                            now: int = now) -> int:  # fmt: skip
                wide = sum(int(jobs[n][3]) for n in running if at < start[n] + jobs[n][2])
                mine = extra is not None and at < now + jobs[extra][2]
                return wide + (int(jobs[extra][3]) if mine else 0)

            reserved = now + 1
            while planned_use(reserved) + wide > processors:
                reserved += 1
            for n in waiting[1:]:
                if in_use(now, False) + jobs[n][3] > processors:
                    continue
                if planned_use(reserved, n) + wide <= processors:
                    start[n] = now
                    running.append(n)
        if all(start_s is not None for start_s in start):
            return [float(start_s) for start_s in start]
    raise AssertionError("never ends")


JOBS = st.lists(
    st.tuples(st.integers(0, 25), st.integers(1, 12), st.integers(1, 15), st.integers(1, 5)),
    min_size=1, max_size=12,
)  # fmt: skip


def numbered(jobs: list[tuple[int, int, int, int]]) -> Workload:
    return workload_of([(n + 1, *job) for n, job in enumerate(jobs)])


@settings(max_examples=300, deadline=None)
@given(JOBS, st.integers(5, 8), st.booleans())
def test_it_agrees_with_the_reference_simulation(
    jobs: list[tuple[int, int, int, int]], processors: int, backfill: bool
) -> None:
    workload = numbered(jobs)
    schedule = simulate(workload, processors, backfill=backfill)
    assert schedule.start_s.tolist() == slowly(workload, processors, backfill)


REAL = st.lists(
    st.tuples(st.floats(0, 500), st.floats(0.5, 90), st.floats(0.5, 120), st.integers(1, 16)),
    min_size=1, max_size=60,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(REAL, st.booleans())
def test_invariants_of_any_schedule(
    jobs: list[tuple[float, float, float, int]], backfill: bool
) -> None:
    workload = numbered(jobs)
    schedule = simulate(workload, 16, backfill=backfill)
    assert (schedule.start_s >= workload.submit_s).all()
    assert (schedule.end_s - schedule.start_s <= workload.requested_s + 1e-9).all()
    has_promise = ~np.isnan(schedule.promised_s)
    assert (schedule.start_s[has_promise] <= schedule.promised_s[has_promise] + 1e-9).all()
    for moment in schedule.start_s:
        running = (schedule.start_s <= moment) & (moment < schedule.end_s)
        assert workload.processors[running].sum() <= 16
    if not backfill:
        assert (np.diff(schedule.start_s) >= 0).all()
    summary = report(workload, schedule, 16)
    assert 0 < summary.utilisation <= 1 + 1e-9
    assert summary.mean_bounded_stretch >= 1
    assert summary.useful_utilisation <= summary.utilisation + 1e-12


@settings(max_examples=100, deadline=None)
@given(JOBS)
def test_no_processor_idles_while_the_head_fits(jobs: list[tuple[int, int, int, int]]) -> None:
    workload = numbered(jobs)
    schedule = simulate(workload, 8)
    for n in range(len(workload)):
        # Whoever waited either did not fit at its submission, or somebody was before it.
        if schedule.start_s[n] > workload.submit_s[n]:
            at = workload.submit_s[n]
            running = (schedule.start_s <= at) & (at < schedule.end_s)
            before = (workload.submit_s <= at) & (schedule.start_s > at)
            before[n:] = False
            full = workload.processors[running].sum() + workload.processors[n] > 8
            assert full or before.any()
