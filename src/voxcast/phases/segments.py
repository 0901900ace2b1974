"""Phases of runs without logged ones, read from their memory and CPU traces.

The change points of a single run come from an exact dynamic programme: each segment has a mean and
a variance, and a change point costs a penalty (Jackson et al., IEEE Signal Processing Letters
12(2), 2005). Where runs of the same application logged their phases, a model learned from these
finds the boundaries of another run. Without logged phases, the change points of a run of usual
length serve as an example for all, and phases get numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError
from voxcast.runs.series import phase_peak
from voxcast.runs.table import PHASE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

MAX_STEPS = 400  # time and memory of a segmentation grow with their square
PENALTY = 2.0  # 1 is the Bayesian information criterion, which supposes independent steps
MIN_STEPS = 3  # of a segment, or its variance means nothing
SMALLEST_SD = 0.02  # 2 % of memory, a fiftieth of a CPU: a signal with less is constant
NEAR = 4  # steps before and after, over which the range of memory is a signal
SMALLEST_LOG_SD = 0.3  # of a duration, whose variation few logged runs underestimate
UNSEEN = 0.02  # share of a histogram that is spread over all bins
MIN_JUDGES = 4  # logged runs needed to judge the segmentation on other subjects


@dataclass(frozen=True)
class Settings:
    """Of a model of phases; `benchmarks/memory_phases.py` compares others.

    Attributes
    ----------
    bins : int
        Of the histogram of a signal.
    weight : float
        Of the log density of a signal beside the duration of a phase. With 1 the signals would
        count as independent of each other and from step to step.
    """

    bins: int = 80
    weight: float = 0.1


@dataclass(frozen=True, eq=False)
class Trace:
    """Readable samples of a run in order of time; CPU time only if every sample has it."""

    t_s: NDArray[np.float64]
    rss_bytes: NDArray[np.float64]
    cpu_s: NDArray[np.float64] | None = None

    @property
    def step_s(self) -> float:
        """The step to sample the trace at: its median pause, or more if the trace is long."""
        return max(float(np.median(np.diff(self.t_s))), float(np.ptp(self.t_s)) / MAX_STEPS)


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """A run with known boundaries: the start of each phase but the first."""

    trace: Trace
    boundaries_s: NDArray[np.float64]
    subject: str = ""


@dataclass(frozen=True, eq=False)
class Grid:
    """A trace sampled at the middle of steps of equal length.

    `read_s` is the time of the sample nearest to the middle of each step, whose memory counts;
    `cpus` is the mean number of CPUs in use during each step.
    """

    edges_s: NDArray[np.float64]
    read_s: NDArray[np.float64]
    log_memory: NDArray[np.float64]
    cpus: NDArray[np.float64] | None

    def starts_s(self, steps: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return when segments begin, given their first steps: between the nearest samples."""
        read_s = np.concatenate([self.edges_s[:1], self.read_s, self.edges_s[-1:]])
        before_s, after_s = read_s[steps], read_s[steps + 1]
        is_between = (before_s < after_s) & (steps > 0) & (steps < len(self.read_s))
        return np.where(is_between, (before_s + after_s) / 2, self.edges_s[steps])

    def signals(self, with_cpus: bool) -> NDArray[np.float64]:
        """Return the signals in each step, shape (signals, steps).

        Memory, memory as a share of the peak, its range over the steps before and after, and CPUs
        in use; changes of the latter two at both ends of a step.
        """
        memory = self.log_memory
        levels = [memory - memory.max()]
        if with_cpus and self.cpus is not None:
            levels.append(self.cpus)
        before = [np.diff(level, prepend=level[0]) for level in levels]
        after = [np.diff(level, append=level[-1]) for level in levels]
        ranges = [_range_after(memory), _range_after(memory[::-1])[::-1]]
        return np.array([memory, *levels, *before, *after, *ranges])


def _range_after(values: NDArray[np.float64]) -> NDArray[np.float64]:
    padded = np.pad(values, (0, NEAR), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, NEAR + 1)
    return np.asarray(np.ptp(windows, axis=1))


@dataclass(frozen=True, eq=False)
class SegmentedRuns:
    """Phases read from traces, as rows of `PHASE_DTYPES`, of runs that logged none.

    `logged_runs` is the number of runs with logged phases, `share_right` how well these are
    segmented by runs of other subjects, and `left_out` counts runs without phases by cause.
    """

    phases: pd.DataFrame
    logged_runs: int
    share_right: float | None
    left_out: Mapping[str, int]


