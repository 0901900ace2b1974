"""The file of a worker in a pool: its name, where it runs, and at its end what it did.

Its name is that of a sitting, and taken by making the file, which only one worker can do. The
probes of a machine are kept for the workers that come after.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxcast.campaigns.sittings import Sitting, open_sitting
from voxcast.files import read_json, write_json
from voxcast.jobs.claim import file_system_time
from voxcast.profiling.probes import Probes

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.hpc.pool import Pool
    from voxcast.hpc.worker_allocation import WorkerAllocation
    from voxcast.profiling.host import HostFacts

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
PROBES_AGE_S = 6 * 3600.0  # older probes are of another time of the machine


@dataclass
class WorkSummary:
    """What a worker did, and what it left.

    Attributes
    ----------
    worker : str
    recorded, failed, lost, split : int
        Runs on record; attempts that failed; runs whose claims another worker had taken over;
        cells that were split.
    left : int
        Cells that wait at its end.
    lacking : dict
        What cells that wait lack on this worker, with their number.
    stopped : bool
        Whether it was asked to end.
    """

    worker: str
    recorded: int = 0
    failed: int = 0
    lost: int = 0
    split: int = 0
    left: int = 0
    lacking: dict[str, int] = field(default_factory=dict)
    stopped: bool = False


def open_worker(
    pool: Pool, facts: HostFacts, probes: Probes | None, allocation: WorkerAllocation
) -> Sitting:
    """Register a worker; return the sitting that its records name."""
    probes = probes or _kept_probes(pool, facts.host_id)
    sitting = open_sitting(pool.folder / "partial", (), probes, facts)
    if probes is None:
        path = _probes_file(pool, facts.host_id)
        write_json(path, sitting.probes)
    stem, number = sitting.name.rpartition("-")[0], 1
    content = {
        "pid": os.getpid(),
        "host": sitting.host,
        "allocation": {
            "cpus": allocation.cpus,
            "gpus": allocation.gpus,
            "memory_bytes": allocation.memory_bytes,
            "left_s": None if allocation.left_s == float("inf") else allocation.left_s,
        },
        "job": {name: os.environ[name] for name in JOB_VARIABLES if name in os.environ},
    }
    while True:
        name = f"{stem}-{number}"
        try:
            handle = os.open(
                pool.workers / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
            )
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(handle, "w") as stream:
            json.dump(content, stream)
        return dataclasses.replace(sitting, name=name, number=number)


def close_worker(path: Path, summary: WorkSummary) -> None:
    """Add to a worker's file what it did; nothing happens where that cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        write_json(path, {**read_json(path), "ended": dataclasses.asdict(summary)})
        path.chmod(0o600)


def _kept_probes(pool: Pool, host_id: str) -> Probes | None:
    path = _probes_file(pool, host_id)
    with contextlib.suppress(OSError, ValueError, TypeError):
        if file_system_time(pool.workers) - path.stat().st_mtime < PROBES_AGE_S:
            return Probes(**read_json(path))
    return None


def _probes_file(pool: Pool, host_id: str) -> Path:
    return pool.workers / f".probes-{host_id}.json"
