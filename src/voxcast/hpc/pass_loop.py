"""Passes of workers over a pool, one after the other, until no cell waits.

A pass is followed as any submission is, see `voxcast.jobs.follow`. Its jobs are as large as most
of the cells need that wait when it begins; what needs more is left to the next.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.hpc.campaign_pool import pool_state
from voxcast.hpc.healing import heal
from voxcast.hpc.remaining import Remaining
from voxcast.hpc.worker_jobs import LEAST_S, MAX_JOBS, next_jobs
from voxcast.hpc.worker_pass import CLOSED, create_pass, open_pass
from voxcast.jobs import slurm
from voxcast.jobs.follow import POLL_S, Follower, nap
from voxcast.jobs.slurm import SlurmExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxcast.hpc.pool import Pool
    from voxcast.hpc.worker_jobs import WorkerJobs
    from voxcast.jobs.claim import Claim
    from voxcast.jobs.plan import Plan
    from voxcast.jobs.submission import Submission

logger = logging.getLogger(__name__)

MAX_PASSES = 10
COLLECT_S = 600.0  # between two collections of finished runs


@dataclass(frozen=True)
class PassSettings:
    """How passes are made.

    Attributes
    ----------
    poll_s : float
        Seconds between two questions to the scheduler.
    max_passes, max_jobs : int
        The most passes that are submitted, and the most jobs of each.
    least_s : float
        No job is shorter, where the partition permits.
    """

    poll_s: float = POLL_S
    max_passes: int = MAX_PASSES
    max_jobs: int = MAX_JOBS
    least_s: float = LEAST_S


def follow_passes(
    pool: Pool,
    plan_of: Callable[[WorkerJobs], Plan],
    claim: Claim,
    collect: Callable[[], object],
    settings: PassSettings | None = None,
) -> int:
    """Submit pass after pass until no cell waits; return how many were submitted.

    A pass that is queued or running, of this process or an earlier one, is followed to its end
    before another is submitted.

    Parameters
    ----------
    plan_of : callable
        Returns the plan of a pass, see `voxcast.hpc.worker_pass.pass_plan`.
    claim : Claim
        The right to do this, see `voxcast.jobs.claim.claimed`.
    collect : callable
        Puts finished runs on record; called at intervals and after each pass.

    Raises
    ------
    RunError
        If a pass is refused, or changes nothing: the next would not either.
    """
    settings = settings or PassSettings()
    loop = _PassLoop(pool, claim, collect, settings)
    submission, submitted = open_pass(pool.folder), 0
    if submission is not None:
        logger.info("a pass is under way: %s", submission.folder)
    while True:
        if submission is not None:
            loop.follow(submission)
        loop.settle()
        jobs = next_jobs(pool, max_jobs=settings.max_jobs, least_s=settings.least_s)
        if jobs is None:
            return submitted
        if submission is not None and submitted:
            loop.check_progress(submission)
        if submitted == settings.max_passes:
            logger.warning("%d passes were made, and cells still wait", submitted)
            return submitted
        loop.standing = _standing(pool)
        submission = create_pass(pool.folder, plan_of(jobs))
        submitted += 1
        logger.info("pass %d: %s", submitted, jobs)


class _PassLoop:
    def __init__(
        self, pool: Pool, claim: Claim, collect: Callable[[], object], settings: PassSettings
    ) -> None:
        self._pool, self._claim, self._collect = pool, claim, collect
        self._settings = settings
        self._remaining = Remaining(pool, lambda _: True, lambda *_: "")
        self._holders = 0
        self._collected_at = time.monotonic()
        self.standing: object = None

    def follow(self, submission: Submission) -> None:
        """Follow a pass until its last job has ended, or no cell is left for those that wait."""
        from tqdm import tqdm

        executor = SlurmExecutor(submission)
        follower = Follower(submission, executor)
        total = len(self._pool.cells())
        try:
            with tqdm(total=total, unit="cell", disable=None, leave=False) as bar:
                while True:
                    self._claim.touch()
                    goes_on = follower.step()
                    state = pool_state(self._pool)
                    bar.n = state.recorded
                    workers = sum(task.is_running for task in follower.current.values())
                    bar.set_postfix(workers=workers, waiting=state.waiting)
                    if not goes_on:
                        break
                    if not state.left:
                        self._close(follower)
                        break
                    if time.monotonic() - self._collected_at >= COLLECT_S:
                        self._collect_now()
                    nap(self._settings.poll_s, self._claim)
        finally:
            self._collect_now()
        if follower.state.problems and not follower.state.ended:
            reason = next(iter(follower.state.problems.values()))
            raise RunError(f"the jobs of a pass were refused ({reason})", self._pool.settings.name)

    def settle(self) -> None:
        """Wait until no worker holds a cell; those of workers that are gone are returned."""
        is_noted = False
        while True:
            self._remaining.look()
            heal(self._pool, self._remaining, self._holder)
            tokens = self._pool.tokens
            if tokens.waiting() or not (tokens.claims() or tokens.commits()):
                break
            if not is_noted:
                logger.info("other workers, or workers that are gone, still hold cells; waiting")
                is_noted = True
            nap(min(self._settings.poll_s, self._pool.settings.stale_s / 4), self._claim)
        self._collect_now()

    def check_progress(self, submission: Submission) -> None:
        """Check that the last pass has changed anything.

        Raises
        ------
        RunError
            If it has not.
        """
        if _standing(self._pool) == self.standing:
            problem = "the workers of the last pass ended without having run any cell"
            raise RunError(problem, submission.folder / "logs", "see what they say there")

    def _close(self, follower: Follower) -> None:
        """Take jobs out of the queue for which no cell is left, and follow the pass no more."""
        live, current = follower.state.live, follower.current
        waiting = [
            (follower.state.arrays[array].job, number)
            for name, (array, number) in live.items()
            if name in current and not current[name].is_running
        ]
        if waiting:
            try:
                follower.executor.cancel(waiting)
            except (slurm.SlurmAwayError, slurm.SlurmRefusedError) as error:
                logger.warning("%d jobs with nothing to do stay queued: %s", len(waiting), error)
        follower.submission.record({"event": CLOSED})

    def _collect_now(self) -> None:
        self._collect()
        self._collected_at = time.monotonic()

    def _holder(self) -> str:
        """Return a new name for a claim by which a cell is returned."""
        self._holders += 1
        return f"passes-{self._claim.token}~{self._holders}"


def _standing(pool: Pool) -> object:
    """Return what changes whenever a worker has run a cell."""
    tokens = pool.tokens
    return tokens.recorded(), tokens.waiting(), tokens.given_up(), tokens.split()
