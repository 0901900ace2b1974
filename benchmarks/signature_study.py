"""Signatures of recorded runs: do they add up, do they predict, and where do they win?

Takes the folders of ``phase_traces.py`` and ``slowed_traces.py`` and writes one JSON file:

    python benchmarks/signature_study.py TRACES SLOWED --out results/phases/signature.json

All times are of the part of a run that is traced: from the start of recording to the end of its
last event, by the slowest process. Errors are relative to the measured time.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from model_rivals import rivals
from phase_traces import RUN_FILE
from timing import machine
from voxcast.errors import VoxcastError
from voxcast.files import read_json, write_json
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import (
    MIN_BATCHES,
    backtest,
    calibrated,
    cycle_times_s,
    cycles_of,
    error_of_sum_s,
    first_part,
    transfer,
)
from voxcast.phases.signature import (
    MIN_SHARE,
    communication,
    communication_share,
    exact_values,
    grouped,
    phases_of,
    signature,
    simo,
    tick_times,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.phases.logical import LogicalTrace

SHARES = (0.1, 0.2, 0.5)
JUDGED_SHARE = 0.2
PASSES = (1, 3, 10)
LEVEL = 0.9
TRIMMED = 0.1  # of each tail
BARS = {"total": 0.05, "prefix": 0.10, "level": LEVEL}


@dataclass(frozen=True, eq=False)
class TracedRun:
    """A recorded run."""

    name: str
    facts: dict[str, Any]
    trace: LogicalTrace
    elapsed_s: float


def traced_runs(folder: Path) -> list[TracedRun]:
    """Read the runs of a folder; one that cannot be read is told on stderr and left out."""
    runs = []
    for path in sorted(file.parent for file in folder.glob(f"*/{RUN_FILE}")):
        print(f"reading {path.name}", file=sys.stderr)
        try:
            trace = logical_trace(read_trace(path / "traces"))
        except VoxcastError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        elapsed_s = tick_times(trace).elapsed_s
        runs.append(TracedRun(path.name, read_json(path / RUN_FILE), trace, elapsed_s))
    return runs


def phase_counts(run: TracedRun) -> dict[str, Any]:
    """Return a row of the paper's table 3: phases by exact counts and by orders of magnitude."""
    trace, times = run.trace, tick_times(run.trace)
    kind, duration = communication(trace), trace.sum_by_tick(trace.elapsed_ns())
    exact = grouped(exact_values(trace), duration=duration)
    by_simo = grouped(simo(trace), 1, communication=kind, duration=duration)
    by_mean = phases_of(trace, min_share=0.0)
    in_events = communication_share(times, slice(None))
    return {
        "run": run.name,
        "app": run.facts["app"],
        "processes": run.facts["processes"],
        "computation_unit": trace.events.computation_unit,
        "events": len(trace.events),
        "ticks": len(trace),
        "elapsed_s": run.elapsed_s,
        **{
            name: {"all": len(phases.weight), "large": int((phases.share >= MIN_SHARE).sum())}
            for name, phases in (("exact", exact), ("simo", by_simo), ("mean_order", by_mean))
        },
        "communication_share": in_events,
        "computation_share": 1 - in_events,
    }


def total_errors(run: TracedRun) -> dict[str, float]:
    """Return the error of the total by representative time."""
    grouping, times = phases_of(run.trace), tick_times(run.trace)
    beside_s = times.after_s + times.advance_s[grouping.label < 0].sum()

    def error(total_s: float) -> float:
        return float(total_s / run.elapsed_s - 1)

    totals = {
        "mean": signature(run.trace).total_s,
        **{f"mean of {n} passes": signature(run.trace, passes=n).total_s for n in PASSES},
    }
    for name, centre in (
        ("median", np.median),
        ("trimmed mean", lambda values: stats.trim_mean(values, TRIMMED)),
    ):
        in_phases_s = sum(len(t) * centre(times.advance_s[t]) for t in grouping.ticks())
        totals[name] = float(in_phases_s) + beside_s
    return {name: error(total_s) for name, total_s in totals.items()}


