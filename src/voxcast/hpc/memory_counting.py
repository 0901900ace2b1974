"""How the Slurm of this machine counts the memory that it holds against the request of a job."""

from __future__ import annotations

import dataclasses
import re
import shutil
from typing import TYPE_CHECKING

from voxcast.errors import VoxcastError
from voxcast.jobs import slurm

if TYPE_CHECKING:
    from voxcast.allocation.machines import Cluster, MemoryCounted


def with_memory_counted(cluster: Cluster) -> Cluster:
    """Return a cluster with how it counts memory: as its file says, else as Slurm says here.

    It stays open where no Slurm answers.
    """
    if cluster.memory_counted is not None or shutil.which("scontrol") is None:
        return cluster
    try:
        return dataclasses.replace(cluster, memory_counted=memory_counted())
    except VoxcastError:  # installed and not set up, or away; to submit will tell
        return cluster


def memory_counted() -> MemoryCounted:
    """Return how memory is counted that is held against the request of a job.

    With ``OverMemoryKill`` Slurm adds up the resident pages of a job's processes and kills it;
    control groups alone count otherwise. ``NoShared`` leaves pages of files out of the sum.

    Raises
    ------
    SlurmAwayError, SlurmRefusedError, ConfigError
        If it cannot be asked.
    """
    return counted_by(slurm.call(["scontrol", "show", "config"]))


def counted_by(config: str) -> MemoryCounted:
    """Return the same from what ``scontrol show config`` prints."""
    settings = dict(
        re.findall(r"^(JobAcctGather(?:Type|Params))\s*=\s*(\S+)", config, re.MULTILINE)
    )
    params = settings.get("JobAcctGatherParams", "").lower().split(",")
    adds_up = settings.get("JobAcctGatherType", "").endswith("/linux")
    kills = "overmemorykill" in params and "noshared" not in params
    return "rss" if adds_up and kills else "cgroup"
