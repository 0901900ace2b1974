"""What is requested where memory is counted as a sum of resident pages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

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
from voxcast.jobs import slurm as slurm_commands
from voxcast.records import Configuration

ROOT = Path(__file__).parents[3]
APP = "ants_segment"
PARTITION, NODE = Partition("debug"), NodeType("virtual", 4, 4 * 10**9, partition="debug")
ONE_CPU = Configuration("cpu", 1, 0)


def requested_bytes(held_bytes: int, counted: MemoryCounted | None) -> int:
    """Return what is requested for a bound of memory with the usual margin."""
    cluster = Cluster("lab", (NODE,), (PARTITION,), memory_counted=counted).for_app(APP)
    bound = np.array([[float(held_bytes)]])
    predictions = Predictions(np.array([[30.0]]), np.array([[60.0]]), bound, bound)
    policy = Policy("balanced", 0.95, 0.1, 2.0)
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
