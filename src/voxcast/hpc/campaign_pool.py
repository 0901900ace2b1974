"""The pool of a campaign: its cells for any machine of a cluster, and its runs in the history."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError
from voxcast.hpc.cell_ladders import ladder_of
from voxcast.hpc.escalation import Bounds
from voxcast.hpc.pool import Pool, PoolSettings, make_pool
from voxcast.hpc.pool_cells import PoolCell
from voxcast.hpc.worker_allocation import MARGIN_S, WORKER_BYTES
from voxcast.measure.campaign import runs_elsewhere
from voxcast.measure.host import HostFacts
from voxcast.quantities import format_bytes
from voxcast.runs.store import collect, load_history, recorded_cell_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from voxcast.allocation.site import Cluster
    from voxcast.hpc.cell_ladders import CellForecast
    from voxcast.measure.plan import CampaignPlan
    from voxcast.measure.projects import Campaign
    from voxcast.records import Cell, Run

    Forecast = Callable[[Mapping[str, Cell], Mapping[str, Path]], Mapping[str, CellForecast]]

logger = logging.getLogger(__name__)

POOL = "pool"


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

    def text(self) -> str:
        """Write it in one line."""
        return (
            f"{self.recorded} of {self.cells} cells done, {self.running} running, "
            f"{self.waiting} waiting, {self.given_up} given up"
        )


def make_campaign_pool(
    campaign: Campaign, cluster: Cluster, project: Path, forecast: Forecast | None = None
) -> tuple[Pool, CampaignPlan]:
    """Make the pool of a campaign, or add to it what is new; images are prepared before.

    A run on record counts wherever it was made. Cells that were given up wait again, as failed
    runs of a campaign are tried again. Workers make no local runs, and repeat no noisy runs: the
    metronome tells the speed of their machines.

    Parameters
    ----------
    forecast : callable, optional
        Predicts new cells, given by key, with the files of their volumes; it may leave out any.

    Raises
    ------
    RunError
        If another process is adding cells, or the pool is of another version.
    """
    settings = dataclasses.replace(campaign.settings, host=largest_machine(cluster))
    plan = dataclasses.replace(campaign, settings=settings).plan()
    mapped = {app: cluster.added_bytes_of(app) for app in settings.apps}
    bounds = cluster_bounds(cluster, max(mapped.values(), default=0))
    rows = _recorded(campaign, plan.cells)
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
            mapped_files_bytes=mapped,
        ),
    )
    present = pool.cells()
    new = {
        key: cell
        for key, cell in plan.cells.items()
        if key not in rows and dataclasses.replace(cell, host_class="").key not in present
    }
    forecasts = {} if forecast is None or not new else forecast(new, plan.paths)
    limit_s = campaign.settings.conditions.time_limit_s
    cells = []
    for key, cell in new.items():
        expected_s, predicted = plan.expected_s.get(key, 1.0), forecasts.get(key)
        ladder = ladder_of(cell, expected_s, rows.values(), bounds, limit_s, predicted)
        expected_s = expected_s if predicted is None else predicted.median_s
        cells.append(PoolCell(dataclasses.replace(cell, host_class=""), ladder, expected_s))
    if forecasts:
        logger.info("requests of %d of %d new cells are predicted", len(forecasts), len(new))
    added, again = pool.add(cells), pool.retry()
    recorded = len(plan.cells.keys() & rows.keys())
    logger.info("%d runs are on record, %d added to %s", recorded, added, pool.folder)
    if again:
        logger.info("%d that were given up are tried again", again)
    return pool, plan


def collect_pool(campaign: Campaign, pool: Pool) -> list[Path]:
    """Put new runs of a pool into parts of the campaign's history; return the parts."""
    return collect(
        pool.runs,
        campaign.history,
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


def cluster_bounds(cluster: Cluster, mapped_files_bytes: int = 0) -> Bounds:
    """Return the largest run of any partition: its largest job, less what is not the run's.

    That is what the worker takes, and files that the run maps where these count.

    Raises
    ------
    ConfigError
        If these leave nothing of the largest job.
    """
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
    most = max(largest, default=float("inf"))
    if most <= WORKER_BYTES + mapped_files_bytes:
        taken = f"a worker takes {format_bytes(WORKER_BYTES)}"
        taken += f", mapped files {format_bytes(mapped_files_bytes)}" if mapped_files_bytes else ""
        problem = f"no memory is left for a run in a job of {format_bytes(most)}: {taken}"
        raise ConfigError(problem, cluster.name, "allow larger jobs: max_memory, memory")
    return Bounds(
        max_walltime_s=max(map(_longest_run_s, limits_s), default=float("inf")),
        max_memory_bytes=most - WORKER_BYTES - mapped_files_bytes,
        max_failures=2,
    )


def _longest_run_s(limit_s: float | None) -> float:
    return float("inf") if limit_s is None else max(limit_s - 2 * MARGIN_S, limit_s / 2)


def _recorded(campaign: Campaign, cells: Mapping[str, Cell]) -> dict[str, Run]:
    """Return the runs of the campaign's history, also of other machines, by key of the plan."""
    campaign.collect()
    if not campaign.history.is_dir() or not recorded_cell_keys(campaign.history):
        return {}
    return runs_elsewhere(cells, load_history([campaign.history]), any_host=True)
