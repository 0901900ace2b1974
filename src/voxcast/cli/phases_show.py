"""``voxcast phases show``: the phases of a parallel run, to look at."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.cli.phases_predict import MinShare, Tolerance, Trace, grouping, read_logical_trace
from voxcast.errors import ConfigError, TableError
from voxcast.quantities import counted, format_bytes, format_short_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from voxcast.phases.overview import Timeline, TraceOverview

MAX_LANES = 32
MAX_LISTED = 8
MIN_BINS = 20
OTHER, OTHER_COMMUNICATION, AFTER, NOTHING = "+", "-", ".", " "


def show(
    path: Trace,
    tolerance: Tolerance = None,
    min_share: MinShare = None,
    html: Annotated[
        Path | None, Option("--html", metavar="FILE", help="Write a page with all of it.")
    ] = None,
    record: Annotated[
        Path | None,
        Option("--run", metavar="DIR", help="Record of the run, whose memory is on the page."),
    ] = None,
    track: Annotated[
        bool, Option("--track", help="Log phases, metrics and the page to MLflow.")
    ] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show the phases of a parallel run, a line of time for each process, and communication."""
    if html is not None and html.is_dir():
        raise ConfigError("is a folder", f"--html {html}", "name a file")
    run = _run_folder(path, record)

    from voxcast.phases.overview import trace_overview
    from voxcast.phases.signature import phases_of

    decades, least = grouping(tolerance, min_share)
    trace = read_logical_trace(path)
    grouped = phases_of(trace, decades, min_share=least)
    if as_json:
        overview = trace_overview(trace, grouped, bins=1, max_lanes=1)
        print(json.dumps(overview.as_json(), indent=2, allow_nan=False))
    else:
        names = trace.events.processes
        width = shutil.get_terminal_size().columns - max(map(len, names), default=0) - 5
        bins = max(width, MIN_BINS)
        _show(trace_overview(trace, grouped, bins=bins, max_lanes=MAX_LANES))
    if html is None and not track:
        return 0

    from voxcast.files import write_text
    from voxcast.report.phase_page import overview_for_page, phase_page

    overview = overview_for_page(trace, grouped)
    page = phase_page(overview, run)
    if html is not None:
        write_text(html, page)
        print(f"voxcast: wrote {html}", file=sys.stderr)
    if track:
        _track(project, path, run, overview, page)
    return 0


def _run_folder(trace: Path, stated: Path | None) -> Path | None:
    """Return the folder with the record of the run, if there is one."""
    from voxcast.runs.series import RECORD_FILE

    if stated is not None:
        if not (stated / RECORD_FILE).is_file():
            raise TableError(f"has no {RECORD_FILE}", stated, "give the folder of a recorded run")
        return stated
    return next((f for f in trace.resolve().parents[:2] if (f / RECORD_FILE).is_file()), None)


def _track(
    project: Path | None, trace: Path, run: Path | None, overview: TraceOverview, page: str
) -> None:
    from voxcast.runs.series import read_record
    from voxcast.tracking.runs import connect, log_phases

    folder = projects.require(project)
    name, tags = trace.resolve().name, {}
    if run is not None:
        app = read_record(run).run.app
        name, tags = app, {"app": app, "cell_key": run.name}
    session = connect(folder)
    run_id = log_phases(session, name, overview.metrics, overview.as_json(), page, tags)
    print(f"voxcast: logged to MLflow as run {run_id}", file=sys.stderr)


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
    if len(pairs):
        rows = [("from", "to", "messages", "size")]
        rows += [
            (names[p], names[q], str(traffic.messages[p, q]),
             format_bytes(int(traffic.size_bytes[p, q])))
            for p, q in largest[:MAX_LISTED].tolist()
        ]  # fmt: skip
        print(f"Messages: {int(traffic.messages.sum())} between {len(pairs)} pairs of processes")
        print(text_table(rows, "<<>>", indent="  "))
        if len(pairs) > MAX_LISTED:
            print(f"  and {len(pairs) - MAX_LISTED} more pairs, all in --json")
    if traffic.collectives:
        table = [("collective", "processes", "calls", "size", "time of all processes")]
        table += [
            (c.operation, str(c.processes or "unknown"), str(c.calls), format_bytes(c.size_bytes),
             format_short_seconds(c.time_s))
            for c in traffic.collectives[:MAX_LISTED]
        ]  # fmt: skip
        print(text_table(table, "<>>>>", indent="  "))
        if len(traffic.collectives) > MAX_LISTED:
            print(f"  and {len(traffic.collectives) - MAX_LISTED} more, all in --json")
