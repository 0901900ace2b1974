"""Single runs: the page of a trace with phases and communication, and memory over time."""

from __future__ import annotations

import logging
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import VoxcastError
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.overview import MARKS, trace_overview
from voxcast.phases.segments import segmented_runs
from voxcast.phases.signature import phases_of
from voxcast.quantities import counted, format_bytes, format_seconds, format_short_seconds
from voxcast.report import plot
from voxcast.report.canvas import SERIES, drawing
from voxcast.report.sections import Part, Section, Table, page
from voxcast.report.wording import heading, percent
from voxcast.runs import series
from voxcast.runs.table import frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.overview import Timeline, TraceOverview, Traffic
    from voxcast.phases.signature import Grouping
    from voxcast.report.sections import Drawing

MAX_LANES = 64
MAX_BINS = 600
MAX_STRETCHES = 8000  # of a timeline, so that a page stays small
MAX_CELLS = 16  # rows of a matrix with numbers; of more processes neighbours are summed
MAX_LISTED = 20

logger = logging.getLogger(__name__)


def overview_for_page(trace: LogicalTrace, grouping: Grouping) -> TraceOverview:
    """Return the overview that the page of a trace is made of."""
    lanes = min(len(trace.events.processes), MAX_LANES)
    bins = min(MAX_BINS, MAX_STRETCHES // max(lanes, 1))
    return trace_overview(trace, grouping, bins=bins, max_lanes=MAX_LANES, max_marked=len(SERIES))


def phase_page(overview: TraceOverview, run: Path | None = None) -> str:
    """Return the page as HTML; it asks nothing of other hosts and runs no script.

    Parameters
    ----------
    overview : TraceOverview
        Of `overview_for_page`.
    run : Path, optional
        Folder of the recorded run, whose memory is drawn.
    """
    signature = overview.signature
    title = f"phases of {Path(signature.source).name or 'a trace'}"
    missing = [f"The trace lacks {lack}" for lack in signature.missing]
    sections = trace_sections(overview)
    memory = None if run is None else memory_drawing(run)
    if memory is not None:
        sections.append(Section("Memory", "Memory of the run by numbered phase.", [memory]))
    head = Part(title, [], trace_summary(overview), cautions=missing)
    return page(head, [Part("Phases", sections)], kind="phases")


def trace_summary(overview: TraceOverview) -> str:
    """Write processes, ticks, time, and the share of communication."""
    run = overview.signature
    return (
        f"{counted(run.processes, 'process')}, {counted(run.ticks, 'tick')}, "
        f"{format_seconds(run.elapsed_s)}; communication "
        f"{percent(100 * run.communication_share)} of the time of all processes"
    )


def trace_sections(overview: TraceOverview) -> list[Section]:
    """Return the sections of a trace: phases, timelines and communication."""
    run, marks = overview.signature, MARKS[: overview.marked]
    rows = []
    for place, n in enumerate(overview.order):
        phase = run.phases[n]
        mark = marks[place] if place < overview.marked else "+"
        rows.append({
            "phase": f"{mark} {phase.communication}", "share": percent(100 * phase.share),
            "time": format_short_seconds(phase.time_s), "weight": str(phase.weight),
            "communication": percent(100 * phase.communication_share), "number": str(n),
        })  # fmt: skip
    caption = (
        "Phases, largest share of the run first. Time: of one tick, by the slowest process. "
        "Weight: ticks. Communication: its share of the phase, waiting included. Number: as in "
        "voxcast phases signature"
    )
    if run.dropped_phases:
        dropped = counted(run.dropped_phases, "small phase")
        caption += f". {dropped} dropped, {format_short_seconds(run.dropped_s)} together"
    return [
        Section(
            "Timeline",
            "Phases of each process by letter and colour, grey for those without a letter; below "
            "them in black the share of communication, waiting included.",
            [_timeline(overview.timeline, marks)],
            [Table(caption, rows)],
        ),
        Section(
            "Communication",
            "Messages between processes, and collectives."
            if overview.traffic.messages.any()
            else "No messages between two processes.",
            tables=_communication(overview.traffic, overview.processes.lanes),
        ),
    ]


def _timeline(part: Timeline, marks: str) -> Drawing:
    by_lane = part.time_s.sum(axis=(2, 3))
    shares = by_lane / np.maximum(by_lane.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    length = format_short_seconds(part.end_s)
    texts = [
        f"{lane}: "
        + ", ".join(f"{m} {percent(100 * s)}" for m, s in zip(marks, of_lane, strict=False) if s)
        for lane, of_lane in zip(part.lanes, shares, strict=True)
    ]
    size = (8.4, 0.9 + 0.32 * len(part.lanes))
    alt = f"Phases over the run, {length}. {'; '.join(texts)}"
    caption = f"The run, {length}."
    return drawing(partial(plot.timeline, part, marks), alt, caption, size_in=size)


def _communication(traffic: Traffic, names: tuple[str, ...]) -> list[Table]:
    tables = []
    if traffic.messages.any():
        messages, size_bytes = traffic.summed(MAX_CELLS)
        n, n_rows = len(names), len(messages)
        starts = (-(-np.arange(n_rows + 1) * n // n_rows)).tolist()
        heads = [
            names[a] if b - a == 1 else f"{names[a]} to {names[b - 1]}"
            for a, b in pairwise(starts)
        ]
        rows = [
            {"from \\ to": name}
            | {
                to: f"{format_bytes(int(sent))} · {count}" if count else ""
                for to, sent, count in zip(heads, *row, strict=True)
            }
            for name, *row in zip(heads, size_bytes, messages, strict=True)
        ]
        caption = (
            "Messages from the process of the row to that of the column, size · number; together "
            f"{format_bytes(int(traffic.size_bytes.sum()))} · {int(traffic.messages.sum())}"
        )
        tables.append(Table(caption, rows))
    if traffic.collectives:
        rows = [
            {
                "operation": c.operation, "processes": str(c.processes or "unknown"),
                "calls": str(c.calls), "size": format_bytes(c.size_bytes),
                "time of all processes": format_short_seconds(c.time_s),
            }
            for c in traffic.collectives[:MAX_LISTED]
        ]  # fmt: skip
        caption = "Collectives, at most 20; size and time of all processes, waiting included"
        tables.append(Table(caption, rows))
    return tables


def memory_drawing(folder: Path) -> Drawing | None:
    """Draw the memory of a recorded run over time; None if it has fewer than two samples.

    Raises
    ------
    TableError
        If the record is missing or broken.
    """
    run = series.read_record(folder).run
    samples, phases = series.traces_of([folder]), series.phases_of([folder])
    if len(samples) < 2:
        return None
    origin = "logged by the application" if len(phases) else "read from the memory"
    if not len(phases) and run.outcome == "completed":
        phases = segmented_runs(frame_of([vars(run)]), samples).phases
    durations = phases["duration_s"].groupby(phases["phase"], sort=False).sum()
    texts = [
        f"{number} {name} {format_seconds(duration_s)}"
        for number, (name, duration_s) in enumerate(durations.items(), 1)
    ]
    title = f"{run.app}, {counted(int(run.cpus), 'CPU')}"
    caption = f"{title}. Phases {origin}: {'; '.join(texts) or 'none'}."
    return drawing(partial(plot.memory, samples, phases), f"Memory of {caption}", caption)


def memory_drawings(completed: pd.DataFrame, project: Path) -> list[Drawing]:
    """Draw the memory of the run of median wall time of each application.

    Runs whose samples are not in the project, such as recorded ones, are not drawn.
    """
    drawings = []
    for _, of_app in completed.groupby("app", sort=True):
        in_order = of_app.sort_values("runtime_s", kind="stable")
        run = in_order.iloc[(len(in_order) - 1) // 2].to_dict()
        try:
            drawings.append(memory_drawing(_folder(project, run)))
        except VoxcastError as error:
            logger.info("no picture of the memory of a run: %s", error)
    return [drawn for drawn in drawings if drawn is not None]


def traced_runs(completed: pd.DataFrame, project: Path) -> list[Section]:
    """Return the sections of the last traced run of each application."""
    sections = []
    for app, of_app in completed.groupby("app", sort=True):
        runs = of_app.sort_values("started_at", ascending=False).to_dict("records")
        folders = (series.traces_of_run(_folder(project, run)) for run in runs)
        traces = next((path for path in folders if path is not None), None)
        if traces is None:
            continue
        try:
            trace = logical_trace(read_trace(traces))
            overview = overview_for_page(trace, phases_of(trace))
            sections.append(Section(str(app), f"{heading(trace_summary(overview))}."))
            sections += trace_sections(overview)
        except VoxcastError as error:
            sections.append(Section(str(app), str(error)))
    return sections


def _folder(project: Path, run: Mapping[Any, Any]) -> Path:
    return project / series.MEASURED / str(run["device"]) / str(run["cell_key"])
