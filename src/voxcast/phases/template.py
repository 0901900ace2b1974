"""What the phases of an application look like, and the alignment of a run to them.

Runs of one application go through the same phases in the same order; durations vary. This is a
left-to-right hidden semi-Markov model (Yu, Artificial Intelligence 174, 2010): each phase has a
distribution of its duration, of what a step in it looks like, and of what its first step looks
like; see `Signals` for what is looked at. The signals are taken as independent; each has a
histogram between quantiles, so that no scale needs to be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from voxcast.phases.trace_grid import TraceGrid

# Either half of the SLANT runs chooses 80 among 10, 20, 40 and 80; with 40, 73 of 88 runs are
# right and not 75. On the recorded campaigns 80 is better for three of four applications.
BINS = 80
UNSEEN = 0.02  # share of a histogram that is spread over all bins
SMALLEST_SD = 0.3  # of the logarithm of a duration, which few runs underrate
NEAR = 4  # steps before and after, of which the range of memory is a signal


@dataclass(frozen=True)
class Signals:
    """What is looked at in each step.

    Always memory as a share of the run's peak, its changes at both ends of the step, and its range
    over the `NEAR` steps before and after, all in logs.

    Attributes
    ----------
    cpus : bool
        Also the CPUs in use, and their changes at both ends.
    size : bool
        Also memory in bytes, where what a phase holds does not grow with the run's peak.
    """

    cpus: bool = False
    size: bool = False

    def of(self, grid: TraceGrid) -> list[NDArray[np.float64]]:
        """Return the signals of a run, each of shape (steps,)."""
        memory = grid.log_memory
        levels = [memory - memory.max()]
        if self.cpus and grid.cpus is not None:
            levels.append(grid.cpus)
        changes = [np.diff(level) for level in levels]
        before = [np.append(0.0, change) for change in changes]
        after = [np.append(change, 0.0) for change in changes]
        ranges = [_range_after(memory), _range_after(memory[::-1])[::-1]]
        return [*levels, *before, *after, *ranges, *([memory] if self.size else [])]


@dataclass(frozen=True, eq=False)
class PhaseTemplate:
    """Phases of an application, as seen at one length of steps.

    Attributes
    ----------
    phases : tuple of str
        In order.
    signals : Signals
        What is looked at.
    edges : tuple of ndarray
        Inner edges of the bins of each signal.
    log_inside, log_first : tuple of ndarray, each of shape (phases, bins)
        Log probability of each signal's bins in a step inside a phase, and in its first step.
    log_duration_mean, log_duration_sd : ndarray, shape (phases,)
        Of the logarithm of seconds.
    """

    phases: tuple[str, ...]
    signals: Signals
    edges: tuple[NDArray[np.float64], ...]
    log_inside: tuple[NDArray[np.float64], ...]
    log_first: tuple[NDArray[np.float64], ...]
    log_duration_mean: NDArray[np.float64]
    log_duration_sd: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Alignment:
    """A run in phases.

    Attributes
    ----------
    boundaries_s : ndarray, shape (phases - 1,)
        Start of each phase but the first; equal to the next if no step is in a phase.
    nats_per_step : float
        Log likelihood of the run, by step and signal: how much it looks like the template.
    """

    boundaries_s: NDArray[np.float64]
    nats_per_step: float


def learn_template(
    phases: Sequence[str],
    grids: Sequence[TraceGrid],
    boundaries_s: Sequence[NDArray[np.float64]],
    signals: Signals = Signals(),
    bins: int = BINS,
) -> PhaseTemplate:
    """Learn what phases look like from runs whose phases are on record.

    Parameters
    ----------
    phases : sequence of str
        In order, the same in all runs.
    grids : sequence of TraceGrid
        One a run, all of about the same step.
    boundaries_s : sequence of ndarray, each of shape (phases - 1,)
        Start of each phase but the first.
    signals : Signals
        With CPUs in use only if all the grids have them.
    bins : int
        Of the histogram of each signal, at most.
    """
    by_run = [signals.of(grid) for grid in grids]
    edges = tuple(
        _inner_edges(np.concatenate(values), bins) for values in zip(*by_run, strict=True)
    )
    inside, first = (
        tuple(np.zeros((len(phases), len(inner) + 1)) for inner in edges) for _ in range(2)
    )
    durations_s = []
    for grid, of_run, starts_s in zip(grids, by_run, boundaries_s, strict=True):
        middles_s = (grid.edges_s[1:] + grid.edges_s[:-1]) / 2
        labels = np.searchsorted(starts_s, middles_s, side="right")
        is_first = np.diff(labels, prepend=labels[0]) > 0
        for n, (inner, values) in enumerate(zip(edges, of_run, strict=True)):
            positions = np.searchsorted(inner, values)
            np.add.at(inside[n], (labels[~is_first], positions[~is_first]), 1)
            np.add.at(first[n], (labels[is_first], positions[is_first]), 1)
        ends_s = np.concatenate([grid.edges_s[:1], starts_s, grid.edges_s[-1:]])
        durations_s.append(np.maximum(np.diff(ends_s), grid.step_s / 2))
    logs = np.log(durations_s)
    return PhaseTemplate(
        tuple(phases),
        signals,
        edges,
        tuple(map(_log_density, inside)),
        tuple(map(_log_density, first)),
        np.median(logs, axis=0),
        np.maximum(logs.std(axis=0), SMALLEST_SD),
    )


def align(template: PhaseTemplate, grid: TraceGrid) -> Alignment:
    """Return the most likely phases of a run, by dynamic programming over phases and steps.

    Parameters
    ----------
    grid : TraceGrid
        Of about the step that the template was learned at; with CPUs if the template has them.
    """
    steps = len(grid)
    bins = [
        np.searchsorted(inner, values)
        for inner, values in zip(template.edges, template.signals.of(grid), strict=True)
    ]
    ends = np.arange(steps + 1)
    lengths = ends - ends[:, None]  # by first step and end
    log_s = np.log(np.maximum(lengths, 0.5) * grid.step_s)
    best = np.where(ends == 0, 0.0, -np.inf)
    origins = []
    moments = zip(template.log_duration_mean, template.log_duration_sd, strict=True)
    for number, (mean, sd) in enumerate(moments):
        inside, first = (
            np.sum([logs[number][of_signal] for logs, of_signal in zip(by, bins, strict=True)], 0)
            for by in (template.log_inside, template.log_first)
        )
        so_far = np.append(0.0, np.cumsum(inside))
        at_start = np.append(first - inside if number else np.zeros(steps), 0.0)
        scores = (best - so_far)[:, None] + so_far - ((log_s - mean) / sd) ** 2 / 2 - np.log(sd)
        scores += np.where(lengths > 0, at_start[:, None], 0.0)
        scores[lengths < 0] = -np.inf
        origins.append(scores.argmax(axis=0))
        best = scores.max(axis=0)
    starts, end = [], steps
    for origin in origins[:0:-1]:
        end = origin[end]
        starts.append(end)
    boundaries_s = grid.starts_s(np.array(starts[::-1], dtype=np.intp))
    return Alignment(boundaries_s, float(best[steps]) / (steps * len(bins)))


def _range_after(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the range of each value and the `NEAR` next."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(values, (0, NEAR), mode="edge"), NEAR + 1
    )
    return np.asarray(np.ptp(windows, axis=1))


def _inner_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    shares = np.linspace(0, 1, bins + 1)[1:-1]
    return np.unique(np.quantile(values, shares).round(6))  # equal readings share a bin


def _log_density(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return smoothed shares, in logs; a phase that was never seen has all bins alike."""
    numbers = np.arange(counts.shape[1])
    kernel = np.exp(-((numbers[:, None] - numbers) ** 2) / 2)
    smooth = (counts + 1e-9) @ (kernel / kernel.sum(axis=1, keepdims=True))
    shares = smooth / smooth.sum(axis=1, keepdims=True)
    log_density: NDArray[np.float64] = np.log((1 - UNSEEN) * shares + UNSEEN / len(numbers))
    return log_density
