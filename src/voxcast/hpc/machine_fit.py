"""Which cells of a pool fit one worker: its allocation, its software and its files."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from voxcast.apps.app import app_version, choose
from voxcast.apps.checks import check_startable
from voxcast.errors import RunError, VoxcastError

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.hpc.pool import PoolSettings
    from voxcast.hpc.pool_cells import PoolCell
    from voxcast.hpc.worker_allocation import WorkerAllocation
    from voxcast.records import Cell, Configuration, Request

logger = logging.getLogger(__name__)

MAX_MISSING = 5  # volumes; then a folder is not there, rather than a file


class MachineFit:
    """What a worker lacks for a cell."""

    def __init__(self, settings: PoolSettings, allocation: WorkerAllocation) -> None:
        self._settings, self._allocation = settings, allocation
        self._problems: dict[tuple[str, str, Configuration], VoxcastError | None] = {}
        self._missing: dict[Path, RunError] = {}

    def allocation(self, app: str) -> WorkerAllocation:
        """Return what a run of an application may use here, whose mapped files count too."""
        mapped = self._settings.mapped_files_bytes.get(app, 0)
        left = max(0, self._allocation.memory_bytes - mapped)
        return dataclasses.replace(self._allocation, memory_bytes=left)

    def shortfall(self, pool_cell: PoolCell, request: Request) -> str:
        """Return what is lacking, in a word; empty if the cell can be run.

        Raises
        ------
        RunError
            If too many volumes are missing.
        """
        cell = pool_cell.cell
        lack = self.allocation(cell.app).shortfall(cell.configuration, request)
        if lack:
            return lack
        if self._problem(cell) is not None:
            return "the application"
        return "its volume" if self._lacks_volume(cell) else ""

    def check(self, recorded: int) -> None:
        """Check at the end that what is lacking here has not kept the worker from all its work.

        Raises
        ------
        VoxcastError
            The first of the problems, if nothing was recorded.
        """
        problems = [
            *self._missing.values(),
            *(p for p in self._problems.values() if p is not None),
        ]
        if problems and not recorded:
            raise problems[0]

    def _problem(self, cell: Cell) -> VoxcastError | None:
        name = (cell.app, cell.app_version, cell.configuration)
        if name not in self._problems:
            self._problems[name] = problem = self._checked(cell)
            if problem is not None:
                logger.warning("%s", problem)
        return self._problems[name]

    def _checked(self, cell: Cell) -> VoxcastError | None:
        try:
            app = choose(self._settings.apps, cell.app)
            check_startable(app, cell.configuration)
            version = app_version(app, cell.configuration)
        except VoxcastError as error:
            return error
        if version == cell.app_version:
            return None
        then = f"install {cell.app_version} here, or make the pool with the version of its workers"
        return RunError(f"is version {version} here", cell.app, then)

    def _lacks_volume(self, cell: Cell) -> bool:
        if not cell.volume_id:
            return False
        path = self._settings.paths[cell.volume_id]
        if path.is_file():
            return False
        problem = RunError("no such volume", path, "is its folder mounted on this machine?")
        if path not in self._missing:
            logger.warning("%s", problem)
        self._missing[path] = problem
        if len(self._missing) >= MAX_MISSING:
            raise problem
        return True
