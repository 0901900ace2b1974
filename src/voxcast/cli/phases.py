"""``voxcast phases``: time and memory by phase, of runs on record and of parallel programs."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast.cli import options
from voxcast.cli.phases_show import Trace, read_logical_trace, record, show
from voxcast.errors import ConfigError, TableError
from voxcast.phases.signature import MIN_SHARE, TOLERANCE_DECADES
from voxcast.quantities import counted, format_bytes, format_seconds, format_short_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from voxcast.allocation.requests.chain import Chain, MemoryHeld
    from voxcast.phases.logged import PhaseMatrix
    from voxcast.phases.predict import TimePrediction, Transfer
    from voxcast.phases.signature import Signature

PRINTED_WALLTIMES = 4
TOLERANCE_VALUES = 1.0
NO_SAMPLE = 0.1  # what the same ticks of the base may miss of its time before a warning


def chain(
    histories: options.Histories,
    app_name: options.App = None,
    prices: Annotated[
        str,
        Option("--cost", metavar="A,B,C", help="Prices of requested time, used time, request."),
    ] = "1,0,0",
    checkpoint: Annotated[
        str | None,
        Option("--checkpoint", metavar="WRITE,RESTART", help="Durations, such as 30s,10s."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Show memory held by run and by phase, and the requests of a chain of jobs, one a phase."""
    durations = (0.0, 0.0) if checkpoint is None else options.durations(checkpoint, "--checkpoint")
    from voxcast.allocation.requests import chain as chains
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.phases.events import holds_trace
    from voxcast.phases.logged import phase_matrix, used_byte_s
    from voxcast.runs.store import open_history
    from voxcast.runs.table import only_app

    alpha, beta, gamma = options.numbers(prices, 3, "--cost")
    cost = CostModel(alpha, beta, gamma, *durations)
    if holds_trace(histories[0]):
        then = f"see it with `voxcast phases show {histories[0]}`"
        raise TableError("is a trace, not a history of runs", histories[0], then)
    history = open_history(histories)
    runs = history.runs
    with_phases = {*history.phases["cell_key"], *history.traces["cell_key"]} & set(
        runs["cell_key"]
    )
    if not with_phases:
        then = "measure runs of the application, or import runs with phases"
        raise TableError("has no phases, nor traces to read them from", histories[0], then)
    apps = runs.loc[runs["cell_key"].isin(with_phases), "app"]
    app = only_app(set(apps), app_name, histories[0])
    of_app = runs[runs["app"] == app]
    keys = set(of_app["cell_key"])
    phases, traces = (
        table[table["cell_key"].isin(keys)] for table in (history.phases, history.traces)
    )
    if not len(phases):
        phases = _read_from(of_app, traces)
    matrix = phase_matrix(of_app, phases, traces)
    used = used_byte_s(of_app, traces, matrix)
    kept_s = of_app.loc[of_app["cell_key"].isin(set(matrix.cell_keys)), "runtime_s"].median()
    if matrix.left_out:
        causes = ", ".join(f"{count} {cause}" for cause, count in matrix.left_out.items())
        print(
            f"voxcast: {sum(matrix.left_out.values())} of {len(of_app)} runs left out: {causes}; "
            f"median runtime {format_seconds(kept_s)} of those used, "
            f"{format_seconds(of_app['runtime_s'].median())} of all",
            file=sys.stderr,
        )
    phased_runs = chains.PhasedRuns(matrix.phases, matrix.duration_s, matrix.peak_bytes, used)
    held, jobs = chains.memory_held(phased_runs), chains.chain(phased_runs, cost)
    if as_json:
        content = {
            "app": app,
            "runs": len(matrix.cell_keys),
            "median_runtime_s": float(kept_s),
            "left_out": dict(matrix.left_out),
            "read_at_ends": dict(matrix.read_at_ends),
            "held_gb_h": asdict(held),
            "jobs": [asdict(job) for job in jobs.jobs],
            "one_job": asdict(jobs.single_job),
            "expected_gb_h": jobs.expected_gb_h,
            "gain": jobs.gain,
        }
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show_chain(app, matrix, held, jobs)
    return 0