def segmented_runs(
    runs: pd.DataFrame, phases: pd.DataFrame, traces: pd.DataFrame
) -> SegmentedRuns:
    """Return phases of the completed runs of one application that logged none.

    If logged runs differ in their phases, the sequence of most of them counts.

    Raises
    ------
    TableError
        If no completed run has a trace.
    """
    completed = {
        str(row["cell_key"]): row
        for row in runs[runs["outcome"] == "completed"].to_dict("records")
    }
    readable = readable_traces(traces[traces["cell_key"].isin(completed)])
    if not readable:
        raise TableError("has no completed run with a trace", "the history")
    names, logged = logged_runs(
        phases, readable, {key: str(row["subject"]) for key, row in completed.items()}
    )
    if logged:
        segmenter = Segmenter(names, logged)
    else:
        in_order = sorted(readable.values(), key=lambda trace: float(np.ptp(trace.t_s)))
        usual = in_order[len(in_order) // 2]
        starts_s = change_points(usual)
        names = tuple(f"phase_{number}" for number in range(1, len(starts_s) + 2))
        segmenter = Segmenter(names, [LoggedRun(usual, starts_s)])
    with_phases = set(phases["cell_key"])
    rows, unlike = [], 0
    for key in readable:
        if key in with_phases:
            continue
        starts_s, is_usual = segmenter.boundaries_s(readable[key])
        unlike += not is_usual
        if is_usual:
            rows += _rows(completed[key], names, readable[key], starts_s)
    no_trace = len(set(completed) - set(readable) - with_phases)
    left_out = {"unlike those with logged phases": unlike, "without a trace": no_trace}
    return SegmentedRuns(
        frame_of(rows, PHASE_DTYPES),
        len(logged),
        segmenter.share_right,
        {cause: count for cause, count in left_out.items() if count},
    )


class Segmenter:
    """Finds the boundaries of logged phases in other runs of the same application.

    Parameters
    ----------
    phases : sequence of str
        In order.
    logged : sequence of LoggedRun
        All with these phases.
    settings : Settings
        Of the model.

    Attributes
    ----------
    share_right : float or None
        Share of the time of logged runs in the right phase, where half of the subjects is
        segmented by the other half, and the reverse; None with few logged runs.
    """

    def __init__(
        self, phases: Sequence[str], logged: Sequence[LoggedRun], settings: Settings = Settings()
    ) -> None:
        self.phases = tuple(phases)
        self._logged, self._settings = tuple(logged), settings
        self._step_s = float(np.median([run.trace.step_s for run in logged]))
        self._with_cpus = all(run.trace.cpu_s is not None for run in logged)
        self._models: dict[tuple[float, bool], PhaseModel] = {}
        self.share_right: float | None = None
        self._least = -np.inf
        if len(logged) < MIN_JUDGES:
            return
        subjects = sorted({run.subject for run in logged})
        halves: tuple[list[LoggedRun], list[LoggedRun]] = ([], [])
        for number, run in enumerate(logged):
            place = subjects.index(run.subject) if len(subjects) > 1 else number
            halves[place % 2].append(run)
        shares, scores = [], []
        for learning, judging in (halves, halves[::-1]):
            model = PhaseModel(learning, self._step_s, self._with_cpus, settings)
            for run in judging:
                starts_s, score = model.align(run.trace)
                shares.append(time_right(run.trace, run.boundaries_s, starts_s))
                scores.append(score)
        self.share_right, self._least = float(np.mean(shares)), min(scores)

    def boundaries_s(self, trace: Trace) -> tuple[NDArray[np.float64], bool]:
        """Return the start of each phase but the first, and whether the run looks as usual.

        A run does not if it is less likely than every logged run was by runs of other subjects.
        A run no different from n logged ones is refused once in n + 1.
        """
        # A coarser trace is compared with the logged runs at twice, four times … their step.
        doublings = max(float(np.round(np.log2(trace.step_s / self._step_s))), 0.0)
        key = (self._step_s * 2.0**doublings, self._with_cpus and trace.cpu_s is not None)
        if key not in self._models:
            self._models[key] = PhaseModel(self._logged, *key, self._settings)
        starts_s, score = self._models[key].align(trace)
        return starts_s, doublings > 0 or score >= self._least


class PhaseModel:
    """The phases of logged runs: their order, their durations, and the signals in their steps.

    A left-to-right hidden semi-Markov model (Yu, Artificial Intelligence 174, 2010). A duration is
    log-normal. Each signal has a histogram for the first step of a phase and one for the steps
    after it, with bins between quantiles, so that no scale needs to be chosen.
    """

    def __init__(
        self, logged: Sequence[LoggedRun], step_s: float, with_cpus: bool, settings: Settings
    ) -> None:
        self._step_s, self._with_cpus, self._weight = step_s, with_cpus, settings.weight
        states, signals, durations_s = [], [], []
        for run in logged:
            grid = trace_grid(run.trace, step_s)
            edges_s = grid.edges_s
            phase = np.searchsorted(
                run.boundaries_s, (edges_s[1:] + edges_s[:-1]) / 2, side="right"
            )
            states.append(2 * phase + (np.diff(phase, prepend=phase[0]) > 0))
            signals.append(grid.signals(with_cpus))
            ends_s = np.concatenate([edges_s[:1], run.boundaries_s, edges_s[-1:]])
            durations_s.append(np.maximum(np.diff(ends_s), step_s / 2))
        logs = np.log(durations_s)
        self._log_mean = np.median(logs, axis=0)
        self._log_sd = np.maximum(np.std(logs, axis=0), SMALLEST_LOG_SD)
        shares = np.linspace(0, 1, settings.bins + 1)[1:-1]
        state, self._histograms = np.concatenate(states), []
        for values in np.hstack(signals):
            inner = np.unique(np.quantile(values, shares).round(6))  # equal values share a bin
            counts = np.zeros((2 * logs.shape[1], len(inner) + 1))
            np.add.at(counts, (state, np.searchsorted(inner, values)), 1)
            self._histograms.append((inner, _log_shares(counts)))

    def align(self, trace: Trace) -> tuple[NDArray[np.float64], float]:
        """Return the most likely boundaries, and the log likelihood by step.

        Exact, by dynamic programming over phases and edges of steps.
        """
        grid = trace_grid(trace, self._step_s)
        log_density = np.zeros((2 * len(self._log_mean), len(grid.read_s)))
        signals = grid.signals(self._with_cpus)
        for (inner, log_shares), values in zip(self._histograms, signals, strict=True):
            log_density += self._weight * log_shares[:, np.searchsorted(inner, values)]
        lengths_s = grid.edges_s - grid.edges_s[:, None]  # by first edge and last
        log_s = np.log(np.maximum(lengths_s, self._step_s / 2))
        best = np.where(np.arange(len(lengths_s)) == 0, 0.0, -np.inf)
        origins = []
        for number, (mean, sd) in enumerate(zip(self._log_mean, self._log_sd, strict=True)):
            inside, first = log_density[2 * number], log_density[2 * number + 1]
            before = np.append(0.0, np.cumsum(inside))
            at_start = np.append(first - inside, 0.0) if number else np.zeros(len(before))
            scores = best[:, None] + before - before[:, None] + (lengths_s > 0) * at_start[:, None]
            scores -= ((log_s - mean) / sd) ** 2 / 2 + np.log(sd)
            scores[lengths_s < 0] = -np.inf
            origins.append(scores.argmax(axis=0))
            best = scores.max(axis=0)
        starts, end = [], len(lengths_s) - 1
        for origin in origins[:0:-1]:
            end = origin[end]
            starts.append(end)
        starts_s = grid.starts_s(np.array(starts[::-1], dtype=np.intp))
        return starts_s, float(best[-1]) / len(grid.read_s)


def _log_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return logarithms of shares by row, smoothed over neighbouring bins; equal if all are 0."""
    bins = np.arange(counts.shape[1])
    kernel = np.exp(-((bins[:, None] - bins) ** 2) / 2)
    smooth = (counts + 1e-9) @ (kernel / kernel.sum(axis=1, keepdims=True))
    shares = smooth / smooth.sum(axis=1, keepdims=True)
    return np.asarray(np.log((1 - UNSEEN) * shares + UNSEEN / len(bins)))


def change_points(trace: Trace, penalty: float = PENALTY) -> NDArray[np.float64]:
    """Return the times at which a run changes its behaviour; none for a constant trace.

    Parameters
    ----------
    trace : Trace
        Its memory counts in logarithms.
    penalty : float
        Of a change point, in units of ``log(steps)`` for each parameter of a segment.
    """
    grid = trace_grid(trace, trace.step_s)
    signals = grid.log_memory[:, None]
    if grid.cpus is not None:
        signals = np.column_stack([signals, grid.cpus])
    price = penalty * (2 * signals.shape[1] + 1) / 2 * np.log(len(signals))
    return grid.starts_s(partition(signals, float(price)))


def partition(signals: NDArray[np.float64], price: float) -> NDArray[np.intp]:
    """Return the first steps of the segments of the cheapest partition, but the first.

    Parameters
    ----------
    signals : ndarray, shape (steps, signals)
        Normal within a segment; their scale matters only against `SMALLEST_SD`.
    price : float
        Of a cut, in nats.

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
    least = np.full(steps + 1, np.inf)
    least[0] = -price
    previous = np.zeros(steps + 1, dtype=np.intp)
    for end in range(min(MIN_STEPS, steps), steps + 1):
        starts = np.arange(max(end - MIN_STEPS, 0) + 1)
        lengths = (end - starts)[:, None]
        mean = (sums[end] - sums[starts]) / lengths
        variance = (squares[end] - squares[starts]) / lengths - mean**2
        deviance = np.log(np.maximum(variance, 0) + SMALLEST_SD**2).sum(axis=1)
        costs = least[starts] + price + lengths[:, 0] / 2 * deviance
        previous[end] = costs.argmin()
        least[end] = costs[previous[end]]
    cuts, end = [], previous[steps]
    while end > 0:
        cuts.append(end)
        end = previous[end]
    return np.array(cuts[::-1], dtype=np.intp)


def trace_grid(trace: Trace, step_s: float) -> Grid:
    """Sample a trace from the start of the run, normally 0, to its last sample."""
    first_s, last_s = float(trace.t_s[0]), float(trace.t_s[-1])
    # A first sample this late has another clock than the start of the run.
    start_s = 0.0 if 0 <= first_s <= last_s - first_s else first_s
    steps = max(1, min(round((last_s - start_s) / step_s), 2 * MAX_STEPS))
    edges_s = start_s + (last_s - start_s) / steps * np.arange(steps + 1, dtype=np.float64)
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    nearest = np.searchsorted((trace.t_s[1:] + trace.t_s[:-1]) / 2, middles_s)
    cpus = None
    if trace.cpu_s is not None:
        cpus = np.diff(np.interp(edges_s, trace.t_s, trace.cpu_s)) / np.diff(edges_s)
    log_memory = np.log(np.maximum(trace.rss_bytes[nearest], 1.0))
    return Grid(edges_s, trace.t_s[nearest], log_memory, cpus)


def time_right(trace: Trace, logged_s: NDArray[np.float64], read_s: NDArray[np.float64]) -> float:
    """Return the share of a run's time that two lists of boundaries put into the same phase."""
    start_s, end_s = trace.t_s[0], trace.t_s[-1]
    edges_s = np.unique(np.clip([start_s, end_s, *logged_s, *read_s], start_s, end_s))
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    agree = np.searchsorted(logged_s, middles_s) == np.searchsorted(read_s, middles_s)
    return float(np.diff(edges_s)[agree].sum() / (end_s - start_s))


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


def readable_traces(traces: pd.DataFrame) -> dict[str, Trace]:
    """Return the traces of runs with at least two readable samples, by cell key."""
    by_key = {
        str(key): readable_trace(samples["t_s"], samples["rss_bytes"], samples["cpu_s"])
        for key, samples in traces.groupby("cell_key")
    }
    return {key: trace for key, trace in by_key.items() if trace is not None}


def logged_runs(
    phases: pd.DataFrame, traces: Mapping[str, Trace], subjects: Mapping[str, str]
) -> tuple[tuple[str, ...], list[LoggedRun]]:
    """Return the phases of most runs in order, and the runs with these phases and a trace.

    Consecutive phases of one name, such as epochs, are one.
    """
    orders: dict[tuple[str, ...], list[LoggedRun]] = {}
    for key, of_run in phases.sort_values("start_s", kind="stable").groupby("cell_key"):
        if key not in traces:
            continue
        pairs = zip(of_run["phase"], of_run["start_s"], strict=True)
        firsts = [next(group) for _, group in groupby(pairs, key=lambda pair: pair[0])]
        starts_s = np.array([start_s for _, start_s in firsts], dtype=float)
        run = LoggedRun(traces[str(key)], starts_s[1:], subjects.get(str(key)) or str(key))
        orders.setdefault(tuple(str(name) for name, _ in firsts), []).append(run)
    return max(orders.items(), key=lambda order: len(order[1]), default=((), []))


def _rows(
    run: Mapping[Any, Any],
    names: Sequence[str],
    trace: Trace,
    boundaries_s: NDArray[np.float64],
) -> list[dict[str, object]]:
    ends_s = np.concatenate([[min(trace.t_s[0], 0.0)], boundaries_s, [trace.t_s[-1]]])
    cpu_s = np.full(len(names), np.nan)
    if trace.cpu_s is not None:
        cpu_s = np.diff(np.interp(ends_s, trace.t_s, trace.cpu_s))
    return [
        {
            **{name: run[name] for name in ("cell_key", "app", "volume_id", "cpus")},
            "phase": name,
            "start_s": float(start_s),
            "end_s": float(end_s),
            "duration_s": float(end_s - start_s),
            "cpu_s": float(of_phase) if np.isfinite(of_phase) else None,
            "peak_rss_bytes": phase_peak(trace.t_s, trace.rss_bytes, start_s, end_s),
        }
        for name, start_s, end_s, of_phase in zip(
            names, ends_s[:-1], ends_s[1:], cpu_s, strict=True
        )
    ]
