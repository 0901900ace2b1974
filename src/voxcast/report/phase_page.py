"""The page of a trace: phases, the time of each process, communication, and memory over time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import VoxcastError
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.overview import COMMUNICATION, MARKS, trace_overview
from voxcast.phases.signature import phases_of
from voxcast.quantities import counted, format_bytes, format_seconds, format_short_seconds
from voxcast.report.figures import memory_drawing, run_memory
from voxcast.report.phase_lanes import HEIGHT, MAX_COLOURED, OTHER, bins_for, lanes
from voxcast.report.tables import Table
from voxcast.report.templates import render
from voxcast.report.wording import percent
from voxcast.runs.series import MEASURED, traces_of_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.overview import Timeline, TraceOverview, Traffic
    from voxcast.phases.signature import Grouping
    from voxcast.report.figures import Drawing, RunMemory


TEMPLATE = "phases.html.j2"
MAX_LANES = 64
MAX_CELLS = 16  # rows of a matrix with numbers; of more processes neighbours are summed
MAX_LISTED = 20


@dataclass(frozen=True)
class Cell:
    """A pair of processes: text, and its size relative to the largest, 0 to 1."""

    text: str
    level: float


def overview_for_page(trace: LogicalTrace, grouping: Grouping) -> TraceOverview:
    """Return the overview that the page of a trace is made of."""
    n_lanes = min(len(trace.events.processes), MAX_LANES)
    return trace_overview(
        trace, grouping, bins=bins_for(n_lanes), max_lanes=MAX_LANES, max_marked=MAX_COLOURED
    )


def phase_page(overview: TraceOverview, memory: RunMemory | None = None) -> str:
    """Return the page as HTML; it asks nothing of other hosts and runs no script.

    Parameters
    ----------
    overview : TraceOverview
        Of `overview_for_page`.
    memory : RunMemory, optional
        Memory of the same run.
    """
    run = overview.signature
    section = trace_content(overview)
    content = {
        "title": f"phases of {Path(run.source).name or 'a trace'}",
        "summary": section["summary"],
        "missing": run.missing,
        "trace": section,
        "memory": None if memory is None else memory_drawing(memory),
    }
    return render(TEMPLATE, content)


def trace_content(overview: TraceOverview) -> dict[str, Any]:
    """Return the content of the section of a trace, for the macro ``trace_section``."""
    run = overview.signature
    timelines = [("The run", overview.timeline)]
    marks = MARKS[: overview.marked]
    return {
        "summary": (
            f"{counted(run.processes, 'process')}, {counted(run.ticks, 'tick')}, "
            f"{format_seconds(run.elapsed_s)}; computation "
            f"{percent(100 * (1 - run.communication_share))}, communication "
            f"{percent(100 * run.communication_share)} of the time of all processes"
        ),
        "phases": _phases(overview),
        "dropped": (
            f"{counted(run.dropped_phases, 'small phase')} dropped, "
            f"{format_short_seconds(run.dropped_s)} together."
            if run.dropped_phases
            else ""
        ),
        "timelines": [_timeline(title, part, marks) for title, part in timelines],
        "matrix": _matrix(overview.traffic, overview.processes.lanes),
        "collectives": _collectives(overview.traffic),
        "lane_height": HEIGHT,
    }


def _phases(overview: TraceOverview) -> list[dict[str, Any]]:
    """Return the rows of the table of phases, that with the largest share first."""
    rows = []
    for place, n in enumerate(overview.order):
        phase = overview.signature.phases[n]
        marked = place < overview.marked
        cells = [
            percent(100 * phase.share), format_short_seconds(phase.time_s), str(phase.weight),
            percent(100 * phase.communication_share), str(n),
        ]  # fmt: skip
        rows.append({
            "mark": MARKS[place] if marked else "",
            "colour": f"series-{place}" if marked else OTHER,
            "communication": phase.communication,
            "cells": cells,
        })  # fmt: skip
    return rows


def _timeline(title: str, part: Timeline, marks: str) -> dict[str, Any]:
    by_bin = part.end_s / part.time_s.shape[-1]
    ticks = np.linspace(0.0, part.end_s, 5)
    share = part.time_s[:, :, COMMUNICATION].sum() / max(part.time_s.sum(), np.finfo(float).tiny)
    caption = (
        f"{title}, {format_short_seconds(part.end_s)}; one column is "
        f"{format_short_seconds(by_bin)}, communication {percent(100 * float(share))}"
    )
    return {
        "title": title,
        "caption": caption,
        "lanes": lanes(part, marks),
        "bins": part.time_s.shape[-1],
        "ticks": [f"{tick:.4g} s" for tick in ticks],
    }


def _matrix(traffic: Traffic, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return messages and bytes between pairs; None without messages."""
    if not traffic.messages.any():
        return None
    messages, size_bytes = traffic.summed(MAX_CELLS)
    n, n_rows = len(names), len(messages)
    starts = -(-np.arange(n_rows + 1) * n // n_rows)
    heads = [
        names[a] if b - a == 1 else f"{names[a]} to {names[b - 1]}"
        for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]
    largest = max(int(size_bytes.max()), 1)
    cells = [
        [
            Cell(f"{format_bytes(int(size))} · {count}" if count else "", float(size) / largest)
            for size, count in zip(sizes, counts, strict=True)
        ]
        for sizes, counts in zip(size_bytes, messages, strict=True)
    ]
    caption = (
        "Messages from the process of the row to that of the column, size · number; together "
        f"{format_bytes(int(traffic.size_bytes.sum()))} · {int(traffic.messages.sum())}"
    )
    return {"caption": caption, "heads": heads, "rows": list(zip(heads, cells, strict=True))}


def _collectives(traffic: Traffic) -> Table | None:
    if not traffic.collectives:
        return None
    rows = [
        [
            c.operation,
            str(c.processes or "unknown"),
            str(c.calls),
            format_bytes(c.size_bytes),
            format_short_seconds(c.time_s),
        ]
        for c in traffic.collectives[:MAX_LISTED]
    ]
    more = len(traffic.collectives) - len(rows)
    notes = (f"And {more} more with less time.",) if more else ()
    head = ["operation", "processes", "calls", "size", "time of all processes"]
    caption = "Collectives; size and time are those of all processes together, waiting included"
    return Table(caption, head, rows, notes)


MAX_PANELS = 8

logger = logging.getLogger(__name__)


def memory_panels(completed: pd.DataFrame, project: Path) -> list[Drawing]:
    """Draw the memory of the run of median wall time of each application.

    Runs whose samples are not in the project, such as recorded ones, are not drawn.

    Parameters
    ----------
    completed : DataFrame
        Runs of the pass.
    project : Path
        Its folder.
    """
    drawings: list[Drawing] = []
    for _, of_app in completed.groupby("app", sort=True):
        in_order = of_app.sort_values("runtime_s", kind="stable")
        run = in_order.iloc[(len(in_order) - 1) // 2].to_dict()
        try:
            memory = run_memory(_folder(project, run))
        except VoxcastError as error:
            logger.info("no picture of the memory of a run: %s", error)
            continue
        if memory is not None:
            drawings.append(memory_drawing(memory))
        if len(drawings) == MAX_PANELS:
            break
    return drawings


def traced_runs(completed: pd.DataFrame, project: Path) -> list[dict[str, Any]]:
    """Return title, text and trace of the last traced run of each application.

    The trace is the input of the macro ``trace_section``; None if it cannot be read.
    """
    sections = []
    for app, traces in _last_traces(completed, project):
        try:
            trace = logical_trace(read_trace(traces))
            section = trace_content(overview_for_page(trace, phases_of(trace)))
            sections.append({"title": app, "text": section["summary"], "trace": section})
        except VoxcastError as error:
            sections.append({"title": app, "text": str(error), "trace": None})
    return sections


def _last_traces(completed: pd.DataFrame, project: Path) -> Iterator[tuple[str, Path]]:
    for app, of_app in completed.groupby("app", sort=True):
        for run in of_app.sort_values("started_at", ascending=False).to_dict("records"):
            traces = traces_of_run(_folder(project, run))
            if traces is not None:
                yield str(app), traces
                break


def _folder(project: Path, run: Mapping[Any, Any]) -> Path:
    return project / MEASURED / str(run["device"]) / str(run["cell_key"])
