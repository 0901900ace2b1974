"""Tables of the studies that judge: learning curves, families in pairs, heads beside cohorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.report.tables import Table
from voxcast.report.wording import heading, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
