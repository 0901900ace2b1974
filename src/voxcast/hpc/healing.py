"""What dead workers left in a pool, put right by any other worker: claims, commits, parts.

Every step may be repeated, and be done by several workers at once: what decides is a rename.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.files import remove_folder
from voxcast.hpc.heartbeats import file_system_time, modified_s
from voxcast.hpc.pool_attempts import log_lost_worker
from voxcast.hpc.splitting import is_split, join_parts, joinable, release_parts
from voxcast.hpc.tokens import Claim
from voxcast.measure.leftovers import sweep
from voxcast.runs.series import read_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from voxcast.hpc.pool import Pool
    from voxcast.hpc.remaining import Remaining


class Signs:
    """Signs of life of the workers of a pool, at one moment."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._now_s = file_system_time(pool.workers)
        self._age_s: dict[str, float] = {}

    def age_s(self, worker: str) -> float:
        """Return the age of a worker's last sign of life; infinity if it never gave one."""
        if worker not in self._age_s:
            last_s = modified_s(self._pool.workers / f"{worker}.json")
            self._age_s[worker] = float("inf") if last_s is None else self._now_s - last_s
        return self._age_s[worker]

    def is_gone(self, worker: str) -> bool:
        """Tell whether a worker is given up."""
        return self.age_s(worker) > self._pool.settings.stale_s


def heal(pool: Pool, remaining: Remaining, new_holder: Callable[[], str]) -> int:
    """Put right what workers without a sign of life left; return the number of their claims.

    Parameters
    ----------
    new_holder : callable
        Returns a new name for a claim of this worker.
    """
    signs = Signs(pool)
    for commit in pool.tokens.commits():
        if signs.is_gone(commit.worker):
            move_into_place(pool, commit, remaining)
    taken = 0
    for claim in pool.tokens.claims():
        if signs.is_gone(claim.worker):
            new = pool.tokens.take_over(claim, new_holder())
            if new is not None:
                taken += 1
                sweep(pool.partial(claim.name))
                _return(pool, remaining, claim, new)
    for key, attempts in pool.tokens.split().items():
        release_parts(pool, key)
        cell = remaining.cell(key)
        if cell is not None and joinable(pool, key):
            joined = join_parts(pool, key, attempts, new_holder(), cell.cell)
            if joined is not None:
                move_into_place(pool, joined, remaining)
    _sweep_orphans(pool, signs)
    return taken


def move_into_place(pool: Pool, claim: Claim, remaining: Remaining) -> None:
    """Finish a commit: move its run to the runs on record, and count its cell as done."""
    record_key = pool.tokens.committed_key(claim)
    cell = remaining.cell(claim.key)
    if record_key is None or cell is None:
        return  # finished by another worker, or of a list of cells that is not read yet
    folder = pool.folder / "part_runs" if cell.part_of else pool.runs
    folder.mkdir(mode=0o700, exist_ok=True)
    final = folder / record_key
    try:
        pool.partial(claim.name).rename(final)
    except FileNotFoundError:
        pass  # moved before
    except OSError:
        try:  # there is a record from before the pool, and complete ones are not replaced
            read_record(final)
            remove_folder(pool.partial(claim.name))
        except TableError:
            remove_folder(final)
            pool.partial(claim.name).rename(final)
    pool.tokens.finish(claim)


def _return(pool: Pool, remaining: Remaining, old: Claim, claim: Claim) -> None:
    """Let the cell of a worker that is gone wait again; ``claim`` is ours, taken from ``old``."""
    if pool.tokens.is_recorded(claim.key):
        pool.tokens.drop(claim)
        return
    if is_split(pool, claim.key):
        pool.tokens.set_aside(claim, claim.attempts)
        return
    cell = remaining.cell(claim.key)
    if cell is None:
        pool.tokens.give_back(claim)
        return
    earlier = remaining.attempts(claim.key, claim.attempts)
    log_lost_worker(pool, claim, cell, earlier, old.worker)


def _sweep_orphans(pool: Pool, signs: Signs) -> None:
    """Remove the folders of runs whose claims were lost before their workers ended."""
    for folder in _entries(pool.folder / "partial"):
        try:
            claim = Claim.from_name(folder.name)
        except ValueError:
            continue
        # Claims become commits and never the reverse: asked in this order, neither is missed.
        if (
            signs.is_gone(claim.worker)
            and not pool.tokens.holds(claim)
            and pool.tokens.committed_key(claim) is None
        ):
            with contextlib.suppress(OSError):
                sweep(folder)


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]
