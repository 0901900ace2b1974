"""Whether predictions still hold for the last jobs, as a picture: one row for each application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.drift import LARGE
from voxcast.analysis.job_drift import NOUNS
from voxcast.report.canvas import INK, SERIES, grid, inline_svg, standalone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from voxcast.analysis.job_drift import JobDrift

FEATURES = 8  # the least stable ones
ROW_IN, WIDTH_IN = 3.1, 12.0
DRIFTED = SERIES[1]


def drift_picture(by_app: Mapping[str, JobDrift]) -> str:
    """Return an SVG: coverage over time, stability of features and speed of machines."""
    size = (WIDTH_IN, ROW_IN * len(by_app))
    with grid(len(by_app), 3, size) as (figure, rows):
        for (name, drift), axes in zip(by_app.items(), rows, strict=True):
            _coverage(axes[0], f"{name}: {drift.verdict}", drift)
            _features(axes[1], drift)
            _machines(axes[2], drift)
        alt = "; ".join(f"{name}: {drift.verdict}" for name, drift in by_app.items())
        return standalone(inline_svg(figure, "drift", f"Drift of predictions. {alt}"))


def _coverage(axes: Axes, title: str, drift: JobDrift) -> None:
    axes.set_title(title)
    if not any(coverage.windows for coverage in drift.coverage.values()):
        _nothing(axes, "no job tells of a bound")
        return
    starts: list[str] = []
    for place, (amount, coverage) in enumerate(drift.coverage.items()):
        colour, windows = SERIES[2 * place], coverage.windows
        x = np.arange(len(windows)) + 0.16 * (place - (len(drift.coverage) - 1) / 2)
        low, high = 100 * np.array([window.interval for window in windows]).T
        share = np.array([100 * window.below / window.subjects for window in windows])
        whiskers = [np.maximum(share - low, 0), np.maximum(high - share, 0)]
        axes.errorbar(x, share, whiskers, fmt="o", color=colour, label=NOUNS[amount])
        starts = max(starts, [window.first for window in windows], key=len)
    stated = {coverage.stated for coverage in drift.coverage.values()}
    for level in stated:
        axes.axhline(100 * level, color=INK, linestyle="--", linewidth=1)
    days = [start[:10] for start in starts]
    if len(set(days)) < len(days):  # several windows of a day
        days = [start[:16].replace("T", "\n") for start in starts]
    axes.set_xticks(range(len(days)), days, fontsize=8)
    axes.set_xlim(-0.5, len(starts) - 0.5)
    axes.set_ylim(0, 104)
    axes.set_ylabel("subjects below the bound (%)")
    bounds = ", ".join(f"{100 * level:g} %" for level in sorted(stated))
    axes.set_xlabel(f"jobs since (95 %); dashed: stated ({bounds})")
    axes.legend(loc="lower left")


def _features(axes: Axes, drift: JobDrift) -> None:
    axes.set_title("features: population stability")
    shifts = drift.features[:FEATURES]
    if not shifts:
        _nothing(axes, "no newer job to compare")
        return
    colours = [DRIFTED if shift.shifted else SERIES[0] for shift in shifts]
    axes.barh(range(len(shifts)), [shift.corrected for shift in shifts], color=colours, height=0.6)
    axes.axvline(LARGE, color=INK, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(shifts)), [shift.name for shift in shifts])
    axes.set_xlim(0, 1.1 * max(2 * LARGE, *(shift.corrected for shift in shifts)))
    axes.set_ylim(len(shifts) - 0.5, -0.5)
    axes.set_xlabel(f"index less its bias; dashed: {LARGE:g}; orange: drifted")


def _machines(axes: Axes, drift: JobDrift) -> None:
    axes.set_title("speed of machines")
    if not drift.machines:
        _nothing(axes, "no newer job to compare")
        return
    for y, machine in enumerate(drift.machines):
        colour = DRIFTED if machine.drifted else SERIES[0]
        axes.plot(machine.interval, [y, y], color=colour, linewidth=1.3)
        axes.plot(machine.speed_now, y, "o", color=colour)
        axes.plot(machine.speed_before, y, "D", color=INK, markerfacecolor="none")
    labels = [f"{machine.host[:8]}\n{machine.jobs} jobs" for machine in drift.machines]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("dot: in jobs (95 %); diamond: as learned")


def _nothing(axes: Axes, reason: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes)
