"""Phases of single runs in the report: memory over time, and traces of communication."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from voxcast.errors import VoxcastError
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.signature import phases_of
from voxcast.report.memory_figure import memory_drawing, run_memory
from voxcast.report.phase_page import overview_for_page, trace_content
from voxcast.runs.series import MEASURED, traces_of_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pandas as pd

    from voxcast.report.figures import Drawing

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
