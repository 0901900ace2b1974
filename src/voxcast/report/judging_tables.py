"""Tables of the studies that judge: learning curves, families in pairs, places left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.report.formatting import TITLES, percent
from voxcast.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    Result = Mapping[str, Any]

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


def places(result: Result) -> Table:
    """Return errors and coverage on machines and sittings that were left out."""
    rows, unmeasured = [], []
    for app, by_kind in result.items():
        for kind, by_place in by_kind.items():
            if "not_measurable" in by_place:
                unmeasured.append(f"{app}, unseen {kind}: {by_place['not_measurable']}")
                continue
            for place, points in by_place.items():
                if "not_measurable" in points:
                    unmeasured.append(f"{app}, {kind} {place}: {points['not_measurable']}")
                    continue
                rows += [[f"{app}: {kind} {place}", *_place_cells(point)] for point in points]
    caption = (
        "A machine or a sitting that was left out: error of CPU time on unseen subjects, and how "
        "often bounds of 95 % held, after a number of local runs that tell its speed"
    )
    head = ["Left out", "Local runs", "Error", "Speed-normalised",
            *(f"Below the bound: {title}" for title in TITLES.values()), "Calibrated"]  # fmt: skip
    notes = (NORMALISED_NOTE, *([f"Not measurable: {'; '.join(unmeasured)}."] * bool(unmeasured)))
    return Table(caption, head, rows, notes)


def _place_cells(point: Result) -> list[str]:
    cpu, answers = point["errors"]["cpu_s"], point["answers"]
    return [
        str(point["local_runs"]),
        interval_of(cpu, "mape"),
        interval_of(cpu, "normalised_mape"),
        *(_coverage(point["coverage"][target]) for target in TITLES),
        percent(100 * answers["calibrated"] / answers["runs"]),
    ]


def _coverage(coverage: Result) -> str:
    low, high = (100 * end for end in coverage["interval"])
    return f"{percent(100 * coverage['rate'])} ({low:.0f} to {high:.0f})"


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
