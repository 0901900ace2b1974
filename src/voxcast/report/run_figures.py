"""Figures of measured runs, as small panels of inline SVG."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.run_groups import by_configuration
from voxcast.quantities import counted
from voxcast.report.canvas import (
    FAINT,
    INK,
    SERIES,
    inline_svg,
    interval,
    log_axes,
    log_axis,
    panel,
)
from voxcast.report.figures import Drawing
from voxcast.report.sentences import cpu_verdict
from voxcast.report.wording import (
    allocation_label,
    amount,
    cpu_label,
    device_allocations,
    device_machines,
    percent,
    wall_times_allocation,
)

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.analysis.devices import CpuComparison, DeviceComparison
    from voxcast.analysis.wall_times import WallTimes

MAX_DISTRIBUTIONS = 4  # in one panel, so that they stay distinct


def size_panels(runs: pd.DataFrame) -> list[Drawing]:
    """Draw CPU time against the size of the volume, one panel per application.

    ``runs`` are completed profiles with ``megavoxels``.
    """
    drawings = []
    for app, app_runs in runs.groupby("app", sort=True):
        with panel() as (figure, axes):
            for n, group in enumerate(by_configuration(app_runs)):
                axes.plot(
                    group.runs["megavoxels"], group.runs["cpu_s"], "os^Dv"[n % 5],
                    color=SERIES[n % len(SERIES)], alpha=0.8, markersize=5,
                    markerfacecolor="none" if n else None,
                    label=allocation_label(group.configuration, group.scale),
                )  # fmt: skip
            log_axes(axes, app_runs["megavoxels"], app_runs["cpu_s"])
            axes.set(xlabel="voxels (millions)", ylabel="measured CPU time (s)", title=str(app))
            axes.legend(loc="best", handletextpad=0.1)
            alt = f"CPU time of {app} against millions of voxels, {counted(len(app_runs), 'run')}"
            drawings.append(Drawing(inline_svg(figure, f"size {app}", alt), ""))
    return drawings


def speedup_panels(comparisons: list[CpuComparison]) -> list[Drawing]:
    """Draw the speed-up of each volume with more CPUs, one panel per comparison."""
    drawings = []
    for comparison in comparisons:
        with panel() as (figure, axes):
            low, high = comparison.pairs["runtime_s"].min(), comparison.pairs["runtime_s"].max()
            if comparison.noise_percent is not None:
                edge = 1 + comparison.noise_percent / 100
                axes.axhspan(1 / edge, edge, color=FAINT, alpha=0.3, linewidth=0)
            axes.axhline(1, color=INK, linewidth=1)
            if comparison.speedup.bounded:
                axes.axhspan(
                    comparison.speedup.low,
                    comparison.speedup.high,
                    color=SERIES[0],
                    alpha=0.2,
                    linewidth=0,
                )
            axes.axhline(comparison.speedup.value, color=SERIES[0], linewidth=1.5)
            axes.plot(
                comparison.pairs["runtime_s"], comparison.pairs["speedup"], "o",
                color=SERIES[0], markersize=5, markeredgewidth=0,
            )  # fmt: skip
            log_axis(axes, "x", low, high)
            speedups = (*comparison.pairs["speedup"], comparison.speedup.value)
            spread = max(abs(math.log(speedup)) for speedup in speedups)
            top = math.exp(max(1.25 * spread, 0.15))
            if comparison.speedup.bounded:  # the band is cut at the axis
                cut = comparison.speedup.high > top, comparison.speedup.low < 1 / top
                for is_cut, edge, marker in zip(cut, (1, 0), "^v", strict=True):
                    if is_cut:
                        axes.plot(
                            0.5, edge, marker, color=SERIES[0], markersize=7, clip_on=False,
                            transform=axes.transAxes,
                        )  # fmt: skip
            axes.set_yscale("log")
            log_axis(axes, "y", 1 / top, top)
            label, cpus = cpu_label(comparison), comparison.cpus
            base = counted(comparison.base_cpus, "CPU")
            axes.set(
                xlabel=f"wall time with {base} (s)",
                ylabel=f"speed-up with {cpus}",
                title=f"{label}: {cpus} CPUs against {comparison.base_cpus}",
            )
            alt = f"Speed-up of {label} by volume. {cpu_verdict(comparison)}."
            svg = inline_svg(figure, f"speedup {label} {comparison.device} {cpus}", alt)
        band = "" if comparison.noise_percent is None else " Grey band: CV of repeats."
        drawings.append(
            Drawing(svg, f"{comparison.device}. Line and blue band: mean, 95 % interval.{band}")
        )
    return drawings


def phase_panels(summary: pd.DataFrame) -> list[Drawing]:
    """Draw the median duration of every phase, one panel per application.

    ``summary`` is the result of `voxcast.phases.logged.phase_summary`.
    """
    drawings = []
    for app, app_phases in summary.groupby("app", sort=True):
        names = list(dict.fromkeys(app_phases["phase"]))
        cpu_counts = sorted(app_phases["cpus"].unique())
        with panel(4.2, 0.9 + 0.24 * len(names) * (len(cpu_counts) + 0.6)) as (figure, axes):
            height, longest = 0.84 / len(cpu_counts), float(app_phases["duration_s"].max())
            for n, cpus in enumerate(cpu_counts):
                by_phase = app_phases[app_phases["cpus"] == cpus].set_index("phase")
                rows = [k for k, name in enumerate(names) if name in by_phase.index]
                widths = by_phase.loc[[names[k] for k in rows], "duration_s"]
                positions = [k + (n - (len(cpu_counts) - 1) / 2) * height for k in rows]
                label = counted(int(cpus), "CPU")
                axes.barh(
                    positions, widths, 0.9 * height, color=SERIES[n % len(SERIES)], label=label
                )
                for position, name, width in zip(positions, widths.index, widths, strict=True):
                    share = percent(100 * float(by_phase.loc[name, "share"]))
                    text = f"{amount('cpu_s', float(width))}, {share}"
                    axes.annotate(
                        text,
                        (width, position),
                        (4, 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=8.5,
                    )
            axes.set_xlim(0, 1.45 * longest)
            axes.set_yticks(range(len(names)), names)
            axes.invert_yaxis()
            axes.grid(axis="y", visible=False)
            axes.set(xlabel="median duration (s)", title=str(app))
            if len(cpu_counts) > 1:
                axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderpad=0)
            lines = (
                f"{r.phase} {amount('cpu_s', float(str(r.duration_s)))}"
                for r in app_phases.itertuples()
            )
            svg = inline_svg(figure, f"phases {app}", f"Phases of {app}: {', '.join(lines)}")
        drawings.append(Drawing(svg, "Median over runs, and share of the time of all phases."))
    return drawings


def device_panels(comparisons: list[DeviceComparison]) -> list[Drawing]:
    """Draw the speed-up on the GPU of runs and phases, one panel per application."""
    drawings = []
    for app, group in itertools.groupby(comparisons, key=lambda comparison: comparison.app):
        app_comparisons = list(group)
        labels = _device_row_labels(app_comparisons)
        with panel(4.2, 1.1 + 0.32 * len(app_comparisons)) as (figure, axes):
            ends = [1.0]
            for row, comparison in enumerate(app_comparisons):
                gain = comparison.speedup
                ends += [comparison.pairs["speedup"].min(), comparison.pairs["speedup"].max()]
                colour = SERIES[2] if comparison.phase else SERIES[0]
                axes.barh(row, gain.value - 1, 0.62, left=1, color=colour, alpha=0.85)
                axes.text(
                    1.03, row, f"{gain.value:.3g}×", va="center",
                    transform=axes.get_yaxis_transform(),
                )  # fmt: skip
            axes.axvline(1, color=INK, linewidth=1)
            log_axis(axes, "x", min(ends), max(*ends, 2.0))
            for row, comparison in enumerate(app_comparisons):
                gain = comparison.speedup
                if gain.bounded:
                    interval(axes, row, (gain.low, gain.high), axes.get_xlim(), INK)
            axes.set_yticks(range(len(app_comparisons)), labels)
            axes.set_ylim(len(app_comparisons) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.set(xlabel="speed-up on the GPU", title=app)
            speedups = ", ".join(
                f"{label} {comparison.speedup.value:.3g}"
                for label, comparison in zip(labels, app_comparisons, strict=True)
            )
            svg = inline_svg(figure, f"devices {app}", f"Speed-up on the GPU, {app}: {speedups}")
        drawings.append(Drawing(svg, ""))
    return drawings


def _device_row_labels(comparisons: list[DeviceComparison]) -> list[str]:
    """Name phases or runs, with allocations and machines where these differ."""
    several_machines = len({comparison.hosts for comparison in comparisons}) > 1
    sides = [
        device_allocations(comparison)
        + (f", {device_machines(comparison)}" if several_machines else "")
        for comparison in comparisons
    ]
    labels = [comparison.phase or "whole run" for comparison in comparisons]
    if len(set(sides)) == 1:
        return labels
    return [f"{label} ({side})" for label, side in zip(labels, sides, strict=True)]


def variation_panels(groups: list[WallTimes]) -> list[Drawing]:
    """Draw empirical and fitted distributions, one panel per application and device."""
    drawings = []
    for (app, device), app_groups in itertools.groupby(groups, key=_app_and_device):
        for number, shown_groups in enumerate(_chunks(list(app_groups), MAX_DISTRIBUTIONS)):
            with panel(4.2, 3.6) as (figure, axes):
                for n, group in enumerate(shown_groups):
                    x = np.sort(group.values_s)
                    label = wall_times_allocation(group).removeprefix(f"{device}, ")
                    axes.ecdf(x, color=SERIES[n], linewidth=1.4, label=label)
                    if group.varied.fits:
                        # Evenly spaced on the logarithmic axis.
                        grid = np.geomspace(x[0] / 1.3, x[-1] * 1.3, 160)
                        law = group.varied.fits[0].law
                        axes.plot(
                            grid,
                            law.cdf(grid),
                            color=SERIES[n],
                            linewidth=1,
                            linestyle=(0, (4, 2)),
                        )
                values = np.concatenate([group.values_s for group in shown_groups])
                log_axis(axes, "x", float(values.min()), float(values.max()))
                axes.set_ylim(0, 1.3 if len(shown_groups) > 2 else 1.2)
                axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
                title = app if device == "cpu" else f"{app}, {device}"
                axes.set(xlabel="wall time (s)", ylabel="share of runs", title=title)
                axes.legend(loc="upper left", borderpad=0.1, labelspacing=0.2)
                lines = "; ".join(
                    f"{wall_times_allocation(group)}: "
                    f"median {amount('cpu_s', float(np.median(group.values_s)))}"
                    for group in shown_groups
                )
                alt = f"Distribution of wall time of {app}, {lines}"
                svg = inline_svg(figure, f"variation {app} {device} {number}", alt)
            drawings.append(Drawing(svg, ""))
    return drawings


def _app_and_device(group: WallTimes) -> tuple[str, str]:
    return group.app, group.configuration.device


def _chunks(groups: list[WallTimes], size: int) -> list[list[WallTimes]]:
    return [groups[n : n + size] for n in range(0, len(groups), size)]