def _read_from(runs: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return phases read from the traces of runs that logged none; stderr says of how many."""
    from voxcast.phases.segments import segmented_runs

    segmented = segmented_runs(runs, traces)
    read = counted(segmented.phases["cell_key"].nunique(), "run")
    causes = "".join(f"; {count} {cause}" for cause, count in segmented.left_out.items())
    print(
        f"voxcast: no run logged phases: change points in the traces of {read}{causes}",
        file=sys.stderr,
    )
    return segmented.phases


def _show_chain(app: str, matrix: PhaseMatrix, held: MemoryHeld, jobs: Chain) -> None:
    used = "" if held.used is None else f", used {held.used:.3g}"
    runs = len(matrix.cell_keys)
    print(f"{app}: {runs} runs; memory held by one run on average, in GB h")
    print(
        f"  requested at the run's peak {held.at_run_peak:.3g}, at the peak of each phase "
        f"{held.at_phase_peaks:.3g}{used}"
    )
    rows = [("job", "memory", "expected GB h", "requested walltimes")]
    for job in (*jobs.jobs, jobs.single_job):
        lengths = job.walltimes.lengths
        walltimes = [format_seconds(s) for s in lengths[:PRINTED_WALLTIMES]]
        walltimes += ["…"] * (len(lengths) > PRINTED_WALLTIMES)
        memory = format_bytes(job.memory_bytes)
        rows.append((job.phase, memory, f"{job.expected_gb_h:.3g}", ", ".join(walltimes)))
    print(text_table(rows, "<>><", indent="  "))
    if matrix.read_at_ends:
        listed = ", ".join(f"{phase} {n}" for phase, n in matrix.read_at_ends.items())
        print(f"  memory read at the ends of a phase, as no sample lies in it; runs: {listed}")
    expected = f"{jobs.expected_gb_h:.3g} GB h"
    print(
        f"  a chain of jobs, one for each phase, is expected to hold {expected}; "
        f"a single job holds {jobs.gain:.2f} times as much"
    )


def signature(
    path: Annotated[Path, Argument(metavar="TRACE|FILE", show_default=False)],
    values: Annotated[
        bool,
        Option("--values", help="FILE has one value a tick, a line each: group these (SIMO)."),
    ] = False,
    tolerance: Annotated[
        float | None,
        Option(
            "--tolerance",
            metavar="DECADES",
            help=f"Largest difference from the founder of a phase ({TOLERANCE_DECADES:g}).",
        ),
    ] = None,
    min_share: Annotated[
        float,
        Option(
            "--min-share", metavar="SHARE", help="Drop phases with a smaller share of the time."
        ),
    ] = MIN_SHARE,
    as_json: options.Json = False,
) -> int:
    """Show the phases of a parallel run, with their times and weights.

    The time of a phase is the mean of its ticks, by the slowest process; the sum of time times
    weight is the time of the run. With --values a tick joins the earliest founded phase whose
    founder is within the tolerance, or founds a phase.
    """
    if tolerance is None:
        tolerance = TOLERANCE_VALUES if values else TOLERANCE_DECADES
    if not 0 <= tolerance < math.inf:
        raise ConfigError(f"must be 0 or more, not {tolerance:g}", "--tolerance")
    if not 0 <= min_share <= 1:
        raise ConfigError(f"must be 0 to 1, not {min_share:g}", "--min-share")
    if values:
        _show_values(path, tolerance, min_share, as_json=as_json)
        return 0
    from voxcast.phases.signature import phases_of
    from voxcast.phases.signature import signature as signature_of

    trace = read_logical_trace(path)
    grouped = phases_of(trace, tolerance, min_share=min_share)
    result = signature_of(trace, grouped)
    if result.dropped_phases:
        print(
            f"voxcast: {counted(result.dropped_phases, 'phase')} with less than "
            f"{100 * min_share:g}% of the time of all processes dropped, "
            f"{format_short_seconds(result.dropped_s)} together",
            file=sys.stderr,
        )
    if as_json:
        unit = trace.events.computation_unit
        content = asdict(result) | {"total_s": result.total_s, "computation_unit": unit}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show_signature(result)
    return 0


def _show_signature(result: Signature) -> None:
    print(
        f"{result.source}: {counted(result.processes, 'process')}, "
        f"{counted(result.ticks, 'tick')}, "
        f"{format_seconds(result.elapsed_s)}; {result.communication_share:.0%} of the time of all "
        "processes in communication"
    )
    rows = [("phase", "operations", "weight", "time", "computation", "communication", "share")]
    rows += [
        (str(n), phase.communication, str(phase.weight), format_short_seconds(phase.time_s),
         format_short_seconds(phase.computation_s), format_short_seconds(phase.communication_s),
         f"{phase.share:.1%}")
        for n, phase in enumerate(result.phases)
    ]  # fmt: skip
    print(text_table(rows, "<<>>>>>", indent="  "))
    beside = []
    if result.dropped_phases:
        dropped = counted(result.dropped_phases, "dropped phase")
        beside.append(f"{dropped} {format_short_seconds(result.dropped_s)}")
    if result.after_s > 0:
        beside.append(f"after the last event {format_short_seconds(result.after_s)}")
    print(
        f"  sum of weight × time{''.join(f', {text}' for text in beside)}: "
        f"{format_seconds(result.total_s)}"
    )


def _show_values(path: Path, tolerance: float, min_share: float, *, as_json: bool) -> None:
    """Print the phases of values, in the order of their founding."""
    from voxcast.phases.signature import grouped

    values = _values(path)
    phases = grouped(values, tolerance, min_share=min_share)
    if phases.dropped_phases:
        print(
            f"voxcast: {phases.dropped_phases} phases with less than "
            f"{100 * min_share:g}% of the ticks dropped, "
            f"{phases.dropped_share:.2%} of the ticks together",
            file=sys.stderr,
        )
    rows = list(zip(phases.founder.tolist(), phases.weight.tolist(), phases.share, strict=True))
    if as_json:
        content = {
            "n_ticks": len(values),
            "tolerance": tolerance,
            "phases": [
                {"founder": founder, "weight": weight, "share": float(share),
                 "ticks": ticks.tolist()}
                for (founder, weight, share), ticks in zip(rows, phases.ticks(), strict=True)
            ],
            "dropped_phases": phases.dropped_phases,
            "dropped_share": phases.dropped_share,
        }  # fmt: skip
        print(json.dumps(content, allow_nan=False))
    else:
        head = ("phase", "founder", "ticks", "share")
        body = [
            (str(n), f"{founder:g}", str(weight), f"{share:.1%}")
            for n, (founder, weight, share) in enumerate(rows)
        ]
        print(text_table([head, *body], "<>>>"))


def _values(path: Path) -> np.ndarray:
    """Read one number a line; whole numbers stay such. Empty lines are ignored."""
    import numpy as np

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise TableError("no such file", path) from None
    except UnicodeDecodeError:
        raise TableError("is not text", path, "it must have one number a line") from None
    values = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values.append(float(line))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            problem = f"{line.strip()[:40]!r} is not a finite number"
            raise TableError(problem, f"{path}, line {number}", "give one a line")
    if not values:
        raise TableError("has no values", path, "it must have one number a line")
    array = np.array(values)
    is_whole = np.all(array == np.rint(array)) and np.abs(array).max() < 2**53
    return array.astype(np.int64) if is_whole else array


def predict(
    trace_path: Trace,
    fraction: Annotated[
        str | None,
        Option(
            "--fraction",
            metavar="SHARE",
            help="The trace has this share of the iterations, e.g. 0.2 or 40/200.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        Option(
            "--check",
            metavar="SHARE",
            help="The trace is of a whole run: predict it from this share, and compare.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Predict the time of a parallel run from a trace of its first part, with an interval.

    A trace is a folder of `voxcast phases record`, an OTF2 archive, or traces of PyTorch's
    profiler.
    """
    if (fraction is None) == (check is None):
        raise ConfigError("give --fraction or --check", "phases predict")

    from voxcast.phases import predict as phases
    from voxcast.phases.signature import tick_times

    measured_s = None
    if check is not None:
        share = _share(check, "--check")
        trace = read_logical_trace(trace_path)
        cycles, prediction = phases.backtest(trace, share)
        measured_s = tick_times(trace).elapsed_s
    else:
        share = _share(str(fraction), "--fraction")
        trace = read_logical_trace(trace_path)
        cycles = phases.cycles_of(trace)
        prediction = phases.predict(trace, cycles, cycles.count / share)
    if as_json:
        content = _json(prediction) | {"measured_s": measured_s, "cycle": asdict(cycles)}
        content |= {"processes": len(trace.events.processes), "source": trace.events.source}
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    print(
        f"{trace.events.source}: {round(prediction.cycles)} of {round(prediction.cycles_of_run)} "
        f"cycles, one for each tick of {cycles.counted}; "
        f"{format_seconds(prediction.elapsed_s)} so far"
    )
    total, cycle = format_seconds(prediction.total_s), format_short_seconds(prediction.cycle_s)
    print(f"  the run takes {total}, {_interval(prediction)}; {cycle} a cycle")
    if prediction.trend:
        print(f"  {prediction.trend}; the prediction does not continue that")
    if measured_s is not None:
        error = prediction.total_s / measured_s - 1
        print(f"  measured {format_seconds(measured_s)}: the prediction is off by {error:+.1%}")
    return 0


def _share(text: str, option: str) -> float:
    """Read a share, written as a number or as a fraction."""
    try:
        share = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"must be a share such as 0.2 or 40/200, not {text!r}", option) from None
    if not 0 < share < 1:
        raise ConfigError(f"must be between 0 and 1, not {share:g}", option)
    return share


