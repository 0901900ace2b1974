"""Memory requested by phase: a chain of jobs with checkpoints between them.

A run that needs 50 GB for half of its time holds 50 GB throughout if it is a single job. Split at
its phases it is a chain of jobs, each with the memory of its phase, connected by checkpoints.

References
----------
Gainaru, Goglin, Honoré and Pallez, "Profiles of upcoming HPC applications and their impact on
reservation strategies", TPDS 32(5), 2021, doi 10.1109/TPDS.2020.3039728.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.strategies import RequestSequence, request_sequence
from voxcast.allocation.site import BYTES_PER_GB, SECONDS_PER_HOUR
from voxcast.errors import TableError
from voxcast.laws.families import EmpiricalLaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_RUNS = 3
_SHORTEST_S = 1e-3  # for a phase that a run skipped


@dataclass(frozen=True, eq=False)
class PhasedRuns:
    """Runs of one application with the same phases in the same order.

    Attributes
    ----------
    phases : tuple of str
        Names, length p.
    duration_s, peak_bytes : ndarray, shape (n, p)
        Of each phase of each run.
    used_byte_s : ndarray, shape (n,), optional
        Memory in use, integrated over time.

    Raises
    ------
    TableError
        If there are fewer than three runs, or a number is missing or below 0.
    """

    phases: tuple[str, ...]
    duration_s: NDArray[np.float64]
    peak_bytes: NDArray[np.float64]
    used_byte_s: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if len(self.duration_s) < LEAST_RUNS:
            problem = f"has {len(self.duration_s)} runs with phases"
            raise TableError(problem, "the history", f"{LEAST_RUNS} are needed")
        amounts = np.stack([self.duration_s, self.peak_bytes])
        if not (np.isfinite(amounts) & (amounts >= 0)).all():
            problem = "durations and peaks of phases must be at least 0 and not missing"
            raise TableError(problem, "the history")


@dataclass(frozen=True)
class MemoryHeld:
    """Mean over runs of memory times duration, in GB h (GB of 10^9 bytes).

    Attributes
    ----------
    at_run_peak : float
        With the peak of the run throughout.
    at_phase_peaks : float
        With the peak of each phase.
    used : float or None
        With the memory in use.
    """

    at_run_peak: float
    at_phase_peaks: float
    used: float | None


@dataclass(frozen=True)
class PhaseRequest:
    """The request of one job of the chain.

    Attributes
    ----------
    memory_bytes : float
        The largest peak of any run in this phase.
    walltimes : RequestSequence
        In seconds, including reading the checkpoint before and writing the one after it.
    expected_gb_h : float
        Exact mean of memory times the cost of the sequence.
    """

    phase: str
    memory_bytes: float
    walltimes: RequestSequence
    expected_gb_h: float


@dataclass(frozen=True)
class Chain:
    """A chain of jobs, and one job for all phases."""

    jobs: tuple[PhaseRequest, ...]
    single_job: PhaseRequest

    @property
    def expected_gb_h(self) -> float:
        """Mean of all jobs of the chain together."""
        return sum(job.expected_gb_h for job in self.jobs)

    @property
    def gain(self) -> float:
        """Ratio of the single job to the chain."""
        return self.single_job.expected_gb_h / self.expected_gb_h


def memory_held(runs: PhasedRuns) -> MemoryHeld:
    """Return the memory that runs hold at their peak, at the peaks of their phases, and in use."""
    gb_h = BYTES_PER_GB * SECONDS_PER_HOUR
    by_run = runs.duration_s.sum(axis=1) * runs.peak_bytes.max(axis=1)
    by_phase = (runs.duration_s * runs.peak_bytes).sum(axis=1)
    used = None if runs.used_byte_s is None else float(runs.used_byte_s.mean() / gb_h)
    return MemoryHeld(float(by_run.mean() / gb_h), float(by_phase.mean() / gb_h), used)


def chain(runs: PhasedRuns, cost: CostModel) -> Chain:
    """Return the cheapest requests for each phase, and for all phases as one job.

    Parameters
    ----------
    cost : CostModel
        In seconds. A checkpoint is written after every phase but the last, and read before every
        phase but the first.
    """
    plain = CostModel(cost.alpha, cost.beta, cost.gamma)
    last = len(runs.phases) - 1
    jobs = []
    for k, phase in enumerate(runs.phases):
        overhead_s = cost.restart * (k > 0) + cost.checkpoint * (k < last)
        seconds = runs.duration_s[:, k] + overhead_s
        jobs.append(_request(phase, seconds, runs.peak_bytes[:, k], plain))
    total_s = runs.duration_s.sum(axis=1)
    single_job = _request("all", total_s, runs.peak_bytes.max(axis=1), plain)
    return Chain(tuple(jobs), single_job)


def _request(
    phase: str, seconds: NDArray[np.float64], peak_bytes: NDArray[np.float64], cost: CostModel
) -> PhaseRequest:
    # The empirical law: a phase that some runs skip is bimodal.
    law = EmpiricalLaw(np.maximum(seconds, _SHORTEST_S))
    sequence = request_sequence("equal_probability", law, cost)
    memory = float(peak_bytes.max())
    gb_h = memory / BYTES_PER_GB * sequence.expected_cost / SECONDS_PER_HOUR
    return PhaseRequest(phase, memory, sequence, gb_h)
