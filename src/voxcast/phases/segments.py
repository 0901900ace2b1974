"""Phases of runs without logged ones, read from their memory and CPU traces.

The change points of a run come from an exact dynamic programme: each segment has a mean and a
variance, and a change point costs a penalty (Jackson et al., IEEE Signal Processing Letters
12(2), 2005). The run of usual length gives the number of phases, and every other run is cut into
as many; the phases get numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError
from voxcast.runs.series import phase_peak
from voxcast.runs.table import PHASE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

MAX_STEPS = 400  # time and memory of a segmentation grow with their square
MAX_SEGMENTS = 30
PENALTY = 2.0  # 1 is the Bayesian information criterion, which supposes independent steps
MIN_STEPS = 3  # of a segment, or its variance means nothing
SMALLEST_SD = 0.02  # 2 % of memory, a fiftieth of a CPU: a signal with less is constant


@dataclass(frozen=True, eq=False)
class Trace:
    """Readable samples of a run in order of time; CPU time only if every sample has it."""

    t_s: NDArray[np.float64]
    rss_bytes: NDArray[np.float64]
    cpu_s: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class SegmentedRuns:
    """Phases read from traces, as rows of `PHASE_DTYPES`; runs without phases by cause."""

    phases: pd.DataFrame
    left_out: Mapping[str, int]


def segmented_runs(runs: pd.DataFrame, traces: pd.DataFrame) -> SegmentedRuns:
    """Return phases of the completed runs of one application, which logged none.

    Raises
    ------
    TableError
        If no completed run has a trace.
    """
    completed = runs[runs["outcome"] == "completed"].set_index("cell_key", drop=False)
    by_key = {
        str(key): readable_trace(samples["t_s"], samples["rss_bytes"], samples["cpu_s"])
        for key, samples in traces[traces["cell_key"].isin(completed.index)].groupby("cell_key")
    }
    readable = {key: trace for key, trace in by_key.items() if trace is not None}
    if not readable:
        raise TableError("has no completed run with a trace", "the history")
    in_order = sorted(readable.values(), key=lambda trace: float(np.ptp(trace.t_s)))
    count = len(change_points(in_order[len(in_order) // 2])) + 1
    rows: list[dict[str, object]] = []
    too_short = 0
    for key, trace in readable.items():
        starts_s = change_points(trace, count=count)
        if len(starts_s) + 1 < count:
            too_short += 1
        else:
            rows += _rows(completed.loc[key].to_dict(), trace, starts_s)
    left_out = {
        "without a trace": len(completed) - len(readable),
        f"too short for {count} phases": too_short,
    }
    return SegmentedRuns(
        frame_of(rows, PHASE_DTYPES), {cause: n for cause, n in left_out.items() if n}
    )


def change_points(
    trace: Trace, penalty: float = PENALTY, *, count: int | None = None
) -> NDArray[np.float64]:
    """Return the times at which a run changes its behaviour; none for a constant trace.

    Parameters
    ----------
    trace : Trace
        Its memory counts in logarithms.
    penalty : float
        Of a change point, in units of ``log(steps)`` for each parameter of a segment.
    count : int, optional
        Segments wanted, without a penalty; fewer where the trace is too short for them.
    """
    edges_s, read_s, signals = _sampled(trace)
    price = penalty * (2 * signals.shape[1] + 1) / 2 * float(np.log(len(signals)))
    steps = partition(signals, price, count)
    # A segment begins between the nearest samples, whose times are not those of the steps.
    read_s = np.concatenate([edges_s[:1], read_s, edges_s[-1:]])
    before_s, after_s = read_s[steps], read_s[steps + 1]
    return np.where(before_s < after_s, (before_s + after_s) / 2, edges_s[steps])


def partition(
    signals: NDArray[np.float64], price: float, count: int | None = None
) -> NDArray[np.intp]:
    """Return the first steps of the segments of the cheapest partition, but the first.

    Parameters
    ----------
    signals : ndarray, shape (steps, signals)
        Normal within a segment; their scale matters only against `SMALLEST_SD`.
    price : float
        Of a cut, in nats.
    count : int, optional
        Segments to cut into, at any price.

    Examples
    --------
    >>> partition(np.repeat([0.0, 1.0, 0.5], 10)[:, None], price=5.0).tolist()
    [10, 20]
    """
    steps = len(signals)
    centred = signals - signals.mean(axis=0)  # cumulative sums lose fewer digits
    sums, squares = (
        np.concatenate([np.zeros((1, signals.shape[1])), np.cumsum(centred**power, axis=0)])
        for power in (1, 2)
    )
    lengths = np.arange(steps + 1) - np.arange(steps + 1)[:, None]  # by first step and end
    cost = np.zeros(lengths.shape)
    for total, square in zip(sums.T, squares.T, strict=True):
        mean, mean_square = (
            (values - values[:, None]) / np.maximum(lengths, 1) for values in (total, square)
        )
        cost += lengths / 2 * np.log(np.maximum(mean_square - mean**2, 0) + SMALLEST_SD**2)
    cost[lengths < min(MIN_STEPS, steps)] = np.inf
    most = min(count or MAX_SEGMENTS, max(steps // MIN_STEPS, 1))
    least = [cost[0]]  # of each end, by number of segments
    origins = []
    while len(least) < most:
        costs = least[-1][:, None] + cost
        origins.append(costs.argmin(axis=0))
        least.append(costs.min(axis=0))
    totals = [of_end[-1] + price * cuts for cuts, of_end in enumerate(least)]
    cuts = most - 1 if count else int(np.argmin(totals))
    starts, end = [], steps
    for origin in origins[:cuts][::-1]:
        end = int(origin[end])
        starts.append(end)
    return np.array(starts[::-1], dtype=np.intp)


def _sampled(
    trace: Trace,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Sample a trace at the middle of equal steps from the start of the run to its last sample.

    Returns
    -------
    edges_s : ndarray, shape (steps + 1,)
    read_s : ndarray, shape (steps,)
        Times of the samples nearest to the middle of each step, whose memory counts.
    signals : ndarray, shape (steps, 1 or 2)
        Logarithm of memory, and the mean number of CPUs in use where it is known.
    """
    step_s = max(float(np.median(np.diff(trace.t_s))), float(np.ptp(trace.t_s)) / MAX_STEPS)
    first_s, last_s = float(trace.t_s[0]), float(trace.t_s[-1])
    # A first sample this late has another clock than the start of the run.
    start_s = 0.0 if 0 <= first_s <= last_s - first_s else first_s
    steps = max(1, min(round((last_s - start_s) / step_s), 2 * MAX_STEPS))
    edges_s = np.linspace(start_s, last_s, steps + 1)
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    nearest = np.searchsorted((trace.t_s[1:] + trace.t_s[:-1]) / 2, middles_s)
    signals = [np.log(np.maximum(trace.rss_bytes[nearest], 1.0))]
    if trace.cpu_s is not None:
        signals.append(np.diff(np.interp(edges_s, trace.t_s, trace.cpu_s)) / np.diff(edges_s))
    return edges_s, trace.t_s[nearest], np.column_stack(signals)