def prefix_errors(run: TracedRun, share: float) -> dict[str, Any]:
    """Return the prediction from a share of the ticks, and those of other ways to extrapolate."""
    cycles, prediction = backtest(run.trace, share, LEVEL)
    trace = first_part(run.trace, share)
    times = tick_times(trace)
    part = times.advance_s[cycles.first_tick : cycles.stop_tick]
    ahead = (prediction.cycles_of_run - prediction.cycles) * len(part) / cycles.repeated
    others = {
        "median tick": prediction.elapsed_s + ahead * float(np.median(part)),
        "trimmed mean": prediction.elapsed_s + ahead * float(stats.trim_mean(part, TRIMMED)),
        "second half": prediction.elapsed_s + ahead * float(part[len(part) // 2 :].mean()),
        "proportional": prediction.elapsed_s * prediction.cycles_of_run / prediction.cycles,
    }
    return {
        "run": run.name,
        "app": run.facts["app"],
        "cycles": prediction.cycles,
        "error": prediction.total_s / run.elapsed_s - 1,
        # Of the time that was still to come: the start, which is measured, flatters the total.
        "error_ahead": (prediction.total_s - run.elapsed_s)
        / (run.elapsed_s - prediction.elapsed_s),
        "log_error": math.log(run.elapsed_s / prediction.total_s),
        "half_width": (prediction.upper_s / prediction.total_s - 1)
        if math.isfinite(prediction.upper_s) else None,
        "held": bool(prediction.lower_s <= run.elapsed_s <= prediction.upper_s),
        "independent_half_width": error_of_sum_s(
            cycle_times_s(trace, cycles, times.advance_s),
            prediction.cycles_of_run - prediction.cycles, LEVEL, averages_out=True,
        ) / prediction.total_s if cycles.repeated >= MIN_BATCHES else None,
        "others": {name: total_s / run.elapsed_s - 1 for name, total_s in others.items()},
        "prediction": prediction,
    }  # fmt: skip


def coverage(rows: Sequence[dict[str, Any]], runs: dict[str, TracedRun]) -> dict[str, Any]:
    """Return how often each kind of interval holds, and how wide it is."""
    widths_of = ("half_width", "independent_half_width")
    finite = [row for row in rows if all(row[name] is not None for name in widths_of)]
    independent = [row["independent_half_width"] for row in finite]
    result = {
        "batch means": _held([r["held"] for r in finite], [r["half_width"] for r in finite]),
        "batch means, independent": _held(
            [
                abs(math.expm1(r["log_error"])) <= w
                for r, w in zip(finite, independent, strict=True)
            ],
            independent,
        ),
    }
    for name, is_past in (
        ("conformal, all applications", lambda row, other: True),
        ("conformal, same application", lambda row, other: row["app"] == other["app"]),
    ):
        held, widths = [], []
        for row in rows:
            past = [
                other["log_error"] for other in rows if other is not row and is_past(row, other)
            ]
            try:
                interval = calibrated(row["prediction"], past)
            except VoxcastError:
                continue
            elapsed_s = runs[row["run"]].elapsed_s
            held.append(interval.lower_s <= elapsed_s <= interval.upper_s)
            widths.append(interval.upper_s / interval.total_s - 1)
        result[name] = _held(held, widths)
    return result


def _held(held: Sequence[bool], half_widths: Sequence[float]) -> dict[str, Any]:
    if not held:
        return {"runs": 0}
    interval = stats.binomtest(sum(held), len(held)).proportion_ci(0.95)
    return {
        "runs": len(held),
        "held": int(sum(held)),
        "coverage": float(np.mean(held)),
        "coverage_95": [float(interval.low), float(interval.high)],
        "median_half_width": float(np.median(half_widths)),
    }


def summary(errors: Iterable[float]) -> dict[str, float]:
    """Return mean, median and most of absolute errors."""
    sizes = np.abs(list(errors))
    return {
        "runs": len(sizes),
        "mean": float(sizes.mean()),
        "median": float(np.median(sizes)),
        "most": float(sizes.max()),
    }


def by_app(rows: Iterable[tuple[str, float]]) -> dict[str, dict[str, float]]:
    """Return the summary of errors for each application."""
    errors: dict[str, list[float]] = defaultdict(list)
    for app, error in rows:
        errors[app].append(error)
    return {app: summary(values) for app, values in sorted(errors.items())}


def transfers(folder: Path) -> list[dict[str, Any]]:
    """Return predicted and measured times of the runs on the slowed machine."""
    runs = {(r.facts["app"], r.facts["way"], r.facts["length"]): r for r in traced_runs(folder)}
    rows = []
    for (app, slowing, length), short in sorted(runs.items()):
        base, long_run = runs.get((app, "base", "whole")), runs.get((app, slowing, "whole"))
        if length != "short" or base is None or long_run is None:
            continue
        predicted = transfer(base.trace, short.trace, LEVEL)
        # Without phases: the ratio of the means of all ticks, or the short run as it is.
        ratio = (short.elapsed_s / len(short.trace)) / (base.elapsed_s / len(base.trace))
        rows.append({
            "app": app,
            "way": slowing,
            "base_s": base.elapsed_s,
            "short_s": short.elapsed_s,
            "measured_s": long_run.elapsed_s,
            "predicted_s": predicted.total_s,
            "lower_s": predicted.lower_s,
            "upper_s": predicted.upper_s,
            "error": predicted.total_s / long_run.elapsed_s - 1,
            "held": bool(predicted.lower_s <= long_run.elapsed_s <= predicted.upper_s),
            "error_by_mean_tick": base.elapsed_s * ratio / long_run.elapsed_s - 1,
            "error_unscaled": base.elapsed_s / long_run.elapsed_s - 1,
            "ratios": {p.communication: p.time_s / p.base_s for p in predicted.phases},
        })  # fmt: skip
    return rows


def study(runs: list[TracedRun]) -> dict[str, Any]:
    """Return all of the study but the transfers."""
    by_name = {run.name: run for run in runs}
    totals = [(run.facts["app"], total_errors(run)) for run in runs]
    prefixes: dict[float, list[dict[str, Any]]] = {}
    refused: dict[str, str] = {}
    for share in SHARES:
        prefixes[share] = []
        for run in runs:
            try:
                prefixes[share].append(prefix_errors(run, share))
            except VoxcastError as error:
                refused[f"{run.name} from {share:g}"] = str(error)
    estimators = list(totals[0][1])
    bar_rows = prefixes[JUDGED_SHARE]
    rival_errors = rivals([(r.facts, r.elapsed_s, cycles_of(r.trace), r.trace) for r in runs])
    signature_rows = [(row["app"], row["error"]) for row in bar_rows]
    return {
        "table_3": [phase_counts(run) for run in runs],
        "totals": {
            name: by_app((app, errors[name]) for app, errors in totals) for name in estimators
        },
        "prefix": {
            f"{share:g}": {
                "total": by_app((row["app"], row["error"]) for row in rows),
                "ahead": by_app((row["app"], row["error_ahead"]) for row in rows),
                "others": {
                    name: by_app((row["app"], row["others"][name]) for row in rows)
                    for name in rows[0]["others"]
                },
                "coverage": coverage(rows, by_name),
                "runs": [{k: v for k, v in row.items() if k != "prediction"} for row in rows],
            }
            for share, rows in prefixes.items() if rows
        },
        "refused": refused,
        "rivals": {
            f"signature from {JUDGED_SHARE:g}": by_app(signature_rows),
            **{name: by_app(rows) for name, rows in rival_errors.items()},
        },
    }  # fmt: skip


def main() -> None:
    """Write the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("slowed", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    runs = traced_runs(args.traces)
    if not runs:
        raise SystemExit(f"{args.traces} has no runs; record them by phase_traces.py")
    content = {
        "machine": machine(), "bars": BARS, "level": LEVEL, **study(runs),
        "transfer": transfers(args.slowed) if args.slowed else [],
    }  # fmt: skip
    write_json(args.out, content)


if __name__ == "__main__":
    main()
