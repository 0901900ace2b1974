"""The end of a run of a pool: whether it is a record, and what becomes of a cell if it is not."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from voxcast.campaigns.recorder import log_tail
from voxcast.hpc.pool_errors import ErrorLog, PoolError, profile_error
from voxcast.hpc.splitting import parts_of, split_cell
from voxcast.jobs.escalate import Attempt, Stop, next_request
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.campaigns.settings import Conditions
    from voxcast.hpc.pool import Pool
    from voxcast.hpc.pool_cells import PoolCell
    from voxcast.hpc.tokens import Claim
    from voxcast.records import Cell, Profile

logger = logging.getLogger(__name__)

KILLED = (-9, 137)  # by SIGKILL, as the kernel does for memory; the latter seen through a shell
LOST = "its worker gave no more signs of life"

Fate = Literal["waits", "split", "given up"]


def is_record(pool: Pool, cell: Cell, profile: Profile, conditions: Conditions) -> bool:
    """Tell whether a run is a record, and not an attempt that a larger worker may better.

    A run that reached a limit of the pool, or of its configuration, is a lower bound on record.

    Parameters
    ----------
    conditions : Conditions
        Those it was measured under, with the limits of the worker.
    """
    if profile.outcome == "timeout":
        return conditions.time_limit_s == pool.settings.conditions.time_limit_s
    if profile.outcome == "out_of_memory":
        configured = cell.configuration.mem_limit_bytes or float("inf")
        return configured <= (conditions.mem_limit_bytes or float("inf"))
    return profile.outcome == "completed"


def attempt_of(request: Request, profile: Profile, conditions: Conditions) -> Attempt:
    """Return the attempt of a run: with the limit that it reached, if it reached one."""
    outcome = profile.outcome
    if outcome == "failed" and profile.exit_status in KILLED:
        outcome = "out_of_memory"
    if outcome == "timeout" and conditions.time_limit_s is not None:
        request = dataclasses.replace(request, walltime_s=conditions.time_limit_s)
    if outcome == "out_of_memory" and conditions.mem_limit_bytes is not None:
        request = dataclasses.replace(request, memory_bytes=conditions.mem_limit_bytes)
    return Attempt(request, outcome, profile.runtime_s)


@dataclass(frozen=True)
class FailedRun:
    """A run that is no record, in its folder ``partial``."""

    request: Request
    profile: Profile
    conditions: Conditions
    partial: Path
    worker: str
    host_class: str


def log_failed_run(
    pool: Pool, claim: Claim, pool_cell: PoolCell, earlier: Sequence[Attempt], run: FailedRun
) -> Fate:
    """Add a failed run to the error log, and give its cell back with what it now asks for."""
    cell = pool_cell.cell
    attempt = attempt_of(run.request, run.profile, run.conditions)
    error = profile_error(
        claim.key, attempt, run.profile, run.worker, log_tail(run.partial),
        app=cell.app, subject=cell.subject, host_class=run.host_class,
    )  # fmt: skip
    return _log(pool, claim, pool_cell, earlier, error)


def log_lost_worker(
    pool: Pool, claim: Claim, pool_cell: PoolCell, earlier: Sequence[Attempt], worker: str
) -> Fate:
    """Add to the error log that ``worker`` is gone, and give the cell back that it had."""
    request = next_request(pool_cell.requests, earlier, pool.settings.bounds)
    again = earlier[-1].request if isinstance(request, Stop) else request
    cell = pool_cell.cell
    attempt = Attempt(again, "node_failure")
    error = PoolError(claim.key, attempt, LOST, worker, cell.app, cell.subject)
    return _log(pool, claim, pool_cell, earlier, error)


def _log(
    pool: Pool,
    claim: Claim,
    pool_cell: PoolCell,
    earlier: Sequence[Attempt],
    error: PoolError,
) -> Fate:
    number, bounds, cell = claim.attempts + 1, pool.settings.bounds, pool_cell.cell
    ErrorLog(pool.folder / "errors").add(number, error)
    after = next_request(pool_cell.requests, [*earlier, error.attempt], bounds)
    subject = f" sub-{cell.subject}" if cell.subject else ""
    name = f"{cell.app}{subject}, {cell.configuration.label}: {error.cause}"
    if isinstance(after, Request):
        pool.tokens.give_back(claim, number)
        asks = f"{format_seconds(after.walltime_s)} and {format_bytes(after.memory_bytes)}"
        logger.warning("%s; it waits again, for %s", name, asks)
        return "waits"
    if error.attempt.outcome == "timeout":
        took_s = error.attempt.request.walltime_s
        app, longest_s = pool.settings.apps[cell.app], min(bounds.max_walltime_s, took_s)
        if parts := parts_of(pool_cell, app, took_s, longest_s):
            split_cell(pool, claim, number, parts)
            logger.warning("%s; split into %d parts", name, len(parts))
            return "split"
    pool.tokens.give_up(claim, number)
    logger.warning("%s; given up: %s", name, after.reason)
    return "given up"
