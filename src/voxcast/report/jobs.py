"""Figures of a cluster's jobs: requested against used amounts, and coverage of bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.laws.intervals import Interval
from voxcast.quantities import counted
from voxcast.report import plot
from voxcast.report.canvas import drawing
from voxcast.report.wording import TITLES, percent

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.analysis.job_drift import MonthlyCoverage
    from voxcast.report.canvas import Drawing


def requested_against_used(jobs: pd.DataFrame) -> Drawing:
    """Draw time and memory of the jobs that completed or were killed at a limit."""
    drawn = jobs[jobs["outcome"].isin(["completed", "timeout", "out_of_memory"])]
    of_memory = drawn
    if "all_memory" in drawn:  # that of the whole node is not a request
        of_memory = drawn[~drawn["all_memory"].astype(bool)]

    def draw(time: Any, memory: Any) -> None:
        plot.requested_against_used(drawn, time, requested="limit_s")
        names = {"requested": "mem_limit_bytes", "used": "peak_rss_bytes"}
        plot.requested_against_used(of_memory, memory, **names)

    alt = f"Requested against used time and memory of {counted(len(drawn), 'job')}"
    return drawing(draw, alt, size_in=(8.4, 4.0), columns=2)


def coverage_by_month(months: list[MonthlyCoverage]) -> Drawing:
    """Draw the share of jobs below their bounds, by month, application and target."""
    rows = {
        f"{m.month}, {m.app}: {TITLES[m.target]}": [
            Interval(
                100 * m.below / m.subjects, 100 * m.interval[0], 100 * m.interval[1], m.subjects
            )
        ]
        for m in months
    }
    stated = 100 * months[0].stated

    def draw(axes: Any) -> None:
        plot.intervals(rows, axes, line=stated).set_xlabel("subjects below the bound in %")
        axes.set_xlim(0, 104)

    texts = [f"{label} {percent(share.value)}" for label, (share,) in rows.items()]
    alt = f"Coverage of bounds of {percent(stated)}: {', '.join(texts)}"
    return drawing(draw, alt, size_in=(7.0, 1.1 + 0.32 * len(rows)))
