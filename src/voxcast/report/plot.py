"""Figures of predictions, runs and requests, on matplotlib's axes.

Each function takes a table or a result of this package and draws one figure on ``ax``, or on new
axes. The report, the documentation and notebooks share them, as ``voxcast.plot``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.report.canvas import FAINT, INK, SERIES, log_scale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    import pandas as pd
    from matplotlib.axes import Axes

    from voxcast.analysis.run_groups import WallTimes
    from voxcast.laws.intervals import Interval
    from voxcast.phases.overview import Timeline

    class HasOffers(Protocol):
        """A plan, as `voxcast.Model.recommend` returns it."""

        @property
        def offers(self) -> pd.DataFrame:
            """One row for each image and allocation."""


BAR: dict[str, Any] = {"color": SERIES[0], "ecolor": INK, "fmt": "o", "capsize": 3}
DASHED: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": "--"}
MANY_JOBS = 2000  # more are drawn as groups of nearly equal ones
GROUPS_PER_DECADE = 12
MIN_LABEL_SHARE = 0.05  # of the width of a timeline: shorter stretches have no letter in them


def predictions(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw predicted wall times with their intervals, a row for each allocation.

    Parameters
    ----------
    table : DataFrame
        Of `voxcast.Model.predict`.
    """
    axes = _axes(ax)
    sizes = zip(table["device"], table["cpus"], strict=True)
    labels = [f"{device}, {cpus:g} CPU" + "s" * (cpus != 1) for device, cpus in sizes]
    if "image" in table and table["image"].nunique() > 1:
        names = table["image"].str.rpartition("/")[2]
        labels = [f"{name}: {label}" for name, label in zip(names, labels, strict=True)]
    places = np.arange(len(table))[::-1]
    median, lower, upper = (
        table[f"runtime_s_{name}"].to_numpy(float) for name in ("median", "lower", "upper")
    )
    axes.errorbar(median, places, xerr=[median - lower, upper - median], **BAR)
    axes.set_yticks(places, labels)
    return _titled(axes, "predicted wall time in s, median and interval", "")


def pareto(plan: HasOffers, ax: Axes | None = None) -> Axes:
    """Draw cost against time of each allocation; chosen ones are filled.

    Parameters
    ----------
    plan : Plan
        Of `voxcast.Model.recommend`.
    """
    axes, offers = _axes(ax), plan.offers
    cost = "usd_bound" if offers["usd_bound"].gt(0).any() else "core_hours"
    if cost not in offers:
        offers = offers.assign(core_hours=offers["cpus"] * offers["walltime_s"] / 3600)
    for is_chosen, group in offers.groupby("chosen"):
        face = SERIES[0] if is_chosen else "none"
        label = "chosen" if is_chosen else "other allocations"
        axes.scatter(group["walltime_s"], group[cost], facecolors=face, edgecolors=SERIES[0],
                     label=label)  # fmt: skip
    axes.legend(frameon=False)
    title = "cost in USD at most" if cost == "usd_bound" else "core-hours requested"
    return _titled(axes, "requested time in s", title)


