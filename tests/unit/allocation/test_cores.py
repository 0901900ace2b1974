"""CPUs chosen together: bounds that no schedule beats, and few images against many."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast.allocation.cores import (
    allotment,
    makespan_bound_s,
    makespan_s,
    monotone,
    with_planned_cpus,
)
from voxcast.errors import ConfigError

CPUS = np.array([1, 2, 4], dtype=np.intp)


def image(cpus: tuple[int, ...] = (1, 2, 4)) -> dict[str, object]:
    rows = [
        {"node_type": "n", "partition": "debug", "device": "cpu", "cpus": count, "gpus": 0,
         "excluded": None, "runtime_s_median": 60.0 * (0.2 + 0.8 / count)}
        for count in cpus
    ]  # fmt: skip
    return {"image": "a.nii", "chosen": rows[0], "configurations": rows}


@pytest.mark.parametrize(("images", "cpus"), [(1, 4), (40, 1)])
def test_a_few_images_get_more_cpus_than_many(images: int, cpus: int) -> None:
    planned = with_planned_cpus({"images": [image()] * images}, nodes=1, cores_per_node=4)
    assert {each["chosen"]["cpus"] for each in planned["images"]} == {cpus}


def test_an_image_without_a_fitting_allocation_is_named() -> None:
    with pytest.raises(ConfigError, match=r"a\.nii.* no allocation without GPUs fits into 2 CPUs"):
        with_planned_cpus({"images": [image((4,))]}, nodes=1, cores_per_node=2)
    without = {"images": [{**image(), "chosen": None}]}
    assert with_planned_cpus(without, nodes=1, cores_per_node=4) == without


def test_predictions_are_made_monotone() -> None:
    assert monotone([[60, 70, 10], [60, 30, np.inf]], CPUS).tolist() == [
        [60, 60, 30], [60, 30, np.inf],
    ]  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.integers(1, 50)] * 3), min_size=1, max_size=4), st.integers(1, 2))
def test_no_choice_of_cpus_ends_before_the_bound(times: list[tuple[int, ...]], nodes: int) -> None:
    runtime_s = monotone(times, CPUS)
    bound_s = makespan_bound_s(runtime_s, CPUS, 4 * nodes)
    rows = np.arange(len(times))
    ends = [
        makespan_s(runtime_s[rows, list(option)], CPUS[list(option)], nodes, 4)
        for option in itertools.product(range(3), repeat=len(times))
    ]
    assert bound_s <= min(ends) * (1 + 1e-9)
    assert (runtime_s[rows, allotment(runtime_s, bound_s)] <= bound_s * (1 + 1e-9)).all()


def test_tasks_start_longest_first_where_cores_are_free() -> None:
    seconds, cores = np.array([3.0, 4.0, 2.0, 2.0]), np.array([2, 1, 1, 2])
    # 4 s and 3 s start; 2 s on one core fits beside; 2 s on two cores follows at 3 s.
    assert makespan_s(seconds, cores, nodes=1, cores_per_node=4) == 5.0
    assert makespan_s(np.array([]), np.array([], dtype=np.intp), 1, 4) == 0.0
