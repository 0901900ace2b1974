"""Coverage of bounds on unseen subjects, and stated against observed probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.evaluation.scoring import coverage
from voxcast.models.metrics import covered_by_predicted_quarter, joint_exceedance
from voxcast.records import TARGETS
from voxcast.report.canvas import INK, SERIES, inline_svg, panel
from voxcast.report.figures import Drawing
from voxcast.report.tables import Table
from voxcast.report.wording import TITLES, heading, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


def coverage_table(predictions: pd.DataFrame) -> Table | None:
    """Count subjects below their upper bound by application, device and target.

    Parameters
    ----------
    predictions : DataFrame
        The winner's rows of ``predictions.csv``.
    """
    rows = []
    targets = list(TARGETS)
    for (app, device), runs in predictions.groupby(["app", "device"], sort=True):
        for target in TARGETS:
            measured = runs.rename(columns={f"{target}_actual": target}).assign(noisy=False)
            counts = coverage(measured, target)
            low, high = (100 * end for end in counts["interval"])
            quartiles = covered_by_predicted_quarter(
                *(runs[f"{target}_{column}"] for column in ("actual", "upper", "median"))
            )
            rows.append(
                [
                    f"{app} on {device}: {TITLES[target]}",
                    f"{counts['covered']} of {counts['subjects']} ({low:.0f} to {high:.0f} %)",
                    " · ".join(f"{covered}/{count}" for covered, count in quartiles),
                ]
            )
        above, subjects, interval = joint_exceedance(
            runs[[f"{target}_actual" for target in targets]],
            runs[[f"{target}_upper" for target in targets]],
            runs["subject"],
        )
        low, high = (100 * (1 - end) for end in reversed(interval))
        held = f"{subjects - above} of {subjects} ({low:.0f} to {high:.0f} %)"
        rows.append([f"{app} on {device}: all of them together", held, ""])
    caption = (
        "Unseen subjects whose runs all stayed below the upper bound, with exact binomial 95 % "
        "interval; and runs below the bound, by quarter of the predicted value, the largest last. "
        "Each bound is stated for its target alone: all together hold less often"
    )
    head = ["", "Subjects below the bound", "Runs by quarter"]
    return Table(caption, head, rows) if rows else None


def reliability_panels(distribution: Mapping[str, Any], app: str) -> list[Drawing]:
    """Draw the share of unseen subjects below each quantile, one panel per target.

    Parameters
    ----------
    distribution : mapping
        By target, see `voxcast.models.metrics.distribution_metrics`.
    app : str
        The application; it makes the ids of the figures unique on the page.
    """
    return [_panel(distribution[target], target, app) for target in TARGETS]


def _panel(scores: Mapping[str, Any], target: str, app: str) -> Drawing:
    points = scores["reliability"]
    nominal = [100 * point["nominal"] for point in points]
    observed = [100 * point["below"] / point["subjects"] for point in points]
    with panel(4.2, 3.6) as (figure, axes):
        for x, point in zip(nominal, points, strict=True):
            axes.plot([x] * 2, [100 * end for end in point["interval"]], color=SERIES[0],
                      linewidth=1.3)  # fmt: skip
        axes.plot(nominal, observed, "o", color=SERIES[0], markersize=5.5)
        axes.axline((0, 0), (100, 100), color=INK, linewidth=0.9, zorder=0)
        axes.set_xlim(-3, 103)
        axes.set_ylim(-3, 103)
        axes.set(
            xlabel="stated probability (%)", ylabel="subjects below the quantile (%)",
            title=heading(TITLES[target]),
        )  # fmt: skip
        alt = f"Subjects below the quantiles of {TITLES[target]}: " + ", ".join(
            f"{percent(share)} at {x:.0f} %" for x, share in zip(nominal, observed, strict=True)
        )
        svg = inline_svg(figure, f"reliability {target} {app}".strip(), alt)
    crps = percent(100 * scores["crps_log"])
    return Drawing(svg, f"CRPS of the logarithm, a relative error: {crps}.")
