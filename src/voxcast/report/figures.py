"""The figures of the report, each one small panel that a phone can show, as inline SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.records import TARGETS
from voxcast.report.canvas import FAINT, INK, SERIES, inline_svg, log_axes, log_axis, panel
from voxcast.report.evidence import by_configuration
from voxcast.report.intervals import TITLES, amount, counted, heading, percent
from voxcast.report.verdict import BASELINES, error_of

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

    from voxcast.report.noise import Comparison
    from voxcast.report.verdict import Verdict


@dataclass(frozen=True)
class Drawing:
    """An inline ``svg`` element and the line below it."""

    svg: Markup
    caption: str


def size_panels(runs: pd.DataFrame) -> list[Drawing]:
    """Draw CPU time against the size of the volume, one panel an application.

    ``runs`` are completed profiles with ``megavoxels``.
    """
    drawings = []
    for app, own in runs.groupby("app", sort=True):
        with panel() as (figure, axes):
            for n, (_, configuration, some) in enumerate(by_configuration(own)):
                axes.plot(
                    some["megavoxels"], some["cpu_s"], "os^Dv"[n % 5],
                    color=SERIES[n % len(SERIES)], alpha=0.8, markersize=5,
                    markerfacecolor="none" if n else None, label=configuration.label,
                )  # fmt: skip
            log_axes(axes, own["megavoxels"], own["cpu_s"])
            axes.set(xlabel="voxels (millions)", ylabel="measured CPU time (s)", title=str(app))
            axes.legend(loc="upper left", handletextpad=0.1)
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
            if one.speedup.known:
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
                title=f"{one.app}: {one.cpus} CPUs against {one.base_cpus}",
            )
            alt = f"Speed of {one.app} volume by volume. {one.verdict}."
            svg = inline_svg(figure, f"speedup {one.app} {one.device} {one.cpus}", alt)
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


def error_panels(verdict: Verdict, noise_percent: dict[str, float]) -> list[Drawing]:
    """Draw the error of every family, one panel a target; best by cross-validation on top."""
    families = list(verdict.cross_validated)
    drawings = []
    for target in TARGETS:
        with panel(4.2, 1.2 + 0.34 * len(families)) as (figure, axes):
            largest = 0.0
            for row, family in enumerate(families):
                validated = verdict.cross_validated[family][target]
                tested = verdict.tested.get(family, {}).get(target)
                largest = max(largest, validated, tested.value if tested else 0)
                if tested:
                    place = row + 0.17
                    if tested.known:
                        axes.plot(
                            [max(tested.low, 0), tested.high], [place] * 2,
                            color=SERIES[1], linewidth=1.3,
                        )  # fmt: skip
                    axes.plot(tested.value, place, "D", color=SERIES[1], markersize=5)
                axes.plot(validated, row - 0.17 * bool(tested), "o", color=SERIES[0], markersize=6)
                text = percent(tested.value if tested else validated)
                axes.text(1.0, row, text, va="center", transform=axes.get_yaxis_transform())
            axes.set_xlim(0, 1.3 * largest or 1)
            axes.set_ylim(len(families) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            labels = [f"{name} (baseline)" if name in BASELINES else name for name in families]
            axes.set_yticks(range(len(families)), labels)
            axes.get_yticklabels()[families.index(verdict.winner)].set_fontweight("bold")
            if target in noise_percent:
                axes.axvline(noise_percent[target], color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set(xlabel="mean absolute error (%)", title=heading(TITLES[target]))
            alt = f"Error of {TITLES[target]} by model: " + ", ".join(
                f"{name} {percent(verdict.cross_validated[name][target])}" for name in families
            )
            svg = inline_svg(figure, f"error {target}", alt)
        drawings.append(Drawing(svg, ""))
    return drawings


def scatter_panels(predicted: pd.DataFrame) -> list[Drawing]:
    """Draw predicted against measured: a panel for each configuration and target."""
    return [
        _scatter(own, f"{app}: {configuration.label}", target)
        for app, configuration, own in by_configuration(predicted)
        for target in TARGETS
    ]


def _scatter(own: pd.DataFrame, title: str, target: str) -> Drawing:
    factor, unit = (1e9, "GB") if target.endswith("_bytes") else (1.0, "s")
    actual, low, middle, high = (
        own[f"{target}_{kind}"].to_numpy() / factor
        for kind in ("actual", "lower", "median", "upper")
    )
    above = actual > high
    with panel(4.2, 3.9) as (figure, axes):
        axes.vlines(actual, low, high, color=SERIES[0], alpha=0.35, linewidth=2)
        axes.plot(actual[~above], middle[~above], "o", color=SERIES[0], markersize=5.5)
        axes.plot(actual[above], middle[above], "X", color=SERIES[1], markersize=8)
        ends = np.concatenate([actual, low, middle, high])
        log_axes(axes, ends, ends)
        axes.axline((1, 1), (10, 10), color=INK, linewidth=0.9, zorder=0)
        axes.set(
            xlabel=f"measured {TITLES[target]} ({unit})",
            ylabel=f"predicted {TITLES[target]} ({unit})",
            title=title,
        )
        error = error_of(own, target)
        alt = (
            f"Predicted against measured {TITLES[target]} of {title}: "
            f"{counted(len(own), 'run')}, mean error {percent(error.value)}, "
            f"{int(above.sum())} above the upper bound"
        )
        svg = inline_svg(figure, f"scatter {target} {title}", alt)
    over = f"; {int(above.sum())} above the upper bound" if above.any() else ""
    runs = f"{counted(len(own), 'run')} of {counted(error.subjects, 'subject')}"
    return Drawing(
        svg, f"{heading(TITLES[target])}: off by {percent(error.value)} on {runs}{over}."
    )


def coverage_panels(found: dict[str, dict[str, dict[str, float]]], level: float) -> list[Drawing]:
    """Draw the share of unseen subjects below the upper bound, one panel a target.

    Parameters
    ----------
    found : dict
        The metrics of evaluation by family and target.
    level : float
        What the bound is meant to hold, such as 0.95.
    """
    drawings = []
    for target in TARGETS:
        with panel(4.2, 1.2 + 0.3 * len(found)) as (figure, axes):
            for row, of_family in enumerate(found.values()):
                one = of_family[target]
                ends = [100 * (1 - one[f"under_request_{end}"]) for end in ("high", "low")]
                axes.plot(ends, [row] * 2, color=SERIES[0], linewidth=1.3)
                axes.plot(100 * (1 - one["under_request"]), row, "o", color=SERIES[0])
            axes.axvline(100 * level, color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_xlim(-3, 103)
            axes.set_ylim(len(found) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.set_yticks(range(len(found)), [name.replace("_", " ") for name in found])
            axes.set(xlabel="subjects below the upper bound (%)", title=heading(TITLES[target]))
            alt = f"Share of subjects below the upper bound of {TITLES[target]}: " + ", ".join(
                f"{name} {percent(100 * (1 - f[target]['under_request']))}"
                for name, f in found.items()
            )
            drawings.append(Drawing(inline_svg(figure, f"coverage {target}", alt), ""))
    return drawings
