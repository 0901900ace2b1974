"""Figures of a cluster's jobs: requested against used amounts, and coverage of bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.laws.intervals import Interval
from voxcast.quantities import counted
from voxcast.report import plot
from voxcast.report.canvas import drawing
from voxcast.report.wording import TITLES, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.analysis.job_drift import JobDrift, MonthlyCoverage
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
    shares = {
        f"{m.month}, {m.app}: {TITLES[m.target]}": _share(m.below, m.subjects, m.interval)
        for m in months
    }
    return _coverage(shares, months[0].stated)


def coverage_by_window(by_app: Mapping[str, JobDrift]) -> Drawing:
    """Draw the share of the last jobs below their bounds, in windows of time."""
    shares = {
        f"since {window.first[:16]}, {app}: {TITLES[target]}": _share(
            window.below, window.subjects, window.interval
        )
        for app, drift in by_app.items()
        for target, coverage in drift.coverage.items()
        for window in coverage.windows
    }
    stated = [c.stated for drift in by_app.values() for c in drift.coverage.values()]
    return _coverage(shares, max(stated, default=0.0))


def _share(below: int, subjects: int, interval: tuple[float, float]) -> Interval:
    return Interval(100 * below / subjects, 100 * interval[0], 100 * interval[1], subjects)


def _coverage(shares: Mapping[str, Interval], stated: float) -> Drawing:
    def draw(axes: Any) -> None:
        rows = {label: [share] for label, share in shares.items()}
        plot.intervals(rows, axes, line=100 * stated).set_xlabel("subjects below the bound in %")
        axes.set_xlim(0, 104)

    texts = [f"{label} {percent(share.value)}" for label, share in shares.items()]
    alt = f"Coverage of bounds of {percent(100 * stated)}: {', '.join(texts) or 'no job'}"
    return drawing(draw, alt, size_in=(7.0, 1.1 + 0.32 * len(shares)))
