"""The cells of a pool that remain, as one worker remembers them, and its random choice of one.

What it remembers may be out of date: then a claim fails, and the cell is forgotten until the next
look. Workers look anew when they have forgotten all.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from voxcast.hpc.pool_cells import CellList, read_cells
from voxcast.hpc.pool_errors import ErrorLog
from voxcast.jobs.escalate import Attempt, next_request
from voxcast.records import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from voxcast.hpc.pool import Pool
    from voxcast.hpc.pool_cells import PoolCell
    from voxcast.hpc.tokens import Claim

REMEMBERED = 10_000  # cells, about 15 MB


class Remaining:
    """The cells that wait.

    Parameters
    ----------
    pool : Pool
    wanted : callable
        Whether this worker may ever run a cell.
    shortfall : callable
        What a worker lacks for a cell and its request; empty if nothing.
    """

    def __init__(
        self,
        pool: Pool,
        wanted: Callable[[PoolCell], bool],
        shortfall: Callable[[PoolCell, Request], str],
    ) -> None:
        self._pool, self._wanted, self._shortfall = pool, wanted, shortfall
        self._random = random.Random()  # noqa: S311  # workers shall differ
        self._lists: dict[str, Mapping[str, PoolCell]] = {}  # by name of their files
        self._cells: dict[str, PoolCell] = {}  # those that were asked for lately
        self._requests: dict[tuple[str, int], Request | None] = {}
        self._waiting: list[tuple[str, int]] = []
        self.lacking: Counter[str] = Counter()  # what cells lacked here, since the last look

    def look(self) -> int:
        """Read anew which cells wait; return how many, whether this worker may run them or not."""
        for path in self._pool.cell_files():
            if path.name not in self._lists:
                self._lists[path.name] = CellList(path)
        for path in self._part_files():
            if path.name not in self._lists:
                self._lists[path.name] = read_cells(path)
        self.lacking.clear()
        waiting = self._pool.tokens.waiting().items()
        lists = self._lists.values()
        self._waiting = [(key, n) for key, n in waiting if any(key in cells for cells in lists)]
        return len(self._waiting)

    def take(self, holder: str) -> tuple[Claim, PoolCell, Request] | None:
        """Claim a random cell that fits; None if none of those remembered is left."""
        for position, (key, attempts) in self._drawn():
            self._forget(position)
            fitting = self._fitting(key, attempts)
            if fitting is None:
                continue  # time only gets shorter: it need not be tried again
            claim = self._pool.tokens.claim(key, attempts, holder)
            if claim is not None:
                return claim, *fitting
        return None

    def fits_any(self) -> bool:
        """Tell whether a cell that waits fits; those that do not are forgotten."""
        for position, (key, attempts) in self._drawn():
            if self._fitting(key, attempts) is not None:
                return True
            self._forget(position)
        return False

    def cell(self, key: str) -> PoolCell | None:
        """Return a cell by its key, if it is known."""
        if key not in self._cells:
            holding = next((cells for cells in self._lists.values() if key in cells), None)
            if holding is None:
                return None
            if len(self._cells) >= REMEMBERED:
                self._cells.clear()
            self._cells[key] = holding[key]
        return self._cells[key]

    def attempts(self, key: str, number: int) -> list[Attempt]:
        """Return the attempts of a cell."""
        errors = ErrorLog(self._pool.folder / "errors").of(key, number)
        return [error.attempt for error in errors]

    def request(self, key: str, number: int) -> Request | None:
        """Return what the next attempt of a cell asks for; None if there is to be none."""
        cell = self.cell(key)
        if cell is None or not number:
            return None if cell is None else cell.requests.first
        if (key, number) not in self._requests:
            attempts, bounds = self.attempts(key, number), self._pool.settings.bounds
            request = next_request(cell.requests, attempts, bounds)
            self._requests[key, number] = request if isinstance(request, Request) else None
        return self._requests[key, number]

    def _part_files(self) -> list[Path]:
        return sorted((self._pool.folder / "parts").glob("[!.]*.jsonl"))

    def _fitting(self, key: str, attempts: int) -> tuple[PoolCell, Request] | None:
        """Return a cell and its request if both are for this worker; counts what is lacking."""
        pool_cell, request = self.cell(key), self.request(key, attempts)
        if pool_cell is None or not self._wanted(pool_cell):
            return None
        lack = "attempts" if request is None else self._shortfall(pool_cell, request)
        if lack or request is None:
            self.lacking[lack] += 1
            return None
        return pool_cell, request

    def _drawn(self) -> Iterator[tuple[int, tuple[str, int]]]:
        while self._waiting:
            position = self._random.randrange(len(self._waiting))
            yield position, self._waiting[position]

    def _forget(self, position: int) -> None:
        self._waiting[position] = self._waiting[-1]
        self._waiting.pop()
