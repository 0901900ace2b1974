"""Communication traces of parallel programs: recorded, read, and shown.

``voxcast phases record`` and ``voxcast phases show``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.cli import options
from voxcast.errors import ConfigError, RunError
from voxcast.quantities import counted, format_bytes, format_seconds, format_short_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.phases.events import EventTable
    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.overview import Timeline, TraceOverview

Trace = Annotated[Path, Argument(metavar="TRACE", show_default=False)]

FAILED = 1
INTERPRETER = re.compile(r"python[0-9.]*")
WITH_VALUE = ("-W", "-X")
THEN = "voxcast phases record --out DIR -- mpirun -np 4 python program.py"
OTHERS = "record other programs with EZTrace or Score-P, torchrun's with the profiler of PyTorch"
MAX_LANES = 32
MAX_LISTED = 8
MIN_BINS = 20
OTHER, OTHER_COMMUNICATION, AFTER, NOTHING = "+", "-", ".", " "


def read_logical_trace(path: Path) -> LogicalTrace:
    """Read a trace and order it; its gaps are named on stderr.

    Raises
    ------
    RunError
        If it cannot be read, or has no events.
    """
    from voxcast.phases.events import read_trace
    from voxcast.phases.logical import logical_trace

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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError("is there already", out, "name a new folder")
    try:
        # The program's output is not a result of this command: it goes where messages go.
        words = recorded(command, out.absolute())
        code = subprocess.run(words, stdout=sys.stderr, check=False).returncode
    except FileNotFoundError:
        raise RunError("no such program", command[0], THEN) from None

    from voxcast.phases.events import Kind, read_trace

    table = read_trace(out)
    _show_recorded(table, as_json=as_json)
    if (table["kind"] == Kind.LOCAL).all():
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


def _show_recorded(table: EventTable, *, as_json: bool) -> None:
    import numpy as np

    from voxcast.phases.events import NS_PER_S, Kind

    span_s = (table.end_ns - table.start_ns) / NS_PER_S
    total_s, longest_s = float(span_s.sum()), float(span_s.max(initial=0.0))
    in_events_s = float((table["end_ns"] - table["start_ns"]).sum()) / NS_PER_S
    share = in_events_s / total_s if total_s > 0 else 0.0
    kinds = np.bincount(table["kind"], minlength=len(Kind))
    counts = {f"{kind.name.lower()}_events": int(kinds[kind]) for kind in Kind}
    if as_json:
        content = {
            "trace": table.source, "processes": len(table.processes), "events": len(table),
            **counts, "longest_s": longest_s, "share_in_events": share,
            "computation_unit": table.computation_unit, "missing": list(table.missing),
        }  # fmt: skip
        print(json.dumps(content, indent=2))
        return
    listed = ", ".join(f"{n} {name.removesuffix('_events')}" for name, n in counts.items() if n)
    print(
        f"{table.source}: {counted(len(table.processes), 'process')}, "
        f"{counted(len(table), 'event')}" + f" ({listed})" * bool(len(table))
    )
    print(f"  {format_seconds(longest_s)} long; {share:.1%} of the time of all processes in these "
          "events")  # fmt: skip
    for text in table.missing:
        print(f"  missing: {text}")


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

    from voxcast.phases.overview import trace_overview
    from voxcast.phases.signature import phases_of

    trace = read_logical_trace(path)
    grouped = phases_of(trace)
    if as_json:
        overview = trace_overview(trace, grouped, bins=1, max_lanes=1)
        print(json.dumps(overview.as_json(), indent=2, allow_nan=False))
    else:
        names = trace.events.processes
        width = shutil.get_terminal_size().columns - max(map(len, names), default=0) - 5
        _show(trace_overview(trace, grouped, bins=max(width, MIN_BINS), max_lanes=MAX_LANES))
    if html is not None:
        from voxcast.files import write_text
        from voxcast.report.phase_page import overview_for_page, phase_page
        from voxcast.runs.series import RECORD_FILE

        parents = path.resolve().parents[:2]
        run = next((folder for folder in parents if (folder / RECORD_FILE).is_file()), None)
        write_text(html, phase_page(overview_for_page(trace, grouped), run))
        print(f"voxcast: wrote {html}", file=sys.stderr)
    return 0


def _show(overview: TraceOverview) -> None:
    from voxcast.phases.overview import MARKS

    run = overview.signature
    print(
        f"{run.source}: {counted(run.processes, 'process')}, "
        f"{counted(run.ticks, 'tick')}, {format_short_seconds(run.elapsed_s)}; computation "
        f"{1 - run.communication_share:.0%}, communication {run.communication_share:.0%} of the "
        "time of all processes"
    )
    rows = [("", "phase", "operations", "weight", "time", "share", "communication")]
    for place, n in enumerate(overview.order):
        phase = run.phases[n]
        mark = MARKS[place] if place < overview.marked else OTHER
        rows.append((
            mark, str(n), phase.communication, str(phase.weight),
            format_short_seconds(phase.time_s),
            f"{phase.share:.1%}", f"{phase.communication_share:.0%}",
        ))  # fmt: skip
    print(text_table(rows, "<><>>>>", indent="  "))
    if run.dropped_phases:
        print(
            f"  {OTHER} {counted(run.dropped_phases, 'small phase')} dropped, "
            f"{format_short_seconds(run.dropped_s)} together"
        )
    print(
        "Timeline: a capital is mostly computation, a small letter mostly communication; "
        f"{OTHER} and {OTHER_COMMUNICATION} other phases, {AFTER} after the last event"
    )
    print(_lanes(overview.timeline, overview.marked))
    _show_traffic(overview)


def _lanes(timeline: Timeline, marked: int) -> str:
    from voxcast.phases.overview import MARKS

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


def _show_traffic(overview: TraceOverview) -> None:
    import numpy as np

    traffic, names = overview.traffic, overview.processes.lanes
    pairs = np.argwhere(traffic.messages)
    largest = pairs[np.argsort(-traffic.size_bytes[tuple(pairs.T)], kind="stable")]
    messages = [
        (names[p], names[q], str(traffic.messages[p, q]),
         format_bytes(int(traffic.size_bytes[p, q])))
        for p, q in largest.tolist()
    ]  # fmt: skip
    if messages:
        print(f"Messages: {int(traffic.messages.sum())} between {len(pairs)} pairs of processes")
        _show_largest(("from", "to", "messages", "size"), messages, "<<>>")
    collectives = [
        (c.operation, str(c.processes or "unknown"), str(c.calls), format_bytes(c.size_bytes),
         format_short_seconds(c.time_s))
        for c in traffic.collectives
    ]  # fmt: skip
    if collectives:
        heads = ("collective", "processes", "calls", "size", "time of all processes")
        _show_largest(heads, collectives, "<>>>>")


def _show_largest(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], alignment: str) -> None:
    print(text_table([heads, *rows[:MAX_LISTED]], alignment, indent="  "))
    if len(rows) > MAX_LISTED:
        print(f"  and {len(rows) - MAX_LISTED} more, all in --json")
