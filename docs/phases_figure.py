"""Draw ``docs/images/phases_timeline.svg``: the timeline of a trace, as on its page.

``python docs/phases_figure.py`` (``make docs`` does it). The trace is of ``kmeans_mpi`` on four
processes, on two CPUs; it is beside the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

from markupsafe import escape

from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.overview import MARKS, TraceOverview, trace_overview
from voxcast.phases.signature import phases_of
from voxcast.quantities import format_short_seconds
from voxcast.report.phase_lanes import HEIGHT, MAX_COLOURED, OTHER, lanes

PROJECT = Path(__file__).resolve().parents[1]
TRACE = PROJECT / "tests" / "samples" / "kmeans_mpi_trace"
FIGURE = PROJECT / "docs" / "images" / "phases_timeline.svg"
BINS = 560  # as many as the lanes have pixels
LEFT, TOP, LANE, STEP = 70, 10, 30, 38
# Inside an <img> a figure knows nothing of the page: it brings its own colours, light and dark.
STYLE = """<style>
svg { color: #1f2328; --faint: #9a9fa5; --series-0: #0072b2; --series-1: #d55e00;
  --series-2: #009e73; --series-3: #cc79a7; --series-4: #b88600; --series-5: #56b4e9;
  font: 13px system-ui, sans-serif; }
text { fill: currentColor; }
.mark { fill: #fff; stroke: #000a; stroke-width: 3px; paint-order: stroke; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  svg { color: #e6edf3; --faint: #6e7681; --series-0: #56b4e9; --series-1: #ff8a3d;
    --series-2: #2fc79a; --series-3: #e39cc5; --series-4: #e6b422; --series-5: #9ad3f5; }
}
</style>"""


def drawn(overview: TraceOverview) -> str:
    """Return the figure: a lane for each process, the axis of time, and the phases by colour."""
    run, marks = overview.signature, MARKS[: overview.marked]
    parts = []
    for n, lane in enumerate(lanes(overview.timeline, marks)):
        y = TOP + n * STEP
        parts.append(f'<text x="0" y="{y + 16}">{escape(lane.name)}</text>')
        paths = [
            f'<path style="fill: var(--{_variable(colour)})" d="{outline}"/>'
            for colour, outline in lane.paths
        ]
        scale = LANE / HEIGHT
        parts.append(
            f'<g transform="translate({LEFT} {y}) scale(1 {scale:.3f})" '
            f'shape-rendering="crispEdges">{"".join(paths)}'
            f'<path fill="currentColor" d="{lane.communication}"/></g>'
        )
        parts += [
            f'<text x="{LEFT + BINS * percent / 100:g}" y="{y + 15}" text-anchor="middle" '
            f'class="mark">{mark}</text>'
            for mark, percent in lane.labels
        ]
    bottom = TOP + len(overview.timeline.lanes) * STEP
    for n in range(5):
        x, at_s = LEFT + BINS * n / 4, overview.timeline.end_s * n / 4
        anchor = ("start", "middle", "middle", "middle", "end")[n]
        parts.append(
            f'<text x="{x:g}" y="{bottom + 10}" text-anchor="{anchor}">'
            f"{format_short_seconds(at_s)}</text>"
        )
    y = bottom + 36
    for place, n in enumerate(overview.order[: overview.marked]):
        phase = run.phases[n]
        text = f"{marks[place]}  {phase.communication}: {phase.weight} × "
        text += f"{format_short_seconds(phase.time_s)}, {phase.share:.0%} of the run"
        parts.append(
            f'<rect x="{LEFT}" y="{y - 11}" width="12" height="12" '
            f'style="fill: var(--series-{place})"/><text x="{LEFT + 19}" y="{y}">'
            f"{escape(text)}</text>"
        )
        y += 21
    parts.append(
        f'<rect x="{LEFT}" y="{y - 8}" width="12" height="6" fill="currentColor"/>'
        f'<text x="{LEFT + 19}" y="{y}">share of communication, '
        f"{run.communication_share:.0%} of the time of all processes</text>"
    )
    alt = f"Phases of k-means on {run.processes} processes over {run.elapsed_s:.1f} s"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + BINS} {y + 10}" '
        f'role="img" aria-label="{alt}">{STYLE}{"".join(parts)}</svg>\n'
    )


def _variable(colour: str) -> str:
    return "faint" if colour == OTHER else colour


def main() -> int:
    """Write the figure."""
    trace = logical_trace(read_trace(TRACE))
    overview = trace_overview(
        trace, phases_of(trace), bins=BINS, max_lanes=8, max_marked=MAX_COLOURED
    )
    FIGURE.write_text(drawn(overview), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
