"""Pictures of predictions, plans and runs, on matplotlib's axes.

Each function takes a table of this package and draws one picture on ``ax``, or on new axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.report.canvas import INK, SERIES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from voxcast.api.plan import Plan

BAR: dict[str, Any] = {"color": SERIES[0], "ecolor": INK, "fmt": "o", "capsize": 3}


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


def pareto(plan: Plan, ax: Axes | None = None) -> Axes:
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
        Phases of runs, with ``app``, ``phase`` and ``duration_s``.
    """
    axes = _axes(ax)
    means = table.groupby(["app", "phase"], sort=False)["duration_s"].mean().unstack(fill_value=0)
    left = np.zeros(len(means))
    for number, name in enumerate(means.columns):
        colour = SERIES[number % len(SERIES)]
        axes.barh(means.index, means[name], left=left, color=colour, label=name)
        left += means[name].to_numpy()
    axes.legend(frameon=False, fontsize="small")
    return _titled(axes, "mean time in s", "")


def requested_against_used(runs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw requested against used time of each attempt; those on the line were stopped.

    Parameters
    ----------
    runs : DataFrame
        Of `voxcast.Submission.runs`.
    """
    axes = _axes(ax)
    is_completed = runs["outcome"] == "completed"
    for mask, marker, label in (
        (is_completed, "o", "completed"),
        (~is_completed, "x", "not completed"),
    ):
        part = runs[mask]
        axes.scatter(part["runtime_s"], part["requested_walltime_s"], marker=marker, label=label)
    highest = float(runs[["runtime_s", "requested_walltime_s"]].max().max())
    axes.plot([0, highest], [0, highest], color=INK, linewidth=0.8, linestyle="--")
    axes.legend(frameon=False)
    return _titled(axes, "used time in s", "requested time in s")


def calibration(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw measured wall times against their predictions, with the upper bound of each.

    Parameters
    ----------
    table : DataFrame
        With ``runtime_s`` as measured, ``runtime_s_median`` and ``runtime_s_upper``.
    """
    axes = _axes(ax)
    measured, median, upper = (
        table[name].to_numpy(float)
        for name in ("runtime_s", "runtime_s_median", "runtime_s_upper")
    )
    margin = [np.zeros(len(median)), upper - median]
    axes.errorbar(measured, median, yerr=margin, **BAR)
    ends = [min(measured.min(), median.min()), max(measured.max(), upper.max())]
    axes.plot(ends, ends, color=INK, linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    below = float(np.mean(measured <= upper))
    axes.set_title(
        f"{100 * below:.0f} % of {len(table)} runs below their bound", fontsize="medium"
    )
    return _titled(axes, "measured wall time in s", "predicted, with upper bound")


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
