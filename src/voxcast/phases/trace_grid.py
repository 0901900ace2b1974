"""Traces of runs on a regular grid of time: the logarithm of memory, and the CPUs in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_STEPS = 400  # the alignment of a run takes time and memory with their square


@dataclass(frozen=True, eq=False)
class TraceGrid:
    """A trace, sampled at the middle of steps of equal length.

    Attributes
    ----------
    start_s, step_s : float
        Start of the first step, and length of each.
    log_memory : ndarray, shape (steps,)
        Natural logarithm of bytes.
    cpus : ndarray, shape (steps,), or None
        Mean number of CPUs in use during the step; None if the trace has no CPU time.
    read_s : ndarray, shape (steps,)
        Time of the sample that stands for each step.
    """

    start_s: float
    step_s: float
    log_memory: NDArray[np.float64]
    cpus: NDArray[np.float64] | None
    read_s: NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.log_memory)

    @property
    def edges_s(self) -> NDArray[np.float64]:
        """Ends of the steps, shape (steps + 1,)."""
        return self.start_s + self.step_s * np.arange(len(self) + 1, dtype=np.float64)

    def starts_s(self, steps: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return when segments begin whose first steps are ``steps``.

        That is between the samples of the step before and of this one, so that each sample is on
        its side; the edge of the step where one sample stands for both.
        """
        read_s = np.concatenate([[self.edges_s[0]], self.read_s, [self.edges_s[-1]]])
        before_s, after_s = read_s[steps], read_s[steps + 1]
        is_between = (before_s < after_s) & (steps > 0) & (steps < len(self))
        return np.where(is_between, (before_s + after_s) / 2, self.edges_s[steps])


def samples_in_order(
    t_s: ArrayLike, rss_bytes: ArrayLike, cpu_s: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    """Return the readable samples of a trace in order of time, each time once.

    A sample without a finite time or memory is left out, and so is CPU time as a whole where a
    sample has none. Clocks that are set back are not repaired: samples are taken at the time that
    they state, and of several at one time the last.

    Raises
    ------
    TableError
        If fewer than two instants remain.
    """
    seconds, memory = np.asarray(t_s, dtype=float), np.asarray(rss_bytes, dtype=float)
    cpu = np.full(seconds.shape, np.nan) if cpu_s is None else np.asarray(cpu_s, dtype=float)
    readable = np.isfinite(seconds) & np.isfinite(memory)
    seconds, memory, cpu = seconds[readable], memory[readable], cpu[readable]
    # Of equal times the last: `unique` returns the first, so the order is reversed.
    instants, last = np.unique(seconds[::-1], return_index=True)
    if len(instants) < 2:
        raise TableError(f"has {len(instants)} readable samples, 2 are needed", "trace")
    memory, cpu = memory[::-1][last], cpu[::-1][last]
    return instants.astype(float), memory, cpu if np.isfinite(cpu).all() else None


def usual_step_s(t_s: ArrayLike) -> float:
    """Return the step on which a trace is sampled: its median pause, or more if it is long."""
    seconds = np.asarray(t_s, dtype=float)
    return max(float(np.median(np.diff(seconds))), float(np.ptp(seconds)) / MAX_STEPS)


def trace_grid(
    t_s: NDArray[np.float64],
    rss_bytes: NDArray[np.float64],
    cpu_s: NDArray[np.float64] | None,
    step_s: float,
) -> TraceGrid:
    """Sample a trace on a grid from the start of the run to its last sample.

    The start is 0; it is the first sample where that is before 0, or so late that its times are
    not those of the run. Memory is that of the sample nearest to the middle of a step, as
    interpolation would make readings that never were; CPU time is interpolated.

    Parameters
    ----------
    t_s, rss_bytes, cpu_s
        As of `samples_in_order`.
    """
    first_s, last_s = float(t_s[0]), float(t_s[-1])
    start_s = 0.0 if 0 <= first_s <= last_s - first_s else first_s
    steps = max(1, min(round((last_s - start_s) / step_s), 2 * MAX_STEPS))
    step_s = (last_s - start_s) / steps
    edges = start_s + step_s * np.arange(steps + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    nearest = np.searchsorted((t_s[1:] + t_s[:-1]) / 2, middles)
    cpus = None if cpu_s is None else np.diff(np.interp(edges, t_s, cpu_s)) / step_s
    log_memory = np.log(np.maximum(rss_bytes[nearest], 1.0))
    return TraceGrid(start_s, step_s, log_memory, cpus, t_s[nearest])
