"""A worker of a pool: takes random cells that fit its allocation, runs and records them.

Runs are measured by `voxcast.campaigns.recorder`, as those of a campaign on one machine. What is
said of a cell is decided by its token, see `voxcast.hpc.tokens`: a worker that was given up, and
lives on, can neither record nor return what another has taken over.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from voxcast.campaigns.failures import Failures
from voxcast.campaigns.recorder import Recorder
from voxcast.errors import RunError
from voxcast.files import with_content
from voxcast.hpc.healing import Signs, heal, move_into_place
from voxcast.hpc.heartbeats import Heartbeat
from voxcast.hpc.machine_fit import MachineFit
from voxcast.hpc.pool_attempts import FailedRun, is_record, log_failed_run
from voxcast.hpc.remaining import Remaining
from voxcast.hpc.worker_allocation import usable_cores
from voxcast.hpc.worker_file import WorkSummary, close_worker, open_worker
from voxcast.profiling.host import host_class
from voxcast.profiling.leftovers import sweep_abandoned
from voxcast.profiling.metronome import Metronome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from voxcast.campaigns.settings import Conditions
    from voxcast.campaigns.sittings import Sitting
    from voxcast.hpc.pool import Pool
    from voxcast.hpc.pool_cells import PoolCell
    from voxcast.hpc.tokens import Claim
    from voxcast.hpc.worker_allocation import WorkerAllocation
    from voxcast.profiling.host import HostFacts
    from voxcast.profiling.probes import Probes
    from voxcast.records import Profile, Request

logger = logging.getLogger(__name__)

TERMINATED = (-15, 143)  # by SIGTERM; the latter seen through a shell
SAME_SIGNAL_S = 1.0  # in which a signal to all processes of a job reaches us too


def work(
    pool: Pool,
    allocation: WorkerAllocation,
    facts: HostFacts,
    *,
    wanted: Callable[[PoolCell], bool] = lambda _: True,
    probes: Probes | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> WorkSummary:
    """Run cells of ``pool`` until none that remains fits, or the time is up.

    Parameters
    ----------
    allocation : WorkerAllocation
    facts : HostFacts
        Of this machine.
    wanted : callable
        Which cells this worker may take.
    probes : Probes, optional
        Speeds of the machine, if known.
    stopped : callable
        Asked several times a second: once it is true the cell at hand is returned.

    Raises
    ------
    RunError
        If the pool cannot be written to, its disk is full, volumes are missing, or an application
        fails on image after image. The cell at hand is returned.
    KeyboardInterrupt
        If interrupted; the cell at hand is returned, at once.
    """
    pool.check_writable()
    sweep_abandoned()
    sitting = open_worker(pool, facts, probes, allocation)
    worker = _Worker(pool, allocation, sitting, host_class(facts), wanted, stopped)
    path = pool.workers / f"{sitting.name}.json"
    with Heartbeat(path, pool.settings.heartbeat_s, worker.check_claim):
        try:
            worker.run()
        finally:
            worker.return_claims()
            close_worker(path, worker.summary)
    return worker.summary


class _Worker:
    def __init__(
        self,
        pool: Pool,
        allocation: WorkerAllocation,
        sitting: Sitting,
        machine: str,
        wanted: Callable[[PoolCell], bool],
        stopped: Callable[[], bool],
    ) -> None:
        self.summary = WorkSummary(sitting.name)
        self._pool, self._allocation, self._sitting = pool, allocation, sitting
        self._machine, self._stopped = machine, stopped
        self._fit = MachineFit(pool.settings, allocation)
        self._remaining = Remaining(pool, wanted, self._fit.shortfall)
        self._numbers = itertools.count(1)
        self._failures = Failures([])
        self._lock = threading.Lock()
        self._running: Claim | None = None
        self._is_lost = False
        seed = int.from_bytes(os.urandom(4))
        self._cores = usable_cores(allocation.cpus, sorted(os.sched_getaffinity(0)), seed)

    def run(self) -> None:
        """Take cell after cell."""
        enabled = self._pool.settings.conditions.metronome
        with Metronome(enabled=enabled) as metronome:
            self._remaining.look()
            heal(self._pool, self._remaining, self._holder)
            self._remaining.look()
            while not self._stopped():
                taken = self._remaining.take(self._holder())
                if taken is not None:
                    self._run(*taken, metronome)
                elif not self._look_again():
                    break
        self.summary.stopped = self._stopped()
        self.summary.left = len(self._pool.tokens.waiting())
        self.summary.lacking = dict(self._remaining.lacking)
        if not self.summary.stopped:
            self._fit.check(self.summary.recorded)

    def check_claim(self) -> None:
        """Notice if another worker has taken over the run at hand; called by the heartbeat."""
        with self._lock:
            if self._running is not None and not self._pool.tokens.holds(self._running):
                self._is_lost = True

    def return_claims(self) -> None:
        """Let the cells wait that this worker still holds, and finish what it has committed."""
        for commit in self._pool.tokens.commits():
            if commit.worker == self.summary.worker:
                move_into_place(self._pool, commit, self._remaining)
        for claim in self._pool.tokens.claims():
            if claim.worker == self.summary.worker:
                self._pool.tokens.give_back(claim)

    def _holder(self) -> str:
        return f"{self.summary.worker}~{next(self._numbers)}"

    def _look_again(self) -> bool:
        """Look which cells wait, after what others left was put right; False if none fits.

        Waits until every worker with a claim has given a sign of life, or is given up: otherwise
        the last worker could end just after another has died.
        """
        settings, waited_s = self._pool.settings, 0.0
        while True:
            healed = heal(self._pool, self._remaining, self._holder)
            self._remaining.look()
            if self._remaining.fits_any():
                return True
            signs = Signs(self._pool)
            silent = [
                claim.worker
                for claim in (*self._pool.tokens.claims(), *self._pool.tokens.commits())
                if claim.worker != self.summary.worker and signs.age_s(claim.worker) > waited_s
            ]
            if not silent and not healed:
                return False
            pause_s = min(settings.heartbeat_s / 2, 5.0)
            if self._allocation.left_s <= pause_s or self._slept_until_stopped(pause_s):
                return False
            waited_s += pause_s

    def _slept_until_stopped(self, pause_s: float) -> bool:
        """Sleep; return at once, with true, when asked to end."""
        end = time.monotonic() + pause_s
        while time.monotonic() < end and not self._stopped():
            time.sleep(min(0.2, pause_s))
        return self._stopped()

    def _run(
        self, claim: Claim, pool_cell: PoolCell, request: Request, metronome: Metronome
    ) -> None:
        pool, settings = self._pool, self._pool.settings
        if pool.tokens.is_recorded(claim.key):
            pool.tokens.drop(claim)
            return
        cell = dataclasses.replace(pool_cell.cell, host_class=self._machine)
        conditions = self._conditions(cell.app)
        recorder = Recorder(
            pool.runs, settings.apps, settings.paths, settings.recipes, conditions, self._sitting
        )
        try:
            with recorder.run_folder(pool.partial(claim.name)) as partial:
                self._watch(claim)
                profile = recorder.measure(
                    cell, partial, conditions, self._cores, metronome,
                    lambda: self._is_lost or self._stopped(),
                )  # fmt: skip
                self._watch(None)
                if profile.outcome == "preempted" or self._ended_with_us(profile):
                    if not pool.tokens.give_back(claim):
                        self._lose(claim)
                elif is_record(pool, cell, profile, conditions):
                    recorder.write_record(cell, profile, partial, pool.runs / cell.key)
                    self._commit(claim, cell.key, partial)
                    self._failures.count(cell, profile.outcome)
                else:
                    run = FailedRun(
                        request, profile, conditions, partial, self.summary.worker, self._machine
                    )
                    self._fail(claim, pool_cell, run)
        except (OSError, RunError):
            self._watch(None)
            if pool.tokens.holds(claim) or pool.tokens.committed_key(claim) is not None:
                raise
            self._lose(claim)  # its folder may have been removed under the run
            return
        if profile.outcome == "failed" and not self._stopped() and not self._any_done(cell.app):
            self._failures.count(cell, "failed")
            self._failures.check(cell, pool.folder / "errors")

    def _ended_with_us(self, profile: Profile) -> bool:
        """Tell whether a run failed as the system ends the job: all of its processes at once."""
        if profile.outcome != "failed":
            return False
        return self._stopped() or (
            profile.exit_status in TERMINATED and self._slept_until_stopped(SAME_SIGNAL_S)
        )

    def _conditions(self, app: str) -> Conditions:
        conditions, allocation = self._pool.settings.conditions, self._fit.allocation(app)
        limit_s = min(conditions.time_limit_s or float("inf"), max(0.0, allocation.left_s))
        return dataclasses.replace(
            conditions,
            time_limit_s=None if limit_s == float("inf") else limit_s,
            mem_limit_bytes=allocation.memory_bytes,
        )

    def _watch(self, claim: Claim | None) -> None:
        """Have `check_claim` watch a claim, or none."""
        with self._lock:
            self._running, self._is_lost = claim, False

    def _commit(self, claim: Claim, record_key: str, partial: Path) -> None:
        if not self._pool.tokens.commit(claim, record_key, with_content(partial)):
            self._lose(claim)
            return
        move_into_place(self._pool, claim, self._remaining)
        self.summary.recorded += 1

    def _lose(self, claim: Claim) -> None:
        self.summary.lost += 1
        logger.warning("%s: another worker had taken it over; discarded", claim.key[:12])

    def _fail(self, claim: Claim, pool_cell: PoolCell, run: FailedRun) -> None:
        if not self._pool.tokens.holds(claim):
            self._lose(claim)
            return
        earlier = self._remaining.attempts(claim.key, claim.attempts)
        fate = log_failed_run(self._pool, claim, pool_cell, earlier, run)
        self.summary.failed += 1
        self.summary.split += fate == "split"

    def _any_done(self, app: str) -> bool:
        cells = map(self._remaining.cell, self._pool.tokens.recorded())
        return any(cell is not None and cell.cell.app == app for cell in cells)
