"""A trace in Standard Workload Format of a realistic shape, made here, and requests for its jobs.

Shape, after analyses of the Parallel Workloads Archive (Lublin and Feitelson, JPDC 63, 2003;
Tsafrir, Etsion and Feitelson, IEEE TPDS 18, 2007): arrivals follow the hours of a day and come in
sessions of one user; widths are powers of two, most of them one; runtimes of one user's
application are log-normal around their own median; requested times are a few round values far
above the runtimes, and so is memory. No site's trace is copied; it is not a claim about any site.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.workload import BYTES_PER_KB, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.allocation.node_room import Machine

USERS = 40
SPREAD, MEMORY_SPREAD = 0.5, 0.3  # of the runs of an application, in logarithms
ROUND_HOURS = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48)
ROUND_GB = (1, 2, 4, 8, 16, 32, 64)
MIN_GB, MAX_GB_PER_CPU = 0.05, 4.0
SESSION_JOBS = 12.0  # mean number of jobs that a user submits together


@dataclass(frozen=True, eq=False)
class MadeTrace:
    """A trace and what a predictor would know of its jobs.

    Attributes
    ----------
    workload : Workload
    application : ndarray of int
        The application of each job, one of `USERS`.
    median_s, median_bytes : ndarray
        What is known of each job beforehand, before noise; memory of the whole job.
    """

    workload: Workload
    application: NDArray[np.int64]
    median_s: NDArray[np.float64]
    median_bytes: NDArray[np.float64]


def made_trace(jobs: int, machine: Machine, load: float, seed: int, noise: float) -> MadeTrace:
    """Return a trace that offers ``load`` of the machine's cores.

    Parameters
    ----------
    noise : float
        Standard deviation, in logarithms, of runtime and memory about what is known beforehand.
    """
    rng = np.random.default_rng(seed)
    application = _sessions(rng, jobs)
    of_app = rng.normal(math.log(1800), 1.2, USERS), rng.normal(math.log(2.0), 0.8, USERS)
    widths = rng.choice((1, 1, 1, 2, 4, 8), USERS)
    expected_s = np.exp(of_app[0][application] + rng.normal(0, SPREAD, jobs))
    runtime_s = np.clip(expected_s * np.exp(rng.normal(0, noise, jobs)), 10, 40 * 3600).round()
    expected_gb = np.exp(of_app[1][application] + rng.normal(0, MEMORY_SPREAD, jobs))
    wide = np.minimum(widths[application], machine.cores)
    used_gb = np.clip(expected_gb * np.exp(rng.normal(0, noise / 3, jobs)), MIN_GB, None)
    used_gb = np.minimum(used_gb, 0.9 * machine.memory_bytes / 1e9)
    # Users ask by application: the round value above the longest that they expect, or one more.
    asked_s = _rounded(3600 * np.array(ROUND_HOURS), 2.5 * np.exp(of_app[0])[application], rng)
    asked_gb = _rounded(np.array(ROUND_GB), 2.0 * np.exp(of_app[1])[application], rng)
    asked_s = np.maximum(asked_s, _least(3600 * np.array(ROUND_HOURS), runtime_s))
    asked_gb = np.minimum(
        np.maximum(asked_gb, _least(np.array(ROUND_GB), used_gb)), machine.memory_bytes / 1e9
    )
    core_s = float((wide * runtime_s).sum())
    submit_s = _arrivals(rng, application, core_s / (load * machine.processors))
    order = np.argsort(submit_s, kind="stable")
    unknown = np.full(jobs, np.nan)
    workload = Workload(
        np.arange(1, jobs + 1), submit_s[order], runtime_s[order], asked_s[order].round(),
        wide[order].astype(np.int64), unknown, machine.processors,
        used_bytes=_kilobytes(used_gb / wide)[order],
        requested_bytes=_kilobytes(asked_gb / wide)[order],
    )  # fmt: skip
    return MadeTrace(workload, application[order], expected_s[order], 1e9 * expected_gb[order])


def write_swf(workload: Workload, path: Path, remark: str) -> None:
    """Write a trace as Standard Workload Format 2.2; times are whole seconds."""
    used, requested = workload.used_memory(), workload.packed_bytes()
    lines = [
        "; Version: 2.2", f"; Note: {remark}", f"; MaxProcs: {workload.max_processors}",
        *(
            f"{number} {submit:.0f} -1 {ran:.0f} {wide} -1 {used_kb:.0f} {wide} {time:.0f} "
            f"{asked_kb:.0f} 1 1 1 1 1 1 -1 -1"
            for number, submit, ran, wide, used_kb, time, asked_kb in zip(
                workload.numbers, workload.submit_s, workload.runtime_s, workload.processors,
                used / BYTES_PER_KB, workload.requested_s, requested / BYTES_PER_KB, strict=True,
            )
        ),
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def _kilobytes(gigabytes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.floor(gigabytes * 1e9 / BYTES_PER_KB) * BYTES_PER_KB, dtype=np.float64)


def _sessions(rng: np.random.Generator, jobs: int) -> NDArray[np.int64]:
    """Return the application of each job; those of a session are in a row."""
    shares = 1 / np.arange(1, USERS + 1)  # a few users submit most of the jobs
    lengths = rng.geometric(1 / SESSION_JOBS, jobs)
    owners = rng.choice(USERS, jobs, p=shares / shares.sum())
    return np.repeat(owners, lengths)[:jobs]


def _arrivals(
    rng: np.random.Generator, application: NDArray[np.int64], lasts_s: float
) -> NDArray[np.float64]:
    """Return submissions: sessions by the hours of the day, their jobs a few seconds apart."""
    begins = np.flatnonzero(np.diff(application, prepend=-1))
    session = np.zeros(len(application), dtype=np.int64)
    session[begins] = 1
    session = np.cumsum(session) - 1
    drawn = rng.uniform(0, lasts_s, 20 * len(begins))
    hour = drawn / 3600 % 24
    busy = 0.3 + 0.7 * np.exp(-(((hour - 14) / 5) ** 2))
    at = np.sort(drawn[rng.uniform(size=len(drawn)) < busy][: len(begins)])
    return np.asarray((at[session] + rng.exponential(5.0, len(application))).round())


def _least(values: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least of the round values that is not below each number."""
    return np.asarray(values[np.minimum(np.searchsorted(values, above), len(values) - 1)])


def _rounded(
    values: NDArray[np.float64], above: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    place = np.searchsorted(values, above) + rng.integers(0, 2, len(above))
    return np.asarray(values[np.minimum(place, len(values) - 1)], dtype=np.float64)
