"""Predictions of planted runs whose cycles drift, jump, or vary in ways that means do not like.

``python benchmarks/changing_cycles.py --out FILE`` writes how often a prediction from the first
fifth has an interval, how often that holds, and the same of a transfer to a machine of half speed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from voxcast.errors import RunError
from voxcast.files import write_json
from voxcast.phases.events import EVENT_DTYPES, EventTable, Kind
from voxcast.phases.logical import LogicalTrace, logical_trace
from voxcast.phases.predict import backtest, transfer
from voxcast.phases.signature import tick_times

N_CYCLES, SHARE, LEVEL, N_RUNS, SLOWED = 300, 0.2, 0.9, 100, 2.0
CYCLE_NS, START_NS, EVENT_NS = 1e6, 5e6, 100.0
PASSED = np.arange(N_CYCLES) / N_CYCLES
Draw = Callable[[np.random.Generator], np.ndarray]


def noise(rng: np.random.Generator) -> np.ndarray:
    """Return independent log-normal factors of 10 %."""
    factors: np.ndarray = np.exp(rng.normal(0.0, 0.1, N_CYCLES))
    return factors


def autoregressive(correlation: float) -> Draw:
    """Return factors of 10 %, each correlated with the one before."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        steps = rng.normal(0.0, 0.1 * np.sqrt(1 - correlation**2), N_CYCLES)
        level, levels = rng.normal(0.0, 0.1), []
        for step in steps:
            level = correlation * level + step
            levels.append(level)
        factors: np.ndarray = np.exp(np.array(levels))
        return factors

    return draw


def flicker(rng: np.random.Generator) -> np.ndarray:
    """Return factors of 10 % with a 1/f spectrum."""
    spectrum = rng.normal(size=N_CYCLES // 2 + 1) + 1j * rng.normal(size=N_CYCLES // 2 + 1)
    spectrum[1:] /= np.sqrt(np.arange(1, N_CYCLES // 2 + 1))
    spectrum[0] = 0
    logs = np.fft.irfft(spectrum, N_CYCLES)
    factors: np.ndarray = np.exp(0.1 * logs / logs.std())
    return factors


def of_work(work: np.ndarray) -> Draw:
    """Return cycles of so much work, with independent noise of 10 %."""
    return lambda rng: work * noise(rng)


PROGRAMS: Mapping[str, Draw] = {
    "independent, 10 %": noise,
    "correlated by 0.95": autoregressive(0.95),
    "correlated by 0.99": autoregressive(0.99),
    "1/f noise, 10 %": flicker,
    "log-normal, sigma 1.5": lambda rng: rng.lognormal(0.0, 1.5, N_CYCLES),
    "Pareto tail of index 1.5": lambda rng: 1 + 0.2 * rng.pareto(1.5, N_CYCLES),
    "first 10 cycles 3 times as long": of_work(np.where(np.arange(N_CYCLES) < 10, 3.0, 1.0)),
    "every tenth 20 times as long": of_work(np.where(np.arange(N_CYCLES) % 10 == 9, 20.0, 1.0)),
    "grows to 1.5 times": of_work(1 + 0.5 * PASSED),
    "grows to 3 times": of_work(1 + 2 * PASSED),
    "grows to 1000 times, exponentially": of_work(1000**PASSED),
    "doubles each 15 % of the run": of_work(2.0 ** np.floor(PASSED / 0.15)),
    "shrinks to a third": of_work(1 - 2 * PASSED / 3),
    "shrinks to a 100th, exponentially": of_work(100**-PASSED),
    "doubles at half of the run": of_work(np.where(PASSED < 0.5, 1.0, 2.0)),
}


def run_of(cycles: np.ndarray) -> LogicalTrace:
    """Return a run of two processes: a start, and cycles that end with one all-reduce."""
    computation = np.rint(np.concatenate([[START_NS], CYCLE_NS * cycles]))
    end_ns = np.cumsum(computation + EVENT_NS)
    n = len(end_ns)
    columns: dict[str, np.ndarray] = {
        name: np.zeros(2 * n, dtype) for name, dtype in EVENT_DTYPES.items()
    }
    columns |= {
        "process": np.repeat([0, 1], n).astype(np.int32),
        "start_ns": np.tile(end_ns - EVENT_NS, 2).astype(np.int64),
        "end_ns": np.tile(end_ns, 2).astype(np.int64),
        "kind": np.full(2 * n, Kind.COLLECTIVE, np.int8),
        "peer": np.full(2 * n, -1, np.int32),
        "size_bytes": np.tile([8, *[1000] * (n - 1)], 2).astype(np.int64),
        "computation": np.tile(computation, 2),
    }
    ends = np.full(2, end_ns[-1]).astype(np.int64)
    return logical_trace(
        EventTable(
            columns, ("rank 0", "rank 1"), ("MPI_Allreduce",), ((0, 1),), "cpu_ns",
            np.zeros(2, np.int64), ends, "planted",
        )
    )  # fmt: skip


def predicted(draw: Draw) -> dict[str, Any]:
    """Return how predictions from the first part do."""
    held, errors, refused = [], [], 0
    for seed in range(N_RUNS):
        trace = run_of(draw(np.random.default_rng(seed)))
        measured_s = tick_times(trace).elapsed_s
        try:
            _, result = backtest(trace, SHARE, LEVEL)
        except RunError:
            refused += 1
            continue
        errors.append(result.total_s / measured_s - 1)
        if np.isfinite(result.upper_s):
            held.append(result.lower_s <= measured_s <= result.upper_s)
    return _figures(held, errors) | {"refused": refused}


def transferred(draw: Draw) -> dict[str, Any]:
    """Return how transfers of a whole run by the first part of another do."""
    held, errors = [], []
    for seed in range(N_RUNS):
        base = run_of(draw(np.random.default_rng(seed)))
        slowed = SLOWED * draw(np.random.default_rng(N_RUNS + seed))
        measured_s = tick_times(run_of(slowed)).elapsed_s
        result = transfer(base, run_of(slowed[: round(SHARE * N_CYCLES)]), LEVEL)
        errors.append(result.total_s / measured_s - 1)
        held.append(result.lower_s <= measured_s <= result.upper_s)
    return _figures(held, errors)


def _figures(held: list[bool], errors: list[float]) -> dict[str, Any]:
    return {
        "intervals": len(held),
        "held": int(np.sum(held)),
        "median_error": float(np.median(errors)) if errors else None,
        "largest_error": float(max(errors, key=abs)) if errors else None,
    }


def main() -> None:
    """Predict and transfer planted runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    programs = []
    for name, draw in PROGRAMS.items():
        print(name, file=sys.stderr)
        figures = {"prediction": predicted(draw), "transfer": transferred(draw)}
        programs.append({"cycles": name} | figures)
    content = {"runs": N_RUNS, "level": LEVEL, "share": SHARE, "programs": programs}
    write_json(args.out, content)


if __name__ == "__main__":
    main()
