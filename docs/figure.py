"""Draw the figures of ``docs/images``: errors of wall time by model, and the timeline of a trace.

``python docs/figure.py`` (``make docs`` does it) reads ``published/headline/headline.csv`` and the
trace of ``kmeans_mpi`` on four processes that is beside the tests.
"""

from __future__ import annotations

import sys
from typing import Any

from headline_tables import CONTENDERS, MEANINGS, NEW, VOXCAST, row_of
from table_text import PROJECT, percent
from voxcast.laws.intervals import Interval
from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.overview import trace_overview
from voxcast.phases.signature import phases_of
from voxcast.report.canvas import SERIES, drawing, standalone
from voxcast.report.phase_page import trace_sections
from voxcast.report.plot import intervals

IMAGES = PROJECT / "docs" / "images"
FIGURE = IMAGES / "error_by_model.svg"
TRACE = PROJECT / "tests" / "samples" / "kmeans_mpi_trace"
APP = "ants_segment"


def figure() -> str:
    """Return errors by model, without a run of the day and after two local runs."""
    rows = {}
    for name in CONTENDERS:
        cells = (row_of(APP, "runtime_s", protocol, name) for protocol in NEW)
        rows[MEANINGS.get(name, name)] = [
            Interval(float(cell["mape"]), float(cell["low"]), float(cell["high"]), 0)
            for cell in cells
        ]
    floor = float(row_of(APP, "runtime_s", "known", VOXCAST)["floor"])
    alt = "Error of wall time by model, on a new day and after two local runs: " + ", ".join(
        f"{name} {' and '.join(percent(error.value) for error in pair)}"
        for name, pair in rows.items()
    )

    def draw(axes: Any) -> None:
        intervals(rows, axes, line=floor, bold=VOXCAST)
        axes.set(xlabel="mean absolute error (%)", title=f"Wall time of {APP}")

    return standalone(drawing(draw, alt, size_in=(4.8, 1.2 + 0.34 * len(rows))))


def timeline() -> str:
    """Return the timeline of the trace, as on its page."""
    trace = logical_trace(read_trace(TRACE))
    marked = {"bins": 160, "max_lanes": 8, "max_marked": len(SERIES)}
    section, _ = trace_sections(trace_overview(trace, phases_of(trace), **marked))
    return standalone(section.figures[0])


def main() -> int:
    """Write the figures."""
    FIGURE.write_text(figure(), encoding="utf-8")
    (IMAGES / "phases_timeline.svg").write_text(timeline(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
