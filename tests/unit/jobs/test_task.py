"""Tasks: sequences of requests, arrays, plans as files, and what follows each cause of an end."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_tasks import MB, plan_of, shell_app, write_images
from voxcast.allocation.offers import Policy, Predictions, offers
from voxcast.allocation.site import (
    MEASURED_BYTES,
    STEP_BYTES,
    Candidate,
    Cluster,
    MemoryCounted,
    NodeType,
    Partition,
)
from voxcast.errors import ConfigError
from voxcast.jobs import slurm as slurm_commands
from voxcast.jobs.script import arrays_of, core_h
from voxcast.jobs.state import expected, plan_lines
from voxcast.jobs.submission import Plan
from voxcast.jobs.task import (
    LEAST_GROWTH,
    Attempt,
    Limits,
    RequestSequence,
    Stop,
    from_file,
    next_request,
    walltime_sequences,
)
from voxcast.records import Configuration, Request


def test_a_sequence_begins_as_recommended_and_grows_by_the_predicted_spread() -> None:
    narrow, wide = walltime_sequences([630.0, 630.0], [600.0, 300.0], [630.0, 630.0], 0.95, 60.0)
    for requests in (narrow, wide):
        assert requests[0] == 630.0
        steps = np.array(requests[1:]) / np.array(requests[:-1])
        assert (steps >= LEAST_GROWTH).all()
        assert not [rung for rung in requests[1:] if rung % 60]
    assert len(wide) > 1
    assert wide[-1] > narrow[-1]


def brute_force(requests: list[Request], price: float) -> float:
    """Return the least cost of consecutive groups, by trying all."""
    ordered = sorted(requests, key=lambda r: (r.walltime_s, r.memory_bytes))
    least = math.inf
    for cuts in range(2 ** (len(ordered) - 1)):
        groups = [[ordered[0]]]
        for n, request in enumerate(ordered[1:]):
            if cuts >> n & 1:
                groups.append([])
            groups[-1].append(request)
        cost = sum(
            price + len(group) * core_h(Request(
                max(r.walltime_s for r in group), max(r.memory_bytes for r in group), 1
            ))
            for group in groups
        )  # fmt: skip
        least = min(least, cost)
    return least


@pytest.mark.parametrize("price", [0.0, 0.1, 1.0, 100.0])
def test_arrays_cost_the_least_that_is_possible(price: float) -> None:
    rng = np.random.default_rng(4)
    requests = [
        Request(float(t), int(m), 1)
        for t, m in zip(
            rng.integers(1, 9, 9) * 600, rng.integers(1, 5, 9) * 4 * 10**9, strict=True
        )
    ]
    named = {str(n): request for n, request in enumerate(requests)}
    arrays = arrays_of(named, array_core_h=price)
    assert sorted(name for array in arrays for name in array.names) == sorted(named)
    for array in arrays:
        for name in array.names:
            assert named[name].walltime_s <= array.request.walltime_s
            assert named[name].memory_bytes <= array.request.memory_bytes
    cost = sum(price + len(a.names) * core_h(a.request) for a in arrays)
    assert cost == pytest.approx(brute_force(requests, price))


def test_arrays_are_of_one_kind_and_no_longer_than_slurm_allows() -> None:
    requests = {
        f"{cpus} {n}": Request(60.0, 10**8, cpus, partition="pq"[n % 2])
        for cpus in (1, 2) for n in range(1500)
    }  # fmt: skip
    assert sorted(len(array.names) for array in arrays_of(requests)) == [750] * 4
    arrays = arrays_of({str(n): Request(60.0, 10**8, 1) for n in range(2500)})
    assert [len(array.names) for array in arrays] == [1000, 1000, 500]


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    app = shell_app("true", ranges={"x": (1, 2)}, characteristics=("head_mm3",))
    plan = plan_of(app, write_images(tmp_path, ["a.nii"]), limits=Limits(max_usd=3.0))
    path = tmp_path / "plan.json"
    content = json.loads(json.dumps(plan.to_record(), allow_nan=False))
    assert Plan.from_record(content, path) == plan
    with pytest.raises(ConfigError, match="version 9, not 4"):
        Plan.from_record({**content, "voxcast_plan": 9}, path)
    with pytest.raises(ConfigError, match=r"cannot be read \(name is 1"):
        Plan.from_record({**content, "tasks": [{"name": 1}]}, path)


def test_a_recommendation_becomes_tasks(tmp_path: Path) -> None:
    row = {
        "partition": "serial", "device": "cpu", "cpus": 2, "gpus": 0, "walltime_s": 600.0,
        "memory_bytes": 500 * MB, "runtime_s_median": 400.0, "runtime_s_upper": 590.0,
        "peak_rss_bytes_median": 4e8, "risk": 0.1, "usd_bound": 0.5,
    }  # fmt: skip
    image = {"image": "sub-01_T1w.nii.gz", "app": "tool", "chosen": row, "why": "cheapest"}
    content = {"walltime_step_s": 60.0, "policy": {"confidence": 0.95}, "images": [image]}
    app, (task,) = from_file(content, tmp_path)
    assert app == "tool"
    assert task.name == "sub-01_T1w"
    assert task.image == str(Path.cwd() / "sub-01_T1w.nii.gz")
    assert task.requests.first == Request(600.0, 500 * MB, 2, partition="serial")
    assert task.usd_per_hour == pytest.approx(3.0)
    refused = {**content, "images": [{**image, "chosen": None, "why": "the deadline"}]}
    with pytest.raises(ConfigError, match=r"no request for sub-01_T1w.nii.gz: the deadline"):
        from_file(refused, tmp_path)
    with pytest.raises(ConfigError, match="neither a plan nor a recommendation"):
        from_file({**content, "images": [{**image, "chosen": {}}]}, tmp_path)


def test_expectations_add_up(tmp_path: Path) -> None:
    plan = plan_of(shell_app("true"), write_images(tmp_path, ["a.nii", "b.nii"]))
    numbers = expected(plan)
    assert numbers["requested_core_h"] == pytest.approx(2 * 120 / 3600)
    assert numbers["usd_bound"] == pytest.approx(2 * 120 / 3600)
    assert numbers["expected_failures"] == pytest.approx(0.2)
    assert numbers["runtime_s"] == 60.0
    text = "\n".join(plan_lines(plan))
    assert "planted on lab: 2 tasks in 1 array" in text
    assert "of the first requests at most 0.2 are expected to be too small" in text


GB = 10**9
REQUESTS = RequestSequence((600.0, 1800.0), (2 * GB, 4 * GB), cpus=2)
FIRST = Request(600.0, 2 * GB, 2)
LIMITS = Limits(max_walltime_s=3600.0, max_memory_bytes=6 * GB)


def attempts(*outcomes, walltime_s=600.0, memory_bytes=2 * GB, **fields):
    request = Request(walltime_s, memory_bytes, 2)
    return [Attempt(request, outcome, **fields) for outcome in outcomes]


CASES = {
    "nothing was tried": ([], FIRST),
    "completed": (attempts("completed"), Stop(completed=True)),
    "too little time": (attempts("timeout"), replace(FIRST, walltime_s=1800.0)),
    "past the sequence": (
        attempts("timeout", walltime_s=1800.0), replace(FIRST, walltime_s=2700.0),
    ),
    "up to the limit of the partition": (
        attempts("timeout", walltime_s=2700.0), replace(FIRST, walltime_s=3600.0),
    ),
    "at the limit of the partition": (
        attempts("timeout", walltime_s=3600.0), Stop(False, "no request is longer than 1 h 0 min"),
    ),
    "too little memory": (attempts("out_of_memory"), replace(FIRST, memory_bytes=4 * GB)),
    "memory past the sequence": (
        attempts("out_of_memory", memory_bytes=4 * GB), replace(FIRST, memory_bytes=6 * GB),
    ),
    "memory at the limit": (
        attempts("out_of_memory", memory_bytes=6 * GB),
        Stop(False, "no request is larger than 6.00 GB"),
    ),
    "preempted": (attempts("preempted"), FIRST),
    "the node was lost": (attempts("node_failure"), FIRST),
    "the application failed": (attempts("failed"), Stop(False, "the application failed")),
    "it stalled": (attempts("stalled"), FIRST),
    "it stalled again": (
        attempts("stalled", "stalled"), Stop(False, "it did nothing and was stopped 2 times"),
    ),
    "a user cancelled it": (attempts("cancelled"), Stop(False, "it was cancelled by a user")),
    "cancelled after a timeout": (
        attempts("timeout", "cancelled"), Stop(False, "it was cancelled by a user"),
    ),
    "preempted with more time": (
        [*attempts("timeout"), *attempts("preempted", walltime_s=1800.0)],
        replace(FIRST, walltime_s=1800.0),
    ),
    "both were too little": (
        [*attempts("timeout"), *attempts("out_of_memory", walltime_s=1800.0)],
        Request(1800.0, 4 * GB, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cause_decides_the_next_request(case):
    made, expected = CASES[case]
    assert next_request(REQUESTS, made, LIMITS) == expected


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"max_attempts": 2}, "2 attempts were made"),
        ({"max_usd": 3.0}, "its attempts have cost 4 USD"),
    ],
)
def test_attempts_cost_and_time_are_bounded(bounds, reason):
    made = attempts("preempted", "preempted", usd=2.0, runtime_s=3600.0)
    assert next_request(REQUESTS, made, replace(LIMITS, **bounds)) == Stop(False, reason)


def test_every_history_ends():
    # Whatever happens, with any bound left out but that of the attempts.
    outcomes = ("timeout", "out_of_memory", "preempted", "node_failure", "stalled", "failed")
    bounds = Limits(max_attempts=4, max_failures=99, max_stalls=99)
    for fates in itertools.product(outcomes, repeat=4):
        made, request = [], next_request(REQUESTS, [], bounds)
        for fate in fates:
            assert isinstance(request, Request)
            made.append(Attempt(request, fate))
            request = next_request(REQUESTS, made, bounds)
        assert isinstance(request, Stop)
        walltimes = [attempt.request.walltime_s for attempt in made]
        assert walltimes == sorted(walltimes)
        assert math.isfinite(walltimes[-1])


ROOT = Path(__file__).parents[3]
APP = "ants_segment"
PARTITION, NODE = Partition("debug"), NodeType("virtual", 4, 4 * 10**9, partition="debug")
ONE_CPU = Configuration("cpu", 1, 0)


def requested_bytes(held_bytes: int, counted: MemoryCounted | None) -> int:
    """Return what is requested for a bound of memory with the usual margin."""
    cluster = Cluster("lab", (NODE,), (PARTITION,), memory_counted=counted).for_app(APP)
    bound = np.array([[float(held_bytes)]])
    predictions = Predictions(np.array([[30.0]]), np.array([[60.0]]), bound, bound)
    policy = Policy("balanced", 0.95, 0.0, 0.1, 2.0)
    assessed = offers(predictions, [Candidate(ONE_CPU, NODE, PARTITION)], cluster, policy)
    return int(assessed.memory_bytes[0, 0])


def test_resident_pages_are_added_where_they_are_counted() -> None:
    by_kernel, unknown, added_up = (
        requested_bytes(200 * 10**6, counted) for counted in ("cgroup", None, "rss")
    )
    assert unknown == by_kernel
    assert added_up - by_kernel == pytest.approx(MEASURED_BYTES[APP], abs=2**20)


@pytest.mark.parametrize(
    ("gathered_by", "parameters", "counted"),
    [
        ("linux", "OverMemoryKill", ("rss", "rss")),
        ("linux", "UsePss,OverMemoryKill", ("rss", "rss")),
        ("linux", "OverMemoryKill,NoShared", ("cgroup", "cgroup")),
        ("linux", "(null)", ("cgroup", "rss")),
        ("cgroup", "OverMemoryKill", ("cgroup", "cgroup")),
    ],
)
def test_the_settings_of_a_site_tell_how_it_counts(
    gathered_by: str, parameters: str, counted: tuple[str, str]
) -> None:
    settings = {
        "JobAcctGatherType": f"jobacct_gather/{gathered_by}", "JobAcctGatherParams": parameters
    }  # fmt: skip
    assert slurm_commands.memory_counted(settings) == counted


def test_what_is_added_is_the_largest_measured_difference_in_whole_steps() -> None:
    rows = json.loads((ROOT / "published/memory/mapped_files.json").read_text())["runs"]
    for app in {row["app"] for row in rows}:
        largest = max(row["difference_bytes"] for row in rows if row["app"] == app)
        assert MEASURED_BYTES[app] == -(-largest // STEP_BYTES) * STEP_BYTES
