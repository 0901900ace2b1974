"""The figures of what was run, each one small panel that a phone can show, as inline SVG."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.empirical import ecdf
from voxcast.report.canvas import FAINT, INK, SERIES, inline_svg, log_axes, log_axis, panel
from voxcast.report.figures import Drawing
from voxcast.report.formatting import amount, counted, percent
from voxcast.report.inputs import by_configuration

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.analysis.devices import DeviceComparison
    from voxcast.analysis.noise import Comparison
    from voxcast.analysis.wall_times import WallTimes

# More distributions in one panel cannot be told apart.
LINES = 4


def size_panels(runs: pd.DataFrame) -> list[Drawing]:
    """Draw CPU time against the size of the volume, one panel an application.

    ``runs`` are completed profiles with ``megavoxels``.
    """
    drawings = []
    for app, own in runs.groupby("app", sort=True):
        with panel() as (figure, axes):
            for n, part in enumerate(by_configuration(own)):
                some = part.runs
                axes.plot(
                    some["megavoxels"], some["cpu_s"], "os^Dv"[n % 5],
                    color=SERIES[n % len(SERIES)], alpha=0.8, markersize=5,
                    markerfacecolor="none" if n else None, label=part.allocation,
                )  # fmt: skip
            log_axes(axes, own["megavoxels"], own["cpu_s"])
            axes.set(xlabel="voxels (millions)", ylabel="measured CPU time (s)", title=str(app))
            axes.legend(loc="best", handletextpad=0.1)
            alt = f"CPU time of {app} against millions of voxels, {counted(len(own), 'run')}"
            drawings.append(Drawing(inline_svg(figure, f"size {app}", alt), ""))
    return drawings


def speedup_panels(comparisons: list[Comparison]) -> list[Drawing]:
    """Draw how much faster each volume ran with more CPUs, one panel a comparison."""
    drawings = []
    for one in comparisons:
        with panel() as (figure, axes):
            low, high = one.pairs["runtime_s"].min(), one.pairs["runtime_s"].max()
            if one.noise_percent is not None:
                edge = 1 + one.noise_percent / 100
                axes.axhspan(1 / edge, edge, color=FAINT, alpha=0.3, linewidth=0)
            axes.axhline(1, color=INK, linewidth=1)
            if one.speedup.bounded:
                axes.axhspan(
                    one.speedup.low, one.speedup.high, color=SERIES[0], alpha=0.2, linewidth=0
                )
            axes.axhline(one.speedup.value, color=SERIES[0], linewidth=1.5)
            axes.plot(
                one.pairs["runtime_s"], one.pairs["speedup"], "o", color=SERIES[0], markersize=5,
                markeredgewidth=0,
            )  # fmt: skip
            log_axis(axes, "x", low, high)
            spread = max(abs(math.log(v)) for v in (*one.pairs["speedup"], one.speedup.value))
            top = math.exp(max(1.25 * spread, 0.15))
            axes.set_yscale("log")
            log_axis(axes, "y", 1 / top, top)
            base = counted(one.base_cpus, "CPU")
            axes.set(
                xlabel=f"wall time with {base} (s)",
                ylabel=f"times faster with {one.cpus}",
                title=f"{one.label}: {one.cpus} CPUs against {one.base_cpus}",
            )
            alt = f"Speed of {one.label} one by one. {one.verdict}."
            svg = inline_svg(figure, f"speedup {one.label} {one.device} {one.cpus}", alt)
        band = "" if one.noise_percent is None else " Grey: what repeats alone differ by."
        drawings.append(
            Drawing(svg, f"{one.device}. Line and blue band: mean and 95 % interval.{band}")
        )
    return drawings


def phase_panels(summary: pd.DataFrame) -> list[Drawing]:
    """Draw the median duration of every phase, one panel an application.

    ``summary`` is what `voxcast.phases.logged.phase_summary` gives.
    """
    drawings = []
    for app, own in summary.groupby("app", sort=True):
        names = list(dict.fromkeys(own["phase"]))
        tried = sorted(own["cpus"].unique())
        with panel(4.2, 0.9 + 0.24 * len(names) * (len(tried) + 0.6)) as (figure, axes):
            height, longest = 0.84 / len(tried), float(own["duration_s"].max())
            for n, cpus in enumerate(tried):
                some = own[own["cpus"] == cpus].set_index("phase")
                here = [k for k, name in enumerate(names) if name in some.index]
                widths = some.loc[[names[k] for k in here], "duration_s"]
                places = [k + (n - (len(tried) - 1) / 2) * height for k in here]
                label = counted(int(cpus), "CPU")
                axes.barh(places, widths, 0.9 * height, color=SERIES[n % len(SERIES)], label=label)
                for place, name, width in zip(places, widths.index, widths, strict=True):
                    share = percent(100 * float(some.loc[name, "share"]))
                    text = f"{amount('cpu_s', float(width))}, {share}"
                    axes.annotate(
                        text,
                        (width, place),
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
            if len(tried) > 1:
                axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderpad=0)
            lines = (
                f"{r.phase} {amount('cpu_s', float(str(r.duration_s)))}" for r in own.itertuples()
            )
            svg = inline_svg(figure, f"phases {app}", f"Phases of {app}: {', '.join(lines)}")
        drawings.append(Drawing(svg, "Median over runs, and the part of all phases' time."))
    return drawings


def device_panels(comparisons: list[DeviceComparison]) -> list[Drawing]:
    """Draw how much faster the GPU is, run and phases, one panel an application."""
    drawings = []
    for app, found in itertools.groupby(comparisons, key=_of_app):
        own = list(found)
        machines = len({one.hosts for one in own}) > 1
        sides = [f"{one.sides}, {one.machines}" if machines else one.sides for one in own]
        labels = [one.phase or ("composed" if one.composed else "whole run") for one in own]
        if len(set(sides)) > 1:
            labels = [f"{what} ({of})" for what, of in zip(labels, sides, strict=True)]
        with panel(4.2, 1.1 + 0.32 * len(own)) as (figure, axes):
            ends = [1.0]
            for row, one in enumerate(own):
                gain = one.speedup
                colour = SERIES[2] if one.phase else SERIES[1] if one.composed else SERIES[0]
                axes.barh(row, gain.value - 1, 0.62, left=1, color=colour, alpha=0.85)
                ends.append(gain.value)
                if gain.bounded:
                    axes.plot([gain.low, gain.high], [row] * 2, color=INK, linewidth=1.3)
                    ends += [gain.low, gain.high]
                axes.text(
                    1.02, row, f"{gain.value:.3g}×", va="center",
                    transform=axes.get_yaxis_transform(),
                )  # fmt: skip
            axes.axvline(1, color=INK, linewidth=1)
            log_axis(axes, "x", min(ends), max(*ends, 2.0))
            axes.set_yticks(range(len(own)), labels)
            axes.set_ylim(len(own) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.set(xlabel="times faster on the GPU", title=app)
            said = ", ".join(
                f"{label} {one.speedup.value:.3g}" for label, one in zip(labels, own, strict=True)
            )
            svg = inline_svg(figure, f"devices {app}", f"Times faster on the GPU, {app}: {said}")
        drawings.append(Drawing(svg, ""))
    return drawings


def _of_app(one: DeviceComparison) -> str:
    return one.app


def variation_panels(groups: list[WallTimes]) -> list[Drawing]:
    """Draw empirical distributions and their closest laws, one panel an application and device."""
    drawings = []
    for (app, device), found in itertools.groupby(groups, key=_of_device):
        for number, own in enumerate(_chunks(list(found), LINES)):
            with panel(4.2, 3.6) as (figure, axes):
                for n, one in enumerate(own):
                    x, share = ecdf(one.values_s)
                    label = one.allocation.removeprefix(f"{device}, ")
                    axes.step(
                        [x[0], *x], [0, *share], where="post", color=SERIES[n], linewidth=1.4,
                        label=label,
                    )  # fmt: skip
                    if one.varied.fits:
                        # Evenly on the logarithmic axis, which a grid of seconds would miss.
                        grid = np.geomspace(x[0] / 1.3, x[-1] * 1.3, 160)
                        law = one.varied.fits[0].law
                        axes.plot(
                            grid,
                            law.cdf(grid),
                            color=SERIES[n],
                            linewidth=1,
                            linestyle=(0, (4, 2)),
                        )
                values = np.concatenate([one.values_s for one in own])
                log_axis(axes, "x", float(values.min()), float(values.max()))
                axes.set_ylim(0, 1.3 if len(own) > 2 else 1.2)
                axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
                title = app if device == "cpu" else f"{app}, {device}"
                axes.set(xlabel="wall time (s)", ylabel="share of runs", title=title)
                axes.legend(loc="upper left", borderpad=0.1, labelspacing=0.2)
                lines = "; ".join(
                    f"{one.allocation}: median {amount('cpu_s', float(np.median(one.values_s)))}"
                    for one in own
                )
                alt = f"Distribution of wall time of {app}, {lines}"
                svg = inline_svg(figure, f"variation {app} {device} {number}", alt)
            drawings.append(Drawing(svg, ""))
    return drawings


def _of_device(one: WallTimes) -> tuple[str, str]:
    return one.app, one.configuration.device


def _chunks(groups: list[WallTimes], most: int) -> list[list[WallTimes]]:
    return [groups[n : n + most] for n in range(0, len(groups), most)]
