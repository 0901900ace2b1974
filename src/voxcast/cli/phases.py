"""``voxcast phases``: time and memory by phase, of runs on record and of parallel programs."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast.cli import options
from voxcast.errors import ConfigError, RunError, TableError
from voxcast.files import is_empty, write_text
from voxcast.phases.events import NS_PER_S, Kind, holds_trace, read_trace
from voxcast.phases.logged import PhaseMatrix, phase_matrix, used_byte_s
from voxcast.phases.logical import LogicalTrace, logical_trace
from voxcast.phases.overview import MARKS, Timeline, TraceOverview, trace_overview
from voxcast.phases.signature import (
    MIN_SHARE,
    TOLERANCE_DECADES,
    Signature,
    grouped,
    phases_of,
    tick_times,
)
from voxcast.phases.signature import signature as signature_of
from voxcast.quantities import counted, format_bytes, format_seconds, format_short_seconds
from voxcast.runs.series import RECORD_FILE
from voxcast.runs.store import open_history
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pandas as pd

    from voxcast.allocation.requests.chain import Chain, MemoryHeld
    from voxcast.phases.predict import TimePrediction, Transfer

Trace = Annotated[Path, Argument(metavar="TRACE", show_default=False)]

FAILED = 1
PRINTED_WALLTIMES = 4
TOLERANCE_VALUES = 1.0
NO_SAMPLE = 0.1  # what the same ticks of the base may miss of its time before a warning
INTERPRETER = re.compile(r"python[0-9.]*")
WITH_VALUE = ("-W", "-X")
THEN = "voxcast phases record --out DIR -- mpirun -np 4 python program.py"
OTHERS = "record other programs with EZTrace or Score-P, torchrun's with the profiler of PyTorch"
MAX_LANES = 32
MAX_LISTED = 8
MIN_BINS = 20
OTHER, OTHER_COMMUNICATION, AFTER, NOTHING = "+", "-", ".", " "


def chain(
    histories: options.Histories,
    app_name: options.App = None,
    prices: options.Cost = options.PLAIN_COST,
    checkpoint: options.Checkpoint = None,
    as_json: options.Json = False,
) -> int:
    """Show memory held by run and by phase, and the requests of a chain of jobs, one a phase."""
    cost = options.cost_model(prices, checkpoint)
    from voxcast.allocation.requests import chain as chains
    from voxcast.runs.table import only_app

    if holds_trace(histories[0]):
        then = f"see it with `voxcast phases show {histories[0]}`"
        raise TableError("is a trace, not a history of runs", histories[0], then)
    history = open_history(histories)
    runs, traced = history.runs, {*history.phases["cell_key"], *history.traces["cell_key"]}
    with_phases = runs[runs["cell_key"].isin(traced)]
    if with_phases.empty:
        then = "measure runs of the application, or import runs with phases"
        raise TableError("has no phases, nor traces to read them from", histories[0], then)
    app = only_app(set(with_phases["app"]), app_name, histories[0])
    of_app = runs[runs["app"] == app]
    phases, traces = (
        table[table["cell_key"].isin(of_app["cell_key"])]
        for table in (history.phases, history.traces)
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
    return options.show(content, _chain_lines(app, matrix, held, jobs), as_json=as_json)


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


def _chain_lines(app: str, matrix: PhaseMatrix, held: MemoryHeld, jobs: Chain) -> Iterator[str]:
    used = "" if held.used is None else f", used {held.used:.3g}"
    yield f"{app}: {len(matrix.cell_keys)} runs; memory held by one run on average, in GB h"
    yield (
        f"  requested at the run's peak {held.at_run_peak:.3g}, at the peak of each phase "
        f"{held.at_phase_peaks:.3g}{used}"
    )
    rows = [("job", "memory", "expected GB h", "requested walltimes")]
    for job in (*jobs.jobs, jobs.single_job):
        walltimes = [format_seconds(s) for s in job.walltimes.lengths]
        first = walltimes[:PRINTED_WALLTIMES] + ["…"] * (len(walltimes) > PRINTED_WALLTIMES)
        figures = format_bytes(job.memory_bytes), f"{job.expected_gb_h:.3g}"
        rows.append((job.phase, *figures, ", ".join(first)))
    yield text_table(rows, "<>><", indent="  ")
    if matrix.read_at_ends:
        listed = ", ".join(f"{phase} {n}" for phase, n in matrix.read_at_ends.items())
        yield f"  memory read at the ends of a phase, as no sample lies in it; runs: {listed}"
    yield (
        f"  a chain of jobs, one for each phase, is expected to hold {jobs.expected_gb_h:.3g} "
        f"GB h; a single job holds {jobs.gain:.2f} times as much"
    )


def read_logical_trace(path: Path) -> LogicalTrace:
    """Read a trace and order it; its gaps are named on stderr.

    Raises
    ------
    RunError
        If it cannot be read, or has no events.
    """
    trace = logical_trace(read_trace(path))
    if not len(trace):
        raise RunError("has no events", path, "it was not traced; record it again")
    for lack in trace.missing:
        print(f"voxcast: {path}: missing: {lack}", file=sys.stderr)
    return trace


def record(
    command: Annotated[
        list[str],
        Argument(metavar="-- COMMAND...", help="E.g. mpirun -np 4 python program.py."),
    ],
    out: Annotated[Path, Option("--out", metavar="DIR", help="New folder of the trace.")],
    as_json: options.Json = False,
) -> int:
    """Run a command, and record the communication of its Python processes."""
    if out.exists() and not is_empty(out):
        raise RunError("is there already", out, "name a new folder")
    try:
        # The program's output is not a result of this command: it goes where messages go.
        words = recorded(command, out.absolute())
        code = subprocess.run(words, stdout=sys.stderr, check=False).returncode
    except FileNotFoundError:
        raise RunError("no such program", command[0], THEN) from None

    table = read_trace(out)
    longest_s = float((table.end_ns - table.start_ns).max(initial=0)) / NS_PER_S
    kinds = {kind.name.lower(): int((table["kind"] == kind).sum()) for kind in Kind}
    content = {
        "trace": table.source, "processes": len(table.processes), "events": len(table),
        **{f"{name}_events": count for name, count in kinds.items()}, "longest_s": longest_s,
        "computation_unit": table.computation_unit, "missing": list(table.missing),
    }  # fmt: skip
    listed = ", ".join(f"{count} {name}" for name, count in kinds.items() if count)
    lines = [
        f"{table.source}: {counted(len(table.processes), 'process')}, "
        f"{counted(len(table), 'event')} ({listed or 'none'}), {format_seconds(longest_s)}",
        *(f"  missing: {text}" for text in table.missing),
    ]
    options.show(content, lines, as_json=as_json)
    if kinds["local"] == len(table):
        hint = f"run programs with mpi4py under mpirun or srun; {OTHERS}"
        print(f"voxcast: {out}: no communication was recorded; {hint}", file=sys.stderr)
    if code:
        print(f"voxcast: the command ended with code {code}", file=sys.stderr)
    return FAILED if code else 0


def recorded(command: list[str], folder: Path) -> list[str]:
    """Return a command with the recorder before the program of each Python interpreter."""
    from voxcast.phases import recorder as mpi_recorder

    recorder = [mpi_recorder.__file__, "--out", str(folder)]
    result: list[str] = []
    words = iter(command)
    seen = False
    for word in words:
        result.append(word)
        if not INTERPRETER.fullmatch(Path(word).name):
            continue
        program = next(words, None)
        while program is not None and program.startswith("-") and program not in ("-m", "-c"):
            result.append(program)
            if program in WITH_VALUE:
                result.append(next(words, ""))
            program = next(words, None)
        if program is None or program == "-c":
            raise ConfigError("runs no file or module", word, THEN)
        result += [*recorder, program]
        seen = True
        for rest in words:  # up to the next program of mpirun
            result.append(rest)
            if rest == ":":
                break
    if not seen:
        raise ConfigError("starts no python", command[0], f"{THEN}; {OTHERS}")
    return result


def show(
    path: Trace,
    html: Annotated[
        Path | None, Option("--html", metavar="FILE", help="Write a page with all of it.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Show the phases of a parallel run, a line of time for each process, and communication.

    The page also has the memory of the run, if the trace is in the folder of a recorded run.
    """
    if html is not None and html.is_dir():
        raise ConfigError("is a folder", f"--html {html}", "name a file")

    trace = read_logical_trace(path)
    grouped = phases_of(trace)
    width = shutil.get_terminal_size().columns - max(map(len, trace.events.processes)) - 5
    bins = 1 if as_json else max(width, MIN_BINS)
    overview = trace_overview(trace, grouped, bins=bins, max_lanes=MAX_LANES)
    lines = (*_signature_lines(overview.signature, overview), *_overview_lines(overview))
    options.show(overview.as_json(), lines, as_json=as_json)
    if html is not None:
        from voxcast.report.phase_page import overview_for_page, phase_page

        parents = path.resolve().parents[:2]
        run = next((folder for folder in parents if (folder / RECORD_FILE).is_file()), None)
        write_text(html, phase_page(overview_for_page(trace, grouped), run))
        print(f"voxcast: wrote {html}", file=sys.stderr)
    return 0


