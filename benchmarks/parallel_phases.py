"""Measure phases of parallel runs: ticks grouped a second, growth, and planted phases recovered.

``python benchmarks/parallel_phases.py``. A size runs in a process of its own, so that the
peak of memory is that of the size. Rates are of CPU time, since the machine may be shared.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planted_phases import PHASES, PlantedPhase, planted
from timing import machine
from traces import RECORDS_A_STEP, write_archive
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.signature import (
    MIN_SHARE,
    TOLERANCE_DECADES,
    communication,
    exact_values,
    grouped,
    mean_order,
    phases_of,
    simo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TICKS = (100_000, 1_000_000, 10_000_000)
EVENTS = (100_000, 1_000_000, 10_000_000)
ARCHIVED_EVENTS = (100_000, 1_000_000)  # more take minutes to write
PROCESSES = (4, 8, 16, 32, 64)
CONTRASTS_PERCENT = (50, 100, 200, 400, 900)
JITTERS = (0.1, 0.5)
SEEDS = range(10)
STEPS = 2000
BOUND_TICKS_A_SECOND = 5e6
# From an archive into phases.
BOUND_EVENTS_S, BOUND_EVENTS_BYTES, BOUND_OF = 10.0, 1e9, 1_000_000


def cpu_seconds(action: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    action()
    return time.process_time() - start


def grouping(n_ticks: int) -> dict[str, float]:
    """Group ticks whose values are alike for long, as SIMO of real programs, and by chance."""
    rng = np.random.default_rng(0)
    values = rng.integers(8, 72, n_ticks)
    kinds = rng.integers(0, 12, n_ticks)
    grouped(values[:10], 1)  # imports pandas
    plain_s = min(cpu_seconds(lambda: grouped(values, 1)) for _ in range(3))
    with_kinds_s = min(
        cpu_seconds(lambda: grouped(values, 1, communication=kinds)) for _ in range(3)
    )
    return {
        "ticks": n_ticks,
        "ticks_a_second": n_ticks / plain_s,
        "with_communication_a_second": n_ticks / with_kinds_s,
        "peak_bytes": _peak_bytes(),
    }


def ordering(n_events: int) -> dict[str, float]:
    """Order events of 8 processes into ticks, and group these into phases."""
    # A step has 8 events, or 16 if it is one of the two with messages.
    n_steps = n_events * len(PHASES) // (8 * sum(len(step.operations) for step in PHASES))
    events, _ = planted(8, n_steps, seed=0)
    before_bytes = _peak_bytes()
    start = time.process_time()
    trace = logical_trace(events)
    logical_s = time.process_time() - start
    phases_s = cpu_seconds(lambda: phases_of(trace))
    return {
        "events": len(events),
        "ticks": len(trace),
        "logical_s": logical_s,
        "phases_s": phases_s,
        "peak_bytes": _peak_bytes(),
        "events_peak_bytes": before_bytes,
    }


def reading(n_events: int) -> dict[str, float]:
    """Read an OTF2 archive of sums of 4 processes, order its events, and group these."""
    with tempfile.TemporaryDirectory() as name:
        write_archive(Path(name) / "archive", n_events * RECORDS_A_STEP)
        written_bytes = _peak_bytes()
        start = time.process_time()
        events = read_trace(Path(name) / "archive")
        reading_s = time.process_time() - start
    start = time.process_time()
    trace = logical_trace(events)
    logical_s = time.process_time() - start
    phases_s = cpu_seconds(lambda: phases_of(trace))
    return {
        "events": len(events),
        "records": n_events * RECORDS_A_STEP,
        "reading_s": reading_s,
        "logical_s": logical_s,
        "phases_s": phases_s,
        "total_s": reading_s + logical_s + phases_s,
        "peak_bytes": _peak_bytes(),
        "written_peak_bytes": written_bytes,
    }


def recovered(n_processes: int) -> dict[str, Any]:
    """Compare planted phases with those by SIMO, by mean order, and by exact counts."""
    from sklearn.metrics import adjusted_rand_score

    figures: dict[str, Any] = {"processes": n_processes, "runs": len(SEEDS)}
    phases: dict[str, list[int]] = {}
    rand: dict[str, list[float]] = {}
    for seed in SEEDS:
        events, truth = planted(n_processes, STEPS, seed)
        trace = logical_trace(events)
        kinds = communication(trace)
        values = {
            "simo": (simo(trace), 1.0),
            "mean_order": (mean_order(trace), TOLERANCE_DECADES),
            "exact": (exact_values(trace), 0.0),
        }
        for name, (of_tick, tolerance) in values.items():
            every = grouped(of_tick, tolerance, communication=kinds)
            phases.setdefault(name, []).append(int((every.share >= MIN_SHARE).sum()))
            phases.setdefault(f"{name}_all", []).append(len(every.founder))
            score = adjusted_rand_score(truth, every.label[trace.tick])
            rand.setdefault(name, []).append(float(score))
    figures["planted"] = sum(len(step.operations) for step in PHASES)
    figures["phases"] = {name: _range(counts) for name, counts in phases.items()}
    figures["rand"] = {name: _range(scores) for name, scores in rand.items()}
    return figures


def contrast(percent: int) -> dict[str, Any]:
    """Tell apart two phases that differ in computation by so many percent only, in 8 processes.

    Imbalance moves the mean of a phase too: it is what tells phases of equal size apart.
    """
    from sklearn.metrics import adjusted_rand_score

    phases = tuple(PlantedPhase(n, (2,), 4096) for n in (2e6, 2e6 * (1 + percent / 100)))
    rand: dict[float, list[float]] = {jitter: [] for jitter in JITTERS}
    for seed in SEEDS:
        for jitter in JITTERS:
            events, truth = planted(8, STEPS, seed, phases, jitter)
            trace = logical_trace(events)
            label = grouped(mean_order(trace), TOLERANCE_DECADES).label
            rand[jitter].append(float(adjusted_rand_score(truth, label[trace.tick])))
    return {
        "percent": percent,
        "rand": [{"jitter": jitter, **_range(scores)} for jitter, scores in rand.items()],
    }


def _range(values: Sequence[float]) -> dict[str, float]:
    return {"least": min(values), "median": float(np.median(values)), "most": max(values)}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


MEASURES: dict[str, Callable[[int], dict[str, Any]]] = {
    "grouping": grouping,
    "ordering": ordering,
    "reading": reading,
    "recovered": recovered,
    "contrast": contrast,
}


def _in_process(measure: str, size: int) -> dict[str, Any]:
    command = [sys.executable, __file__, measure, str(size)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    figures: dict[str, Any] = json.loads(output)
    return figures


def main(arguments: Sequence[str]) -> int:
    """Print all figures, or those of one measure and size; 1 if a bound is missed."""
    if arguments:
        print(json.dumps(MEASURES[arguments[0]](int(arguments[1]))))
        return 0
    figures: dict[str, Any] = {
        "machine": machine(),
        "grouping": [_in_process("grouping", n) for n in TICKS],
        "ordering": [_in_process("ordering", n) for n in EVENTS],
        "reading": [_in_process("reading", n) for n in ARCHIVED_EVENTS],
        "recovered": [_in_process("recovered", n) for n in PROCESSES],
        "contrast": [_in_process("contrast", percent) for percent in CONTRASTS_PERCENT],
        "bound_ticks_a_second": BOUND_TICKS_A_SECOND,
        "bound_events_s": BOUND_EVENTS_S,
        "bound_events_bytes": BOUND_EVENTS_BYTES,
    }
    print(json.dumps(figures, indent=2))
    million = next(row for row in figures["reading"] if row["events"] == BOUND_OF)
    fits = (
        figures["grouping"][-1]["ticks_a_second"] >= BOUND_TICKS_A_SECOND
        and million["total_s"] <= BOUND_EVENTS_S
        and million["peak_bytes"] <= BOUND_EVENTS_BYTES
    )
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