def _json(prediction: TimePrediction | Transfer) -> dict[str, Any]:
    """Return the fields of a prediction; None for a bound that is unknown."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in asdict(prediction).items()
    }


def _interval(prediction: TimePrediction | Transfer) -> str:
    if math.isinf(prediction.upper_s):
        return "without an interval: too few cycles, or they get longer or shorter"
    low, high = format_seconds(prediction.lower_s), format_seconds(prediction.upper_s)
    return f"{100 * prediction.level:.3g}% interval {low} to {high}"


def transfer(
    base_path: Trace,
    short: Annotated[
        Path, Option("--run", metavar="TRACE", help="A short run on the other machine.")
    ],
    as_json: options.Json = False,
) -> int:
    """Predict the time of a whole run on another machine, from a short run there.

    The short run is of the same program with fewer iterations or epochs, and all else the same.
    Each phase takes the time that it took there.
    """
    from voxcast.phases.predict import transfer as transferred

    base, run = read_logical_trace(base_path), read_logical_trace(short)
    result = transferred(base, run)
    if as_json:
        content = _json(result)
        content |= {"processes": len(base.events.processes), "source": run.events.source}
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    print(
        f"{base.events.source} took {format_seconds(result.base_elapsed_s)}; on the machine of "
        f"{run.events.source} it takes {format_seconds(result.total_s)}, {_interval(result)}"
    )
    if abs(result.base_by_same_ticks - 1) > NO_SAMPLE:
        print(
            f"  the iterations of {run.events.source} are no sample of the base: by its own same "
            f"ticks the base takes {result.base_by_same_ticks:.0%} of what it took"
        )
    rows = [("operations", "weight", "time", "weight there", "time there", "ratio")]
    for phase in result.phases:
        ratio = f"{phase.time_s / phase.base_s:.2f}" if phase.base_s else ""
        base_cells = str(phase.weight), format_short_seconds(phase.base_s)
        run_cells = str(phase.passes), format_short_seconds(phase.time_s)
        rows.append((phase.communication, *base_cells, *run_cells, ratio))
    print(text_table(rows, "<>>>>>", indent="  "))
    return 0


ACTIONS = {
    "chain": chain,
    "record": record,
    "show": show,
    "signature": signature,
    "predict": predict,
    "transfer": transfer,
}
