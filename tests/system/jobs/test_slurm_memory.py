"""What is requested where memory is counted as a sum of resident pages, on a real Slurm."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from followed import followed, outcomes
from measured import measured_run
from planted_tasks import plan_of
from private_slurm import PrivateSlurm
from voxcast import config
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
from voxcast.apps.app import command, environment
from voxcast.images.image_set import write_cohort
from voxcast.jobs import slurm as slurm_commands
from voxcast.records import Configuration
from voxcast_apps.heads.grids import Sizes

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
    held = 200 * 10**6
    by_kernel = requested_bytes(held, "cgroup")
    added = MEASURED_BYTES[APP]
    assert requested_bytes(held, None) == by_kernel
    assert requested_bytes(held, "rss") - by_kernel == pytest.approx(added, abs=2**20)


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


@pytest.mark.slurm
def test_the_usual_margin_suffices_where_slurm_adds_up_resident_pages(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    (head,) = write_cohort(
        tmp_path / "heads", seed=515, subjects=1, sizes=Sizes((350_000, 600_000), (48, 256))
    )
    image = Path(head.path).resolve()
    app = config.load_app(ROOT / "conf" / "app", APP)
    parameters = {**app.parameters, **app.scaled_down}
    (tmp_path / "out-measured").mkdir()
    words = command(app, image, tmp_path / "out-measured", ONE_CPU, parameters)
    profile = measured_run(words, tmp_path / "measured", env=environment(ONE_CPU))
    assert profile.outcome == "completed"
    counted, _ = slurm_commands.memory_counted(slurm_commands.settings())
    assert counted == "rss"
    memory = requested_bytes(profile.peak_rss_bytes, counted)
    plan = plan_of(app, [image], memories_bytes=(memory, 4 * memory))
    follower = followed(follower_of(dataclasses.replace(plan, parameters=parameters)))
    (task,) = plan.tasks
    assert outcomes(follower, task.name) == ["completed"]
    used = [
        e["facts"]["peak_bytes"] for e in follower.submission.events() if e["event"] == "ended"
    ]
    # By what a control group charges it would have been killed.
    assert requested_bytes(profile.peak_rss_bytes, "cgroup") < used[0] <= memory