def readable_trace(
    t_s: ArrayLike, rss_bytes: ArrayLike, cpu_s: ArrayLike | None = None
) -> Trace | None:
    """Return the readable samples of a run in order of time; None with fewer than two instants.

    Samples without a finite time or memory are left out, and CPU time altogether where a sample
    lacks it. Of several samples at one time the last counts.
    """
    seconds, memory = np.asarray(t_s, dtype=float), np.asarray(rss_bytes, dtype=float)
    cpu = np.full(seconds.shape, np.nan) if cpu_s is None else np.asarray(cpu_s, dtype=float)
    readable = np.flatnonzero(np.isfinite(seconds) & np.isfinite(memory))[::-1]
    instants, first = np.unique(seconds[readable], return_index=True)
    if len(instants) < 2:
        return None
    memory, cpu = memory[readable][first], cpu[readable][first]
    return Trace(instants, memory, cpu if np.isfinite(cpu).all() else None)


def _rows(
    run: Mapping[Any, Any], trace: Trace, boundaries_s: NDArray[np.float64]
) -> list[dict[str, object]]:
    ends_s = np.concatenate([[min(trace.t_s[0], 0.0)], boundaries_s, [trace.t_s[-1]]])
    cpu_s = None if trace.cpu_s is None else np.diff(np.interp(ends_s, trace.t_s, trace.cpu_s))
    return [
        {
            **{name: run[name] for name in ("cell_key", "app", "volume_id", "cpus")},
            "phase": f"phase_{number + 1}",
            "start_s": float(start_s),
            "end_s": float(end_s),
            "duration_s": float(end_s - start_s),
            "cpu_s": None if cpu_s is None else float(cpu_s[number]),
            "peak_rss_bytes": phase_peak(trace.t_s, trace.rss_bytes, start_s, end_s),
        }
        for number, (start_s, end_s) in enumerate(pairwise(ends_s))
    ]
