"""Tables of the studies that judge: learning curves, and families in pairs.

The study `domain` as a table: characteristics of real heads beside the ranges of cohorts.

Figure of stated against observed probabilities of the bounds of an application's model.

Coverage of the winner's bounds on unseen subjects by application, device and quarter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.evaluation.scoring import coverage
from voxcast.models.distribution_metrics import covered_by_predicted_quarter, joint_exceedance
from voxcast.records import TARGETS
from voxcast.report.canvas import INK, SERIES, inline_svg, panel
from voxcast.report.figures import Drawing
from voxcast.report.tables import Table
from voxcast.report.wording import TITLES, heading, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    Result = Mapping[str, Any]


def domain_table(result: Mapping[str, Any]) -> Table:
    """Return the range of each characteristic among heads and in each cohort."""
    heads = {len(comparison["heads"]) for comparison in result.values()}
    rows = []
    for name in next(iter(result.values()))["range"]:
        ranges = [comparison["range"][name] for comparison in result.values()]
        missed = [
            sum(
                name == miss["characteristic"]
                for misses in comparison["misses"].values()
                for miss in misses
            )
            for comparison in result.values()
        ]
        cohorts = (
            f"{_ends(of['cohort'])}{f'; {outside} outside' if outside else ''}"
            for of, outside in zip(ranges, missed, strict=True)
        )
        rows.append([name, _ends(ranges[0]["heads"]), *cohorts])
    rows.append(
        ["heads within all ranges", "", *(str(of["heads_inside"]) for of in result.values())]
    )
    caption = (
        f"Whether {max(heads)} real heads belong to the generated cohorts: smallest and "
        "largest value of each characteristic, the 1 to 99 % range of each cohort, and how many "
        "heads lie outside it"
    )
    return Table(caption, ["", "Heads", *map(heading, result)], rows)


def _ends(values: Sequence[float]) -> str:
    return " to ".join(f"{value:.3g}" for value in values)


def reliability_panels(distribution: Mapping[str, Any], app: str) -> list[Drawing]:
    """Draw the share of unseen subjects below each quantile, one panel per target.

    Parameters
    ----------
    distribution : mapping
        By target, see `voxcast.models.evaluation.distribution_metrics`.
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


CHOSEN = "chosen"
NORMALISED_NOTE = (
    "Speed-normalised: against what the run would have taken at the usual speed of its machine, "
    "as constant work timed beside it tells. Bounds and labels stay as measured."
)


def learning_curve(result: Result) -> Table:
    """Return the error of CPU time by number of training subjects, above both floors."""
    counts = sorted({round(p["subjects"]) for curve in result.values() for p in curve["points"]})
    rows = []
    for app, curve in result.items():
        by_count = {round(p["subjects"]): p["errors"]["cpu_s"] for p in curve["points"]}
        for title, key, floor in (
            ("raw", "mape", "raw"),
            ("speed-normalised", "normalised_mape", "normalised"),
        ):
            cells = [interval_of(by_count.get(count), key) for count in counts]
            limit = curve["floors"].get(floor, {}).get("cpu_s")
            rows.append([f"{app}: {title}", *cells, "" if limit is None else percent(limit)])
    caption = (
        "Error of CPU time on unseen subjects by number of subjects that were learned from, with "
        "95 % interval over subjects, and the floor that repeats of one run set"
    )
    head = ["Application", *(f"{count} subjects" for count in counts), "Floor"]
    return Table(caption, head, rows, (NORMALISED_NOTE,))


def families(result: Result) -> Table:
    """Return each family's error of CPU time and its difference from the best."""
    rows, pairs = [], 0
    for app, by_target in result.items():
        compared = by_target["cpu_s"]
        pairs = max(pairs, int(compared["pairs"]))
        for name, scores in compared["families"].items():
            difference = scores["difference"]
            label = "chosen by inner folds" if name == CHOSEN else name
            rows.append(
                [
                    f"{app}: {label}",
                    interval_of(scores["errors"], "mape"),
                    interval_of(scores["errors"], "normalised_mape"),
                    "best" if difference is None else points_of(difference),
                ]
            )
    caption = (
        "Families on the same unseen subjects: error of CPU time, and by how much it exceeds that "
        "of the best family, in points"
    )
    note = (
        f"The intervals of the differences are paired, over subjects, and hold for all pairs of "
        f"families at once ({pairs} pairs, Bonferroni), so they hold whichever family is best. "
        "One that includes zero does not tell two families apart."
    )
    head = ["Application and family", "Error", "Speed-normalised", "Difference from the best"]
    return Table(caption, head, rows, (note, NORMALISED_NOTE))


def interval_of(scores: Result | None, key: str) -> str:
    """Write an error with its interval; empty where it is not known."""
    if scores is None or key not in scores:
        return ""
    interval = scores.get(f"{key}_interval")
    if interval is None:
        return percent(scores[key])
    low, high = (percent(max(end, 0.0)) for end in interval)
    return f"{percent(scores[key])} ({low.removesuffix(' %')} to {high})"


def points_of(difference: Result) -> str:
    """Write a paired difference in points with its interval."""
    interval = difference["interval"]
    bounds = "" if interval is None else f" ({interval[0]:+.1f} to {interval[1]:+.1f})"
    return f"{difference['points']:+.1f}{bounds}"
