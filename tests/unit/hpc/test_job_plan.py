"""Jobs planned together: allotments, schedules, packs, and what they are compared with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from voxcast.allocation.list_schedule import Machine, list_schedule
from voxcast.allocation.moldable import MoldableTasks
from voxcast.errors import ConfigError
from voxcast.hpc.job_plan import (
    nodes_for_deadline,
    one_core_a_job,
    plan_jobs,
    whole_node_a_job,
)
from voxcast.hpc.packing import packed

CORES = (1, 2, 4)


def amdahl(count: int, seed: int = 3) -> MoldableTasks:
    rng = np.random.default_rng(seed)
    one_core_s = 30 * 100 ** rng.random(count)
    serial = rng.uniform(0.02, 0.3, count)[:, None]
    return MoldableTasks.of(one_core_s[:, None] * (serial + (1 - serial) / np.array(CORES)),
                            CORES, 4)  # fmt: skip


def test_predictions_become_monotone() -> None:
    slower_with_more, more_than_linear = [10.0, 12.0, 4.0], [12.0, 4.0, 2.0]
    tasks = MoldableTasks.of([slower_with_more, more_than_linear], CORES, 4)
    assert (np.diff(tasks.runtime_s) <= 0).all()
    assert (np.diff(tasks.runtime_s * tasks.cores) >= -1e-9).all()
    assert tasks.runtime_s[0].tolist() == [10.0, 10.0, 5.0]
    assert tasks.runtime_s[1].tolist() == [12.0, 6.0, 3.0]


def test_what_fits_into_no_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="none of its allocations fits into a node of 2 cores"):
        MoldableTasks.of([[math.inf, math.inf, 5.0]], CORES, 2)


@pytest.mark.parametrize("seed", range(5))
def test_no_schedule_goes_below_the_bound_and_the_plan_is_near_the_best(seed: int) -> None:
    tasks, machine = amdahl(5, seed), Machine(1, 4)
    best_s = math.inf
    for options in itertools.product(range(3), repeat=5):
        runtime_s, cores = tasks.chosen(np.array(options))
        for order in itertools.permutations(range(5)):
            best_s = min(best_s, list_schedule(runtime_s, cores, order, machine).makespan_s)
    assert tasks.makespan_bound(4) <= best_s + 1e-6
    planned_s = plan_jobs(tasks, machine, [0] * 5).makespan_s()
    assert best_s - 1e-6 <= planned_s <= 1.5 * best_s


def test_no_node_holds_more_than_its_cores() -> None:
    rng = np.random.default_rng(5)
    runtime_s, cores = rng.uniform(1, 50, 300), rng.choice([1, 2, 4, 8], 300)
    machine = Machine(3, 8, 2.0)
    schedule = list_schedule(runtime_s, cores, np.argsort(-runtime_s), machine)
    ends = schedule.start_s + runtime_s + 2.0
    assert schedule.makespan_s == pytest.approx(ends.max())
    for start in schedule.start_s:
        running = (schedule.start_s <= start) & (start < ends - 1e-6)
        assert cores[running].sum() <= machine.cores
    # List scheduling: no core is idle while a job of one core waits.
    last_of_one = schedule.start_s[cores == 1].max()
    busy = (cores * np.clip(last_of_one - schedule.start_s, 0, runtime_s + 2.0)).sum()
    assert busy == pytest.approx(last_of_one * machine.cores)


@pytest.mark.parametrize("whole_nodes", [False, True])
def test_each_task_is_in_one_lane_and_long_ones_are_alone(whole_nodes: bool) -> None:
    task_s = np.array([500.0, *np.linspace(5, 40, 60)])
    cores = np.where(np.arange(61) % 2, 1, 2)
    jobs = packed(task_s, cores, ["p"] * 61, 100.0, 4 if whole_nodes else None)
    members = [task for job in jobs.lanes for lane in job for task in lane]
    assert sorted(members) == list(range(61))
    assert len(jobs) < 30
    for job, width in zip(jobs.lanes, jobs.cores, strict=True):
        widths = {int(cores[task]) for lane in job for task in lane}
        assert len(widths) == 1
        assert len(job) * widths.pop() <= width
    if not whole_nodes:
        assert ((0,),) in jobs.lanes
        assert jobs.runtime_s(task_s).max() == pytest.approx(500.3)


@pytest.mark.parametrize("count", [6, 60, 600])
def test_a_plan_is_no_slower_than_simple_ways(count: int) -> None:
    tasks, machine = amdahl(count), Machine(4, 4, 5.0)
    planned = plan_jobs(tasks, machine, [0] * count)
    for other in (one_core_a_job(tasks, machine), whole_node_a_job(tasks, machine)):
        assert planned.makespan_s() <= 1.005 * other.makespan_s()
    low, high = planned.interval_s(np.full(count, 0.2))
    assert low < planned.makespan_s() < high


def test_limits_are_held_or_refused() -> None:
    tasks, kinds, spread = amdahl(40), [0] * 40, np.full(40, 0.1)
    machine = Machine(4, 4, 5.0)
    free, least = plan_jobs(tasks, machine, kinds), one_core_a_job(tasks, machine).core_h()
    allowed = (free.core_h() + least) / 2
    assert plan_jobs(tasks, machine, kinds, most_core_h=allowed).core_h() <= allowed
    with pytest.raises(ConfigError, match=r"core-hours, and 0\.01 are allowed"):
        plan_jobs(tasks, machine, kinds, most_core_h=0.01)
    plan = nodes_for_deadline(tasks, 3600.0, 4, kinds, spread)
    assert plan.interval_s(spread)[1] <= 3600.0
    assert tasks.makespan_bound((plan.machine.nodes - 1) * 4) > 0.5 * 3600.0
    with pytest.raises(ConfigError, match="even 40 nodes may need"):
        nodes_for_deadline(tasks, 60.0, 4, kinds, spread)