def _overview_lines(overview: TraceOverview) -> Iterator[str]:
    import numpy as np

    yield (
        "Timeline: a capital is mostly computation, a small letter mostly communication; "
        f"{OTHER} and {OTHER_COMMUNICATION} other phases, {AFTER} after the last event"
    )
    yield _lanes(overview.timeline, overview.marked)
    traffic, names = overview.traffic, overview.processes.lanes
    pairs = np.argwhere(traffic.messages)
    largest = pairs[np.argsort(-traffic.size_bytes[tuple(pairs.T)], kind="stable")]
    messages = [
        (names[p], names[q], str(traffic.messages[p, q]),
         format_bytes(int(traffic.size_bytes[p, q])))
        for p, q in largest.tolist()
    ]  # fmt: skip
    if messages:
        yield f"Messages: {int(traffic.messages.sum())} between {len(pairs)} pairs of processes"
        yield from _largest(("from", "to", "messages", "size"), messages, "<<>>")
    collectives = [
        (c.operation, str(c.processes or "unknown"), str(c.calls), format_bytes(c.size_bytes),
         format_short_seconds(c.time_s))
        for c in traffic.collectives
    ]  # fmt: skip
    if collectives:
        heads = ("collective", "processes", "calls", "size", "time of all processes")
        yield from _largest(heads, collectives, "<>>>>")


