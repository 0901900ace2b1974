"""Segmentation of runs of one application by what its logged runs look like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.template import BINS, PhaseTemplate, Signals, align, learn_template
from voxcast.phases.trace_grid import trace_grid, usual_step_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from voxcast.phases.trace_grid import TraceGrid

MIN_JUDGES = 4  # logged runs, below which nothing tells what a usual likelihood is


@dataclass(frozen=True, eq=False)
class Trace:
    """Readable samples of a run, in order; see `voxcast.phases.trace_grid.samples_in_order`."""

    t_s: NDArray[np.float64]
    rss_bytes: NDArray[np.float64]
    cpu_s: NDArray[np.float64] | None

    def grid(self, step_s: float) -> TraceGrid:
        """Return the trace on a grid."""
        return trace_grid(self.t_s, self.rss_bytes, self.cpu_s, step_s)


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """A run that teaches: its trace, the start of each phase but the first, and its subject."""

    trace: Trace
    boundaries_s: NDArray[np.float64]
    subject: str = ""


class Segmenter:
    """Segments runs of any sampling rate by what logged runs look like at that rate.

    Whether memory in bytes is looked at is decided by how well half of the subjects are segmented
    by what the runs of the others look like, and the reverse.

    Parameters
    ----------
    phases : sequence of str
        In order.
    logged : sequence of LoggedRun
        All with these phases.
    bins : int
        See `voxcast.phases.template.learn_template`.

    Attributes
    ----------
    share_right : float or None
        Share of the time of logged runs that is put into the right phase, by what runs of other
        subjects look like; None if there are too few of them to tell.
    """

    def __init__(
        self, phases: Sequence[str], logged: Sequence[LoggedRun], bins: int = BINS
    ) -> None:
        self.phases = tuple(phases)
        self._logged = tuple(logged)
        self._bins = bins
        self._step_s = float(np.median([usual_step_s(run.trace.t_s) for run in logged]))
        subjects = sorted({run.subject for run in logged})
        is_odd = np.array([subjects.index(run.subject) % 2 for run in logged], dtype=bool)
        if len(subjects) == 1:
            is_odd = np.arange(len(logged)) % 2 > 0
        self._halves = (is_odd, ~is_odd) if len(logged) >= MIN_JUDGES else ()
        self._learned: dict[tuple[float, Signals], tuple[PhaseTemplate, float]] = {}
        has_cpus = all(run.trace.cpu_s is not None for run in logged)
        self._signals = Signals(cpus=has_cpus)
        self.share_right: float | None = None
        if self._halves:
            choices = (self._signals, replace(self._signals, size=True))
            shares = [self._crossed(self._step_s, signals)[0] for signals in choices]
            self._signals = choices[int(np.argmax(shares))]
            self.share_right = max(shares)

    def boundaries_s(self, trace: Trace) -> tuple[NDArray[np.float64], bool]:
        """Return the start of each phase but the first, and whether the run looks as usual.

        A run does not if it is less likely than the least likely logged run was to a template
        that was learned from others. Of n logged runs this happens to one in n + 1 that are no
        different.
        """
        # Steps are those of the logged runs or twice, four times … as long.
        doublings = np.round(np.log2(usual_step_s(trace.t_s) / self._step_s))
        step_s = self._step_s * 2.0 ** max(doublings, 0.0)
        signals = replace(self._signals, cpus=self._signals.cpus and trace.cpu_s is not None)
        template, least = self._template(step_s, signals)
        alignment = align(template, trace.grid(step_s))
        return alignment.boundaries_s, alignment.nats_per_step >= least

    def _template(self, step_s: float, signals: Signals) -> tuple[PhaseTemplate, float]:
        if (step_s, signals) not in self._learned:
            everyone = self._learn(step_s, signals, np.ones(len(self._logged), dtype=bool))
            self._learned[step_s, signals] = everyone, self._crossed(step_s, signals)[1]
        return self._learned[step_s, signals]

    def _crossed(self, step_s: float, signals: Signals) -> tuple[float, float]:
        """Return the share of time that is right, and the least likelihood, across halves."""
        if not self._halves:
            return np.nan, -np.inf
        shares, likelihoods = [], []
        for teaches in self._halves:
            template = self._learn(step_s, signals, teaches)
            for run in np.array(self._logged, dtype=object)[~teaches]:
                alignment = align(template, run.trace.grid(step_s))
                shares.append(time_right(run.trace, run.boundaries_s, alignment.boundaries_s))
                likelihoods.append(alignment.nats_per_step)
        return float(np.mean(shares)), float(min(likelihoods))

    def _learn(self, step_s: float, signals: Signals, teaches: NDArray[np.bool_]) -> PhaseTemplate:
        runs = [run for run, is_taken in zip(self._logged, teaches, strict=True) if is_taken]
        grids = [run.trace.grid(step_s) for run in runs]
        starts_s = [run.boundaries_s for run in runs]
        return learn_template(self.phases, grids, starts_s, signals, self._bins)


def time_right(trace: Trace, logged_s: NDArray[np.float64], read_s: NDArray[np.float64]) -> float:
    """Return the share of a run's time that two lists of boundaries put into the same phase."""
    edges = np.unique(np.clip(np.concatenate([trace.t_s[[0, -1]], logged_s, read_s]),
                              trace.t_s[0], trace.t_s[-1]))  # fmt: skip
    middles = (edges[1:] + edges[:-1]) / 2
    agree = np.searchsorted(logged_s, middles) == np.searchsorted(read_s, middles)
    return float(np.diff(edges)[agree].sum() / np.ptp(trace.t_s))
