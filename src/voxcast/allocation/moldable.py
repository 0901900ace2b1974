"""Moldable tasks: the runtime of each with several numbers of cores, and how many to give it.

A task is moldable if its cores are chosen before it starts and then stay. Two facts are assumed,
and enforced on predictions: with more cores no task takes longer (it may leave some idle), and
none takes fewer core-hours (Brent). Then, for a makespan to be reached, each task gets the fewest
cores with which it is short enough, its canonical allotment (Mounié, Rapine & Trystram, SIAM J.
Comput. 37:401, 2007), and a makespan for which these need more core-hours than there are cannot
be reached by any schedule. The smallest that passes this test is the lower bound.

Choosing cores first and then placing the tasks as given is the method of two phases of Turek,
Wolf & Yu (SPAA 1992); `voxcast.allocation.list_schedule` is the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]

HALVINGS = 60  # of the interval in which the lower bound lies


@dataclass(frozen=True)
class MoldableTasks:
    """Tasks with options; arrays have the shape (tasks, options).

    Attributes
    ----------
    runtime_s : ndarray
        Not increasing with the cores; infinite where there is no such option.
    cores : ndarray of int
        What a task occupies, increasing.
    """

    runtime_s: Floats
    cores: Ints

    @classmethod
    def of(cls, runtime_s: ArrayLike, cores: ArrayLike, most_cores: int) -> MoldableTasks:
        """Return tasks with predictions made monotone.

        Parameters
        ----------
        runtime_s : array_like, shape (tasks, options)
            Predicted, in seconds; infinite where there is no such option.
        cores : array_like of int, shape (options,) or (tasks, options)
            Increasing along the options.
        most_cores : int
            Of a node; what needs more is no option.

        Raises
        ------
        ConfigError
            If a task has no option.
        """
        predicted_s = np.asarray(runtime_s, float)
        occupied = np.broadcast_to(np.asarray(cores, np.intp), predicted_s.shape)
        allowed = np.isfinite(predicted_s) & (occupied <= most_cores)
        lacking = np.flatnonzero(~allowed.any(axis=1))
        if lacking.size:
            problem = f"none of its allocations fits into a node of {most_cores} cores"
            raise ConfigError(
                problem, f"task {lacking[0] + 1}", "allow more with --cores-per-node"
            )
        times = np.minimum.accumulate(np.where(allowed, predicted_s, np.inf), axis=1)
        finite_s = np.where(np.isfinite(times), times, 0.0)
        work = np.maximum.accumulate(np.where(allowed, occupied * finite_s, 0.0), axis=1)
        return cls(np.where(allowed, work / occupied, np.inf), occupied)

    def __len__(self) -> int:
        return len(self.runtime_s)

    def allotment(self, limit_s: float) -> Ints:
        """Return the option of each task with the fewest cores that ends within a limit.

        A task that no option is short enough for gets its fastest, with the fewest cores.
        """
        goal_s = np.maximum(self.runtime_s.min(axis=1), limit_s)
        return np.asarray(np.argmax(self.runtime_s <= goal_s[:, None], axis=1), np.intp)

    def fewest_cores(self) -> Ints:
        """Return the option of each task with the fewest cores."""
        return self.allotment(np.inf)

    def chosen(self, options: Ints) -> tuple[Floats, Ints]:
        """Return the runtime and the cores of each task by its option."""
        rows = np.arange(len(self))
        return self.runtime_s[rows, options], self.cores[rows, options]

    def core_s(self, options: Ints) -> float:
        """Return the core-seconds that options need together."""
        runtime_s, cores = self.chosen(options)
        return float((runtime_s * cores).sum())

    def makespan_bound(self, cores: int) -> float:
        """Return a makespan in seconds that no schedule on so many cores can go below.

        It is at least the longest task's fastest time, and the core-hours of the canonical
        allotment over the cores. Of `HALVINGS` bisections the lower end is returned.
        """
        if not len(self):
            return 0.0
        low = float(self.runtime_s.min(axis=1).max())
        if self._fits(low, cores):
            return low
        high = low + self.core_s(self.fewest_cores()) / cores + low
        while not self._fits(high, cores):
            high *= 2
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._fits(middle, cores) else (middle, high)
        return low

    def _fits(self, limit_s: float, cores: int) -> bool:
        return self.core_s(self.allotment(limit_s)) <= limit_s * cores