def _largest(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], alignment: str
) -> Iterator[str]:
    yield text_table([heads, *rows[:MAX_LISTED]], alignment, indent="  ")
    if len(rows) > MAX_LISTED:
        yield f"  and {len(rows) - MAX_LISTED} more, all in --json"


def _lanes(timeline: Timeline, marked: int) -> str:

    # By category and whether communication is most of the bin; -1 is the last row.
    symbols = [(mark, mark.lower()) for mark in MARKS[:marked]]
    symbols += [(OTHER, OTHER_COMMUNICATION), (AFTER, AFTER), (NOTHING, NOTHING)]
    is_communication = timeline.communication_share > 0.5
    width = max(map(len, timeline.lanes), default=0)
    lines = [
        f"  {name:{width}} |{''.join(symbols[c][m] for c, m in zip(row, most, strict=True))}|"
        for name, row, most in zip(
            timeline.lanes, timeline.category.tolist(), is_communication.tolist(), strict=True
        )
    ]
    return "\n".join(lines)


def signature(
    path: Annotated[
        Path,
        Argument(
            metavar="TRACE|VALUES.txt",
            show_default=False,
            help="A trace; or a text file with one value a tick, a line each (SIMO).",
        ),
    ],
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
    weight is the time of the run. A tick of values joins the earliest founded phase whose founder
    is within the tolerance, or founds a phase.
    """
    values = path.suffix == ".txt"
    if tolerance is None:
        tolerance = TOLERANCE_VALUES if values else TOLERANCE_DECADES
    options.refuse_if(
        (not 0 <= tolerance < math.inf, f"must be 0 or more, not {tolerance:g}", "--tolerance",
         None),
        (not 0 <= min_share <= 1, f"must be 0 to 1, not {min_share:g}", "--min-share", None),
    )  # fmt: skip
    if values:
        return _show_values(path, tolerance, min_share, as_json=as_json)

    trace = read_logical_trace(path)
    grouped = phases_of(trace, tolerance, min_share=min_share)
    result = signature_of(trace, grouped)
    unit = trace.events.computation_unit
    content = asdict(result) | {"total_s": result.total_s, "computation_unit": unit}
    beside = f", after the last event {format_short_seconds(result.after_s)}"
    total = f"{beside * (result.after_s > 0)}: {format_seconds(result.total_s)}"
    lines = (*_signature_lines(result), f"  sum of weight × time, and of dropped phases{total}")
    return options.show(content, lines, as_json=as_json)


def _signature_lines(run: Signature, overview: TraceOverview | None = None) -> Iterator[str]:
    """Yield the phases of a run: in the order of founding, or as marked in an overview."""
    yield (
        f"{run.source}: {counted(run.processes, 'process')}, {counted(run.ticks, 'tick')}, "
        f"{format_short_seconds(run.elapsed_s)}; computation {1 - run.communication_share:.0%}, "
        f"communication {run.communication_share:.0%} of the time of all processes"
    )
    order = range(len(run.phases)) if overview is None else overview.order
    marked = "" if overview is None else MARKS[: overview.marked]
    rows = [("", "phase", "operations", "weight", "time", "share", "communication")]
    for place, n in enumerate(order):
        phase = run.phases[n]
        mark = "" if overview is None else marked[place : place + 1] or OTHER
        rows.append((
            mark, str(n), phase.communication, str(phase.weight),
            format_short_seconds(phase.time_s), f"{phase.share:.1%}",
            f"{phase.communication_share:.0%}",
        ))  # fmt: skip
    yield text_table(rows, "<><>>>>", indent="  ")
    if run.dropped_phases:
        small = counted(run.dropped_phases, "small phase")
        yield f"  {OTHER} {small} dropped, {format_short_seconds(run.dropped_s)} together"


def _show_values(path: Path, tolerance: float, min_share: float, *, as_json: bool) -> int:
    """Show the phases of values, in the order of their founding."""
    values = _values(path)
    phases = grouped(values, tolerance, min_share=min_share)
    columns = {
        "founder": phases.founder.tolist(),
        "weight": phases.weight.tolist(),
        "share": phases.share.tolist(),
        "ticks": [t.tolist() for t in phases.ticks()],
    }
    listed = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    content = {
        "n_ticks": len(values), "tolerance": tolerance, "phases": listed,
        "dropped_phases": phases.dropped_phases, "dropped_share": phases.dropped_share,
    }  # fmt: skip
    rows = [("phase", "founder", "ticks", "share")]
    rows += [
        (str(n), f"{phase['founder']:g}", str(phase["weight"]), f"{phase['share']:.1%}")
        for n, phase in enumerate(listed)
    ]
    lines = [text_table(rows, "<>>>")]
    if phases.dropped_phases:
        lines.append(
            f"{counted(phases.dropped_phases, 'phase')} with less than {100 * min_share:g}% of "
            f"the ticks dropped, {phases.dropped_share:.2%} of the ticks together"
        )
    return options.show(content, lines, as_json=as_json)


def _values(path: Path) -> np.ndarray:
    """Read one number a line; whole numbers stay such."""
    import numpy as np

    try:
        values = np.array(path.read_text(encoding="utf-8").split(), dtype=float)
    except FileNotFoundError:
        raise TableError("no such file", path) from None
    except ValueError as error:
        raise TableError(f"must have one number a line ({error})", path) from None
    if not values.size or not np.isfinite(values).all():
        raise TableError("must have one finite number a line", path)
    is_whole = np.all(values == np.rint(values)) and np.abs(values).max() < 2**53
    return values.astype(np.int64) if is_whole else values


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

    share = _share(check, "--check") if check is not None else _share(fraction, "--fraction")
    trace, measured_s = read_logical_trace(trace_path), None
    if check is not None:
        cycles, prediction = phases.backtest(trace, share)
        measured_s = tick_times(trace).elapsed_s
    else:
        cycles = phases.cycles_of(trace)
        prediction = phases.predict(trace, cycles, cycles.count / share)
    content = _json(prediction) | {
        "measured_s": measured_s, "cycle": asdict(cycles),
        "processes": len(trace.events.processes), "source": trace.events.source,
    }  # fmt: skip
    total, cycle = format_seconds(prediction.total_s), format_short_seconds(prediction.cycle_s)
    lines = [
        f"{trace.events.source}: {round(prediction.cycles)} of {round(prediction.cycles_of_run)} "
        f"cycles, one for each tick of {cycles.counted}; "
        f"{format_seconds(prediction.elapsed_s)} so far",
        f"  the run takes {total}, {_interval(prediction)}; {cycle} a cycle",
    ]
    if prediction.trend:
        lines.append(f"  {prediction.trend}; the prediction does not continue that")
    if measured_s is not None:
        error = f"{prediction.total_s / measured_s - 1:+.1%}"
        lines.append(f"  measured {format_seconds(measured_s)}: the prediction is off by {error}")
    return options.show(content, lines, as_json=as_json)


def _share(text: str | None, option: str) -> float:
    """Read a share, written as a number or as a fraction."""
    try:
        share = float(Fraction(text or ""))
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
        Path,
        Argument(metavar="SHORT", show_default=False, help="A short run on the other machine."),
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
    content = _json(result) | {
        "processes": len(base.events.processes), "source": run.events.source,
    }  # fmt: skip
    lines = [
        f"{base.events.source} took {format_seconds(result.base_elapsed_s)}; on the machine of "
        f"{run.events.source} it takes {format_seconds(result.total_s)}, {_interval(result)}"
    ]
    if abs(result.base_by_same_ticks - 1) > NO_SAMPLE:
        lines.append(
            f"  the iterations of {run.events.source} are no sample of the base: by its own same "
            f"ticks the base takes {result.base_by_same_ticks:.0%} of what it took"
        )
    rows = [("operations", "weight", "time", "weight there", "time there", "ratio")]
    rows += [
        (phase.communication, str(phase.weight), format_short_seconds(phase.base_s),
         str(phase.passes), format_short_seconds(phase.time_s),
         f"{phase.time_s / phase.base_s:.2f}" if phase.base_s else "")
        for phase in result.phases
    ]  # fmt: skip
    lines.append(text_table(rows, "<>>>>>", indent="  "))
    return options.show(content, lines, as_json=as_json)


ACTIONS = {
    "chain": chain,
    "record": record,
    "show": show,
    "signature": signature,
    "predict": predict,
    "transfer": transfer,
}
