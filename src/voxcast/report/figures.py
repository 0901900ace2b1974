"""Figures of models and predictions, as small panels of inline SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.model_comparison import BASELINES, mean_error
from voxcast.analysis.run_groups import by_configuration
from voxcast.features.descriptions import quantity_title, value_range
from voxcast.quantities import counted
from voxcast.records import TARGETS
from voxcast.report.canvas import INK, SERIES, inline_svg, interval, log_axes, panel
from voxcast.report.formatting import TITLES, heading, percent
from voxcast.report.labels import run_group_label

if TYPE_CHECKING:
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
