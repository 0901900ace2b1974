"""Signatures of recorded runs: do they predict, and where do they win?

Takes the folder of ``phase_traces.py`` and writes ``results/phases/signature.json``:

    python benchmarks/signature_study.py FOLDER

All times are of the part of a run that is traced: from the start of recording to the end of its
last event, by the slowest process. Errors are relative to the measured time.

The rivals, whole-run models and HARP's epochs estimator, predict a run before it starts, from its
parameters and other runs; a signature has seen a part of the run itself. Whole-run models regress
the total; the epochs estimator regresses the start and the time of one cycle, and multiplies that
by the number of cycles. Both take the logarithms of all parameters and of the number of processes
as features, and the linear and tree regressors of HARP on standardised times.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from phase_traces import RUN_FILE
from timing import machine
from voxcast.errors import VoxcastError
from voxcast.evaluation.harp import TimeRegressor
from voxcast.files import read_json, write_json
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import backtest, cycles_of, first_part, transfer
from voxcast.phases.signature import tick_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.predict import Cycles

SHARES = (0.1, 0.2, 0.5)
JUDGED_SHARE = 0.2
LEVEL = 0.9
TRIMMED = 0.1  # of each tail
OUT = Path("results/phases/signature.json")
FAMILIES = {"linear": "MLR", "tree": "DTR"}


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
        "others": {name: total_s / run.elapsed_s - 1 for name, total_s in others.items()},
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


def rivals(
    runs: Sequence[TracedRun],
) -> dict[str, list[tuple[str, float]]]:
    """Return (application, relative error) of each run by estimator, of what was left out.

    Left out is all of a workload, on any number of processes, or the run alone: then the same
    workload on other numbers of processes was seen.
    """
    errors: dict[str, list[tuple[str, float]]] = {}
    for app in sorted({run.facts["app"] for run in runs}):
        of_app = [run for run in runs if run.facts["app"] == app]
        cycles = [cycles_of(run.trace) for run in of_app]
        table = pd.DataFrame([_features(r.facts, c) for r, c in zip(of_app, cycles, strict=True)])
        workload = [_workload(run.facts) for run in of_app]
        total_s = np.array([run.elapsed_s for run in of_app])
        cycle_s = np.array([_cycle_s(c, r.trace) for r, c in zip(of_app, cycles, strict=True)])
        count = table["cycles"].to_numpy(float)
        start_s = total_s - cycle_s * count
        for held_out, groups in (("workload", workload), ("run", list(range(len(of_app))))):
            for n in range(len(of_app)):
                rest = np.array([group != groups[n] for group in groups])
                if not rest.any():
                    continue
                for name, family in FAMILIES.items():
                    fit = _fitter(family)
                    total = fit(table[rest], total_s[rest])(table.iloc[[n]])
                    start = fit(table[rest], start_s[rest])(table.iloc[[n]])
                    cycle = fit(table[rest], cycle_s[rest])(table.iloc[[n]])
                    parts = start + count[n] * cycle
                    for kind, predicted in (("whole run", total), ("epochs estimator", parts)):
                        key = f"{kind}, {name}, unseen {held_out}"
                        error = float(predicted[0] / total_s[n] - 1)
                        errors.setdefault(key, []).append((app, error))
    return errors


def _features(facts: dict[str, Any], cycles: Cycles) -> dict[str, float]:
    numbers = {k: v for k, v in facts["parameters"].items() if isinstance(v, int | float)}
    words = {f"{k}={v}": 1.0 for k, v in facts["parameters"].items() if isinstance(v, str) and v}
    return {**numbers, **words, "processes": facts["processes"], "cycles": cycles.count}


def _workload(facts: dict[str, Any]) -> str:
    return repr(sorted((k, v) for k, v in facts["parameters"].items() if k != "oversubscription"))


def _cycle_s(cycles: Cycles, trace: LogicalTrace) -> float:
    part = tick_times(trace).advance_s[cycles.first_tick : cycles.stop_tick]
    return float(part.sum()) / cycles.repeated


def _fitter(family: str) -> Any:
    def fit(features: pd.DataFrame, times_s: np.ndarray) -> Any:
        def columns(table: pd.DataFrame) -> np.ndarray:
            logarithms: np.ndarray = np.log1p(table.fillna(0.0).to_numpy(float))
            return logarithms

        model = TimeRegressor(family, scaled=True).fit(columns(features), times_s)
        return lambda table: model.predict(columns(table))

    return fit


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
    prefixes: dict[float, list[dict[str, Any]]] = {}
    refused: dict[str, str] = {}
    for share in SHARES:
        prefixes[share] = []
        for run in runs:
            try:
                prefixes[share].append(prefix_errors(run, share))
            except VoxcastError as error:
                refused[f"{run.name} from {share:g}"] = str(error)
    judged_errors = [(row["app"], row["error"]) for row in prefixes[JUDGED_SHARE]]
    return {
        "prefix": {
            f"{share:g}": {
                "total": by_app((row["app"], row["error"]) for row in rows),
                "ahead": by_app((row["app"], row["error_ahead"]) for row in rows),
                "others": {
                    name: by_app((row["app"], row["others"][name]) for row in rows)
                    for name in rows[0]["others"]
                },
                "runs": rows,
            }
            for share, rows in prefixes.items() if rows
        },
        "refused": refused,
        "rivals": {
            f"signature from {JUDGED_SHARE:g}": by_app(judged_errors),
            **{name: by_app(rows) for name, rows in rivals(runs).items()},
        },
    }  # fmt: skip


def main() -> None:
    """Write the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    runs = traced_runs(folder / "plain")
    if not runs:
        raise SystemExit(f"{folder} has no runs; record them by phase_traces.py")
    transferred = transfers(folder / "slowed")
    write_json(OUT, {"machine": machine(), **study(runs), "transfer": transferred})


if __name__ == "__main__":
    main()