def requests(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the expected cost of strategies, normalised by the cost of knowing the runtime.

    Parameters
    ----------
    table : DataFrame
        Of `voxcast.requests`.
    """
    axes = _axes(ax)
    ordered = table.sort_values("normalised_cost", ascending=False)
    axes.barh(ordered["strategy"], ordered["normalised_cost"] - 1, left=1, color=SERIES[0])
    axes.set_xlim(left=1)
    return _titled(axes, "expected cost over that of knowing the runtime", "")


def phases(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the mean time of each phase, one bar for each application.

    Parameters
    ----------
    table : DataFrame
        Phases of runs, with ``cell_key``, ``app``, ``phase`` and ``duration_s``.
    """
    axes = _axes(ax)
    by_run = table.groupby(["cell_key", "app", "phase"], sort=False)["duration_s"].sum()
    means = by_run.groupby(["app", "phase"], sort=False).mean().unstack(fill_value=0)
    left = np.zeros(len(means))
    for number, name in enumerate(means.columns):
        colour = SERIES[number % len(SERIES)]
        axes.barh(means.index, means[name], left=left, color=colour, label=name)
        left += means[name].to_numpy()
    axes.legend(frameon=False, fontsize="small")
    return _titled(axes, "mean time in s", "")


def requested_against_used(
    runs: pd.DataFrame,
    ax: Axes | None = None,
    *,
    requested: str = "requested_walltime_s",
    used: str = "runtime_s",
) -> Axes:
    """Draw requested against used amounts of each attempt; those on the line used it all.

    Parameters
    ----------
    runs : DataFrame
        Of `voxcast.Submission.runs`, or jobs of an audit.
    requested, used : str
        Columns with the amounts, in seconds or in bytes.
    """
    axes = _axes(ax)
    is_time = used.endswith("_s")
    noun, unit, factor = ("time", "s", 1.0) if is_time else ("memory", "GB", 1e9)
    stated = runs[(runs[requested] > 0) & (runs[used] > 0)]
    is_completed = stated["outcome"] == "completed"
    for mask, marker, colour, outcome in (
        (is_completed, "o", SERIES[0], "completed"),
        (~is_completed, "x", SERIES[1], "not completed"),
    ):
        points = stated.loc[mask, [used, requested]].to_numpy(float) / factor
        sizes = np.full(len(points), 20.0)
        label = f"{len(points):,} {outcome}"
        if len(points) > MANY_JOBS:
            places = np.round(np.log10(points) * GROUPS_PER_DECADE)
            places, counts = np.unique(places, axis=0, return_counts=True)
            points, sizes = 10 ** (places / GROUPS_PER_DECADE), 4 * np.log2(counts + 1)
        if len(points):
            x, y = points.T
            axes.scatter(x, y, s=sizes, marker=marker, color=colour, label=label)
    if len(stated):
        axes.axline((1, 1), (2, 2), **DASHED)
        log_scale(axes)
        axes.legend(frameon=False)
    return _titled(axes, f"used {noun} in {unit}", f"requested {noun} in {unit}")


def calibration(table: pd.DataFrame, ax: Axes | None = None, *, target: str = "runtime_s") -> Axes:
    """Draw measured amounts against their predictions, with the upper bound of each.

    Parameters
    ----------
    table : DataFrame
        With ``runtime_s`` as measured, ``runtime_s_median`` and ``runtime_s_upper``.
    target : str
        Begin of these names: ``runtime_s``, ``cpu_s`` or ``peak_rss_bytes``.
    """
    axes = _axes(ax)
    noun, unit, factor = {
        "runtime_s": ("wall time", "s", 1.0),
        "cpu_s": ("CPU time", "s", 1.0),
    }.get(target, ("memory", "GB", 1e9))
    measured, median, upper = (
        table[name].to_numpy(float) / factor
        for name in (target, f"{target}_median", f"{target}_upper")
    )
    above = measured > upper
    axes.vlines(measured, median, upper, color=SERIES[0], alpha=0.35, linewidth=2)
    axes.plot(measured[~above], median[~above], "o", color=SERIES[0], markersize=5.5)
    axes.plot(measured[above], median[above], "X", color=SERIES[1], markersize=8)
    axes.axline((1, 1), (2, 2), **DASHED)
    log_scale(axes)
    below = f"{100 * float(np.mean(~above)):.0f} % of {len(table)} runs below their bound"
    axes.set_title(below, fontsize="medium")
    return _titled(axes, f"measured {noun} in {unit}", f"predicted {noun} in {unit}")


def intervals(
    by_label: Mapping[str, Sequence[Interval | None]],
    ax: Axes | None = None,
    *,
    line: float | None = None,
    log: bool = False,
    bold: str | None = None,
) -> Axes:
    """Draw values with their intervals, a row for each label; they are cut at the edge.

    Parameters
    ----------
    by_label : mapping
        One value for each series, or None.
    line : float, optional
        Where a vertical line is drawn: a noise floor, or no difference.
    bold : str, optional
        Label that stands out.
    """
    axes, values = _axes(ax), [value for row in by_label.values() for value in row if value]
    ends = [value.value for value in values] + ([] if line is None else [line])
    for place, row in enumerate(by_label.values()):
        for series, value in enumerate(row):
            if value is None:
                continue
            y = place + 0.3 * (series - (len(row) - 1) / 2)
            if value.bounded:
                axes.plot([value.low, value.high], [y, y], color=SERIES[series], linewidth=1.3)
            axes.plot(value.value, y, "oD"[series], color=SERIES[series], markersize=5)
    if log:
        axes.set_xlim(min(ends) / 1.3, 1.3 * max(ends))
        log_scale(axes, "x")
    else:
        axes.set_xlim(0.0, 1.3 * max(ends, default=0.0) or 1.0)
    if line is not None:
        axes.axvline(line, **DASHED)
    axes.set_yticks(range(len(by_label)), list(by_label))
    axes.set_ylim(len(by_label) - 0.4, -0.6)
    if bold is not None:
        axes.get_yticklabels()[list(by_label).index(bold)].set_fontweight("bold")
    return axes


def effects(dependence: pd.DataFrame, titles: Mapping[str, str], ax: Axes | None = None) -> Axes:
    """Draw the mean prediction against the quantile of each feature.

    Parameters
    ----------
    dependence : DataFrame
        Of one application: ``feature``, ``quantile`` and ``factor``.
    titles : mapping
        Names of the features that are drawn.
    """
    axes = _axes(ax)
    for (name, title), colour in zip(titles.items(), SERIES, strict=False):
        curve = dependence[dependence["feature"] == name]
        axes.plot(100 * curve["quantile"], curve["factor"], "o-", color=colour, markersize=4,
                  label=title)  # fmt: skip
    axes.legend(frameon=False, fontsize="small")
    return _titled(axes, "quantile of the feature in %", "CPU time, relative to the median")


def distributions(groups: Mapping[str, WallTimes], ax: Axes | None = None) -> Axes:
    """Draw measured distributions of wall time as steps, and the closest law of each, dashed."""
    axes = _axes(ax)
    for (label, group), colour in zip(groups.items(), SERIES, strict=False):
        axes.ecdf(group.values_s, color=colour, linewidth=1.4, label=label)
        if group.varied.fits:
            x = np.geomspace(group.values_s[0] / 1.3, group.values_s[-1] * 1.3, 160)
            axes.plot(
                x, group.varied.fits[0].law.cdf(x), color=colour, linewidth=1, linestyle="--"
            )
    log_scale(axes, "x")
    axes.set_ylim(0, 1.3)
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    return _titled(axes, "wall time in s", "share of runs")


def memory(samples: pd.DataFrame, phases: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw memory over time, with each phase as a numbered band.

    Parameters
    ----------
    samples : DataFrame
        Columns ``t_s`` and ``rss_bytes``.
    phases : DataFrame
        Columns ``phase``, ``start_s`` and ``end_s``.
    """
    axes, names = _axes(ax), list(dict.fromkeys(phases["phase"]))
    end_s = max([samples["t_s"].max(), *phases["end_s"]])
    for name, begin, stop in phases[["phase", "start_s", "end_s"]].itertuples(index=False):
        number = names.index(name)
        axes.axvspan(begin, stop, color=SERIES[number % len(SERIES)], alpha=0.28, linewidth=0)
        if stop - begin >= 0.02 * end_s:
            axes.text((begin + stop) / 2, 1.02, str(number + 1), ha="center", fontsize="small",
                      transform=axes.get_xaxis_transform())  # fmt: skip
    axes.plot(samples["t_s"], samples["rss_bytes"] / 1e9, color=INK, linewidth=1.3)
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1.08 * float(samples["rss_bytes"].max()) / 1e9)
    return _titled(axes, "time since the start in s", "memory in GB")


def timeline(part: Timeline, marks: str, ax: Axes | None = None) -> Axes:
    """Draw the phases of each process over time, by letter and colour, and communication below.

    Parameters
    ----------
    part : Timeline
        Its categories: one for each mark; all other phases; after the last event, which is empty.
    marks : str
        A letter for each of the first categories.
    """
    axes = _axes(ax)
    edges = np.linspace(0.0, part.end_s, part.time_s.shape[-1] + 1)
    colours = [*SERIES[: len(marks)], FAINT]
    for lane, (categories, share) in enumerate(
        zip(part.category, part.communication_share, strict=True)
    ):
        starts = np.flatnonzero(np.diff(categories, prepend=-2))
        stops = np.append(starts[1:], len(categories))
        begins, widths = edges[starts], edges[stops] - edges[starts]
        for category, colour in enumerate(colours):
            is_of = categories[starts] == category
            stretches = np.column_stack([begins, widths])[is_of]
            axes.broken_barh(stretches.tolist(), (lane - 0.38, 0.55), color=colour, linewidth=0)
        is_long = widths >= MIN_LABEL_SHARE * part.end_s
        for n in np.flatnonzero(is_long & (categories[starts] < len(marks))):
            axes.text(begins[n] + widths[n] / 2, lane - 0.1, marks[categories[starts[n]]],
                      ha="center", va="center", fontsize="small", fontweight="bold")  # fmt: skip
        floor = lane + 0.45
        axes.stairs(floor - 0.25 * share, edges, baseline=floor, fill=True, color=INK)
    axes.set_yticks(range(len(part.lanes)), part.lanes)
    axes.set_ylim(len(part.lanes) - 0.5, -0.5)
    axes.set_xlim(0.0, part.end_s)
    return _titled(axes, "time of each process in s", "")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    axes: Axes = plt.subplots(layout="constrained")[1]
    return axes


def _titled(axes: Axes, x: str, y: str) -> Axes:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
