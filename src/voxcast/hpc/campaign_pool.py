"""The pool of a campaign: its cells for any machine of a cluster, and its runs in the history."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.overview import rows_elsewhere
from voxcast.history.parts import collect, load_history, recorded_cell_keys
from voxcast.hpc.escalation import Bounds, Ladder
from voxcast.hpc.pool import Pool, PoolSettings, make_pool
from voxcast.hpc.pool_cells import PoolCell
from voxcast.hpc.worker_allocation import MARGIN_S, WORKER_BYTES
from voxcast.profiling.host import HostFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from voxcast.allocation.machines import Cluster
    from voxcast.campaigns.plan import CampaignPlan
    from voxcast.campaigns.project_campaign import ProjectCampaign
    from voxcast.records import Cell

logger = logging.getLogger(__name__)

POOL = "pool"
# What the attempts of a cell ask for where nothing like it is on record: multiples of the time
# that its application states, and memories.
TIME_FACTORS = (3.0, 10.0, 30.0)
LEAST_S = 60.0
MEMORIES = tuple(2**n * 10**9 for n in range(1, 8))  # 2 GB to 128 GB
# Where runs of the application in the same configuration are on record: multiples of the largest.
RECORDED_FACTORS = (1.3, 2.0, 4.0)


@dataclass(frozen=True)
class PoolState:
    """Numbers of cells by state."""

    cells: int
    recorded: int
    waiting: int
    running: int
    given_up: int
    split: int

    @property
    def left(self) -> int:
        """Cells that are to be run, or are being run."""
        return self.waiting + self.running + self.split


def make_campaign_pool(
    campaign: ProjectCampaign, cluster: Cluster, project: Path
) -> tuple[Pool, CampaignPlan]:
    """Make the pool of a campaign, or add to it what is new; images are prepared before.

    A run on record counts wherever it was made. Cells that were given up wait again, as failed
    runs of a campaign are tried again. Workers run no anchors, and repeat no noisy runs: the
    metronome tells the speed of their machines.

    Raises
    ------
    RunError
        If another process is adding cells, or the pool is of another version.
    """
    settings = dataclasses.replace(campaign.settings, host=largest_machine(cluster))
    plan = dataclasses.replace(campaign, settings=settings).plan()
    bounds = cluster_bounds(cluster)
    rows = _recorded(campaign, plan.cells)
    cells = [
        PoolCell(
            dataclasses.replace(cell, host_class=""),
            ladder_of(cell, plan.expected_s.get(key, 1.0), rows.values(), bounds,
                      campaign.settings.conditions.time_limit_s),
            plan.expected_s.get(key, 1.0),
        )
        for key, cell in plan.cells.items()
        if key not in rows
    ]  # fmt: skip
    pool = make_pool(
        campaign.folder / POOL,
        PoolSettings(
            name=campaign.name,
            apps=settings.apps,
            paths={name: path.absolute() for name, path in plan.paths.items()},
            project=str(project),
            recipes=plan.recipes,
            conditions=settings.conditions,
            bounds=bounds,
        ),
    )
    added, again = pool.add(cells), pool.retry()
    recorded = len(plan.cells.keys() & rows.keys())
    logger.info("%d runs are on record, %d added to %s", recorded, added, pool.folder)
    if again:
        logger.info("%d that were given up are tried again", again)
    return pool, plan


def collect_pool(campaign: ProjectCampaign, pool: Pool) -> list[Path]:
    """Put new runs of a pool into parts of the campaign's history; return the parts."""
    return collect(
        pool.runs,
        campaign.batch,
        campaign=campaign.name,
        campaign_sha256=campaign.definition_sha256,
    )


def pool_state(pool: Pool) -> PoolState:
    """Return how many cells of a pool are in which state."""
    tokens = pool.tokens
    held = {claim.key for claim in (*tokens.claims(), *tokens.commits())}
    return PoolState(
        cells=len(pool.cells()),
        recorded=len(tokens.recorded()),
        waiting=len(tokens.waiting()),
        running=len(held),
        given_up=len(tokens.given_up()),
        split=len(tokens.split()),
    )


def largest_machine(cluster: Cluster) -> HostFacts:
    """Return a machine on which every cell fits that fits any node of a cluster."""
    gpus = max(node.gpus for node in cluster.node_types)
    return HostFacts(
        cpu_model=cluster.name,
        cores=max(node.cores for node in cluster.node_types),
        memory_bytes=int(max(node.memory_bytes for node in cluster.node_types)),
        gpu_models=("GPU",) * gpus,
        kernel="",
        hostname="",
    )


def cluster_bounds(cluster: Cluster) -> Bounds:
    """Return the largest run of any partition: its largest job, less what the worker takes."""
    limits_s = [partition.max_walltime_s for partition in cluster.partitions]
    memories = {
        partition.name: [
            n.memory_bytes for n in cluster.node_types if n.partition == partition.name
        ]
        for partition in cluster.partitions
    }
    largest = [
        min(max(memories[p.name]), p.max_memory_bytes or float("inf"))
        for p in cluster.partitions
        if memories[p.name]
    ]
    return Bounds(
        max_walltime_s=max(map(_longest_run_s, limits_s), default=float("inf")),
        max_memory_bytes=max(largest, default=float("inf")) - WORKER_BYTES,
        max_failures=2,
    )


def _longest_run_s(limit_s: float | None) -> float:
    return float("inf") if limit_s is None else max(limit_s - 2 * MARGIN_S, limit_s / 2)


def ladder_of(
    cell: Cell,
    expected_s: float,
    rows: Iterable[Mapping[str, Any]],
    bounds: Bounds,
    time_limit_s: float | None,
) -> Ladder:
    """Return what the attempts of a cell ask for.

    Parameters
    ----------
    expected_s : float
        Of the run, from what its application states.
    rows : iterable of mapping
        Runs on record; those of the application in the same configuration count.
    time_limit_s : float, optional
        At which a run is on record as a lower bound: nothing asks for more.
    """
    configuration = cell.configuration
    alike = [
        row for row in rows
        if row["app"] == cell.app and row["cpus"] == configuration.cpus
        and row["device"] == configuration.device and row["outcome"] == "completed"
    ]  # fmt: skip
    times_s = [max(LEAST_S, factor * expected_s) for factor in TIME_FACTORS]
    memories: list[float] = list(MEMORIES)
    if alike:
        longest_s = max(float(row["runtime_s"]) for row in alike)
        largest = max(int(row["peak_rss_bytes"]) for row in alike)
        times_s = [max(LEAST_S, factor * longest_s) for factor in RECORDED_FACTORS]
        memories = [max(10**8, factor * largest) for factor in RECORDED_FACTORS]
    if configuration.mem_limit_bytes is not None:
        memories = [configuration.mem_limit_bytes]
    most_s = min(time_limit_s or float("inf"), bounds.max_walltime_s)
    return Ladder(
        walltimes_s=tuple(sorted({min(t, most_s) for t in times_s})),
        memories_bytes=tuple(sorted({int(min(m, bounds.max_memory_bytes)) for m in memories})),
        cpus=configuration.cpus,
        gpus=configuration.gpus,
    )


def _recorded(campaign: ProjectCampaign, cells: Mapping[str, Cell]) -> dict[str, dict[str, Any]]:
    """Return the rows of the campaign's history, also of other machines, by key of the plan."""
    campaign.collect()
    if not campaign.batch.is_dir() or not recorded_cell_keys(campaign.batch):
        return {}
    return rows_elsewhere(cells, load_history([campaign.batch]), any_host=True)
