"""Figures of models, predictions and memory, as small panels of inline SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.model_comparison import BASELINES, mean_error
from voxcast.analysis.run_groups import by_configuration
from voxcast.features.descriptions import quantity_title, value_range
from voxcast.phases.segments import segmented_runs
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import TARGETS
from voxcast.report.canvas import (
    INK,
    SERIES,
    inline_svg,
    interval,
    log_axes,
    panel,
)
from voxcast.report.wording import TITLES, heading, percent, run_group_label
from voxcast.runs.series import phases_of, read_record, traces_of
from voxcast.runs.table import frame_of

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from markupsafe import Markup

    from voxcast.analysis.model_comparison import ModelComparison


MAX_NAMES = 2  # of families with the same values, on one label
_RATES = ("under_request_high", "under_request", "under_request_low")


@dataclass(frozen=True)
class Drawing:
    """An inline ``svg`` element and its caption."""

    svg: Markup
    caption: str


def error_panels(
    models: ModelComparison, noise_percent: dict[str, float], app: str = ""
) -> list[Drawing]:
    """Draw the error of every family, one panel per target, best by cross-validation first.

    ``app`` is the application; it makes the ids of the figures unique on the page.
    """
    families = list(models.cross_validated)
    drawings = []
    for target in TARGETS:
        with panel(4.2, 1.2 + 0.34 * len(families)) as (figure, axes):
            errors = [
                *(models.cross_validated[family][target] for family in families),
                *(e[target].value for family, e in models.tested.items() if family in families),
            ]
            limits = 0.0, 1.3 * max(errors) or 1.0
            for row, family in enumerate(families):
                validated = models.cross_validated[family][target]
                tested = models.tested.get(family, {}).get(target)
                if tested:
                    y = row + 0.17
                    if tested.bounded:  # an error cannot be below zero
                        ends = max(tested.low, 0.0), tested.high
                        interval(axes, y, ends, limits, SERIES[1])
                    axes.plot(tested.value, y, "D", color=SERIES[1], markersize=5)
                axes.plot(validated, row - 0.17 * bool(tested), "o", color=SERIES[0], markersize=6)
                text = percent(tested.value if tested else validated)
                axes.text(1.03, row, text, va="center", transform=axes.get_yaxis_transform())
            axes.set_xlim(*limits)
            axes.set_ylim(len(families) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            labels = [f"{name} (baseline)" if name in BASELINES else name for name in families]
            axes.set_yticks(range(len(families)), labels)
            axes.get_yticklabels()[families.index(models.winner)].set_fontweight("bold")
            if target in noise_percent:
                axes.axvline(noise_percent[target], color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set(xlabel="mean absolute error (%)", title=heading(TITLES[target]))
            alt = f"Error of {TITLES[target]} by model: " + ", ".join(
                f"{name} {percent(models.cross_validated[name][target])}" for name in families
            )
            svg = inline_svg(figure, f"error {target} {app}".strip(), alt)
        drawings.append(Drawing(svg, ""))
    return drawings


def scatter_panels(predictions: pd.DataFrame) -> list[Drawing]:
    """Draw predicted against measured values, one panel per configuration and target."""
    return [
        _scatter(group.runs, run_group_label(group), target)
        for group in by_configuration(predictions)
        for target in TARGETS
    ]


def _scatter(predictions: pd.DataFrame, title: str, target: str) -> Drawing:
    factor, unit = (1e9, "GB") if target.endswith("_bytes") else (1.0, "s")
    actual, low, median, high = (
        predictions[f"{target}_{kind}"].to_numpy() / factor
        for kind in ("actual", "lower", "median", "upper")
    )
    above = actual > high
    with panel(4.2, 3.9) as (figure, axes):
        axes.vlines(actual, low, high, color=SERIES[0], alpha=0.35, linewidth=2)
        axes.plot(actual[~above], median[~above], "o", color=SERIES[0], markersize=5.5)
        axes.plot(actual[above], median[above], "X", color=SERIES[1], markersize=8)
        values = np.concatenate([actual, low, median, high])
        log_axes(axes, values, values)
        axes.axline((1, 1), (10, 10), color=INK, linewidth=0.9, zorder=0)
        axes.set(
            xlabel=f"measured {TITLES[target]} ({unit})",
            ylabel=f"predicted {TITLES[target]} ({unit})",
            title=title,
        )
        error = mean_error(predictions, target)
        alt = (
            f"Predicted against measured {TITLES[target]} of {title}: "
            f"{counted(len(predictions), 'run')}, mean error {percent(error.value)}, "
            f"{int(above.sum())} above the upper bound"
        )
        svg = inline_svg(figure, f"scatter {target} {title}", alt)
    above_text = f"; {int(above.sum())} above the upper bound" if above.any() else ""
    runs = f"{counted(len(predictions), 'run')} of {counted(error.subjects, 'subject')}"
    return Drawing(
        svg, f"{heading(TITLES[target])}: mean error {percent(error.value)} on {runs}{above_text}."
    )


def dependence_panels(dependence: pd.DataFrame) -> list[Drawing]:
    """Draw the mean prediction against the quantile of each feature, one panel per application."""
    drawings = []
    for app, app_dependence in dependence.groupby("app", sort=True):
        with panel(4.2, 3.2) as (figure, axes):
            ranges = []
            for k, (feature, curve) in enumerate(app_dependence.groupby("feature", sort=False)):
                name = quantity_title(str(feature))
                axes.plot(
                    100 * curve["quantile"], curve["factor"], "o-", color=SERIES[k % len(SERIES)],
                    markersize=4, linewidth=1.3, label=name,
                )  # fmt: skip
                low, high = curve["value"].iloc[[0, -1]]
                ranges.append(f"{name} {value_range(str(feature), low, high)}")
            axes.legend(fontsize=8)
            axes.set(xlabel="quantile of the feature (%)", ylabel="CPU time relative to 50 %",
                     title=str(app))  # fmt: skip
            alt = f"Dependence of {app} on {', '.join(ranges)}"
            svg = inline_svg(figure, f"dependence {app}", alt)
        drawings.append(
            Drawing(svg, f"Range from the 5 % to the 95 % quantile: {'; '.join(ranges)}.")
        )
    return drawings


def coverage_panels(
    metrics: dict[str, dict[str, dict[str, float]]], upper_quantile: float, app: str = ""
) -> list[Drawing]:
    """Draw the share of unseen subjects below the upper bound, one panel per target.

    Families with the same values share a line.

    Parameters
    ----------
    metrics : dict
        Metrics of evaluation by family and target.
    upper_quantile : float
        Nominal coverage of the bound, such as 0.95.
    app : str
        The application; it makes the ids of the figures unique on the page.
    """
    drawings = []
    for target in TARGETS:
        names_by_rates: dict[tuple[float, ...], list[str]] = {}
        for name, by_target in metrics.items():
            rates = tuple(100 * (1 - by_target[target][key]) for key in _RATES)
            names_by_rates.setdefault(rates, []).append(name.replace("_", " "))
        labels = [_folded(names) for names in names_by_rates.values()]
        with panel(4.2, 1.2 + 0.3 * len(labels)) as (figure, axes):
            for row, (low, value, high) in enumerate(names_by_rates):
                axes.plot([low, high], [row] * 2, color=SERIES[0], linewidth=1.3)
                axes.plot(value, row, "o", color=SERIES[0])
            axes.axvline(100 * upper_quantile, color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_xlim(-3, 103)
            axes.set_ylim(len(labels) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.set_yticks(range(len(labels)), labels)
            axes.set(xlabel="subjects below the upper bound (%)", title=heading(TITLES[target]))
            alt = f"Share of subjects below the upper bound of {TITLES[target]}: " + "; ".join(
                f"{', '.join(names)}: {percent(value)}"
                for (_, value, _), names in names_by_rates.items()
            )
            svg = inline_svg(figure, f"coverage {target} {app}".strip(), alt)
        equal = [names for names in names_by_rates.values() if len(names) > MAX_NAMES]
        caption = "; ".join(f"{_folded(names)}: {', '.join(names)}" for names in equal)
        drawings.append(Drawing(svg, f"{caption}." if caption else ""))
    return drawings


def _folded(names: list[str]) -> str:
    """Return the label of families with the same values."""
    return ", ".join(names) if len(names) <= MAX_NAMES else f"{len(names)} models"


MIN_NUMBER_SHARE = 0.02  # of the time of a run: shorter stretches have no number in them


@dataclass(frozen=True, eq=False)
class RunMemory:
    """Memory of a run.

    Attributes
    ----------
    title : str
        Application and allocation.
    samples : DataFrame
        Columns ``t_s`` and ``rss_bytes``.
    phases : DataFrame
        Columns ``phase``, ``start_s`` and ``end_s``.
    is_logged : bool
        Whether the application logged them; else they were read from the samples.
    """

    title: str
    samples: pd.DataFrame
    phases: pd.DataFrame
    is_logged: bool


def run_memory(folder: Path) -> RunMemory | None:
    """Read the memory of a recorded run; None if it has fewer than two samples.

    Raises
    ------
    TableError
        If the record is missing or broken.
    """
    runs = frame_of([vars(read_record(folder).run)])
    traces, phases = traces_of([folder]), phases_of([folder])
    if len(traces) < 2:
        return None
    is_logged = len(phases) > 0
    if not is_logged and runs["outcome"].iloc[0] == "completed":
        phases = segmented_runs(runs, traces).phases
    run = runs.iloc[0]
    title = f"{run['app']}, {counted(int(run['cpus']), 'CPU')}"
    return RunMemory(title, traces, phases, is_logged)


def memory_drawing(run: RunMemory, name: str = "") -> Drawing:
    """Draw memory over time, with each phase as a numbered band.

    Parameters
    ----------
    run : RunMemory
        The run.
    name : str
        Makes the ids of the figure unique on the page.
    """
    t_s, rss_bytes = (run.samples[c].to_numpy(float) for c in ("t_s", "rss_bytes"))
    names = list(dict.fromkeys(run.phases["phase"]))
    end_s = max(float(t_s.max()), float(run.phases["end_s"].max()) if names else 0.0)
    factor, unit = (1e9, "GB") if rss_bytes.max() >= 1e9 else (1e6, "MB")
    with panel(4.2, 2.9) as (figure, axes):
        for phase in run.phases.to_dict("records"):
            number = names.index(phase["phase"])
            begin, stop = float(phase["start_s"]), float(phase["end_s"])
            colour = SERIES[number % len(SERIES)]
            axes.axvspan(begin, stop, color=colour, alpha=0.28, linewidth=0)
            if stop - begin >= MIN_NUMBER_SHARE * end_s:
                axes.text(
                    (begin + stop) / 2, 1.02, str(number + 1), ha="center", fontsize=8.5,
                    transform=axes.get_xaxis_transform(),
                )  # fmt: skip
        axes.plot(t_s, rss_bytes / factor, color=INK, linewidth=1.3)
        axes.set_xlim(0, end_s)
        axes.set_ylim(0, 1.08 * float(rss_bytes.max()) / factor)
        axes.set(xlabel="time since the start (s)", ylabel=f"memory ({unit})")
        axes.set_title(run.title, pad=16)
        texts = _texts(run, names, t_s, rss_bytes)
        alt = f"Memory of {run.title}: {', '.join(texts) or 'no phase'}"
        svg = inline_svg(figure, f"memory {run.title} {name}".strip(), alt)
    origin = "logged by the application" if run.is_logged else "read from the memory"
    caption = f"Phases {origin}: {'; '.join(texts)}." if texts else "No phase."
    return Drawing(svg, caption)


def _texts(run: RunMemory, names: list[str], t_s: np.ndarray, rss_bytes: np.ndarray) -> list[str]:
    """Write number, name, time and peak memory of each phase."""
    texts = []
    for number, name in enumerate(names, 1):
        stretches = run.phases[run.phases["phase"] == name]
        begin, stop = (stretches[c].to_numpy(float) for c in ("start_s", "end_s"))
        inside = ((t_s >= begin[:, None]) & (t_s <= stop[:, None])).any(axis=0)
        peak_bytes = rss_bytes[inside].max(initial=0.0)
        peak = f", {format_bytes(peak_bytes)}" if peak_bytes else ""
        texts.append(f"{number} {name} {format_seconds(float((stop - begin).sum()))}{peak}")
    return texts
