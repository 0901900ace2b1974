"""Tables of the report as text with units; the template turns them into HTML and escapes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import TARGETS, Configuration
from voxcast.report.evidence import HEADER_ONLY, by_configuration
from voxcast.report.intervals import TITLES, amount, counted, heading, percent, percent_interval
from voxcast.report.verdict import BASELINES, error_of

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.report.noise import Comparison, Noise
    from voxcast.report.verdict import Verdict


@dataclass(frozen=True)
class Table:
    """A caption, the heads of the columns, and rows of text; the first column names the row."""

    caption: str
    head: list[str]
    rows: list[list[str]]


def measured(runs: pd.DataFrame) -> Table:
    """Say what was run, by application and configuration, and how it ended."""
    rows = []
    for app, configuration, own in by_configuration(runs):
        done = own[own["outcome"] == "completed"]
        rows.append(
            [
                f"{app}: {configuration.label}",
                _outcomes(own),
                f"{done['volume_id'].nunique()} of {done['subject'].nunique()}",
                *(_spread(done, target) for target in TARGETS),
                format_seconds(float(done["cpu_s"].sum())),
            ]
        )
    head = ["Run", "Outcome", "Volumes of subjects", *map(heading, TITLES.values())]
    return Table("Smallest, median and largest of the completed runs", [*head, "In all"], rows)


def _outcomes(runs: pd.DataFrame) -> str:
    counts = runs["outcome"].value_counts(sort=False).sort_index()
    return ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in counts.items())


def _spread(runs: pd.DataFrame, target: str) -> str:
    if runs.empty:
        return "none"
    values = runs[target].astype(float)
    return " · ".join(amount(target, v) for v in (values.min(), values.median(), values.max()))


def noise_floor(noises: list[Noise]) -> Table:
    """Show how far repeats differ; ``noises`` by application, device and number of CPUs."""
    rows = [
        [
            f"{one.app}: {Configuration(str(one.device), one.cpus or 0).label}",
            f"{one.cells} × {one.runs / one.cells:.2g}",
            *(percent_interval(one.cv[target]) for target in TARGETS),
        ]
        for one in noises
    ]
    head = ["Run", "Cells × times", *map(heading, TITLES.values())]
    return Table("Coefficient of variation of repeats, with 95 % interval", head, rows)


def configurations(comparisons: list[Comparison]) -> Table:
    """Compare numbers of CPUs."""
    rows = []
    for one in comparisons:
        noise = "unknown" if one.noise_percent is None else percent(one.noise_percent)
        rows.append(
            [
                f"{one.app}, {one.device}: {one.cpus} against {one.base_cpus}",
                str(len(one.pairs)),
                _ratio(one.speedup.value, one.speedup.low, one.speedup.high),
                _ratio(one.cpu_ratio.value, one.cpu_ratio.low, one.cpu_ratio.high),
                percent(100 * one.speedup.value * one.base_cpus / one.cpus),
                noise,
            ]
        )
    caption = (
        "Geometric means over volumes, with 95 % interval over subjects; efficiency: times faster "
        "over times the CPUs"
    )
    head = ["CPUs", "Volumes", "Times faster", "Times the CPU time", "Efficiency", "Repeat noise"]
    return Table(caption, head, rows)


def _ratio(value: float, low: float, high: float) -> str:
    return f"{value:.2f} ({low:.2f} to {high:.2f})" if low == low else f"{value:.2f}"


def cross_validated(verdict: Verdict, leaderboard: pd.DataFrame, floor: dict[str, float]) -> Table:
    """Rank the families by cross-validation, the noise floor below them."""
    rows = [
        [
            _model_name(str(row["family"]), verdict),
            f"{row['cv_objective']:.3f}",
            *(percent(verdict.cross_validated[str(row["family"])][t]) for t in TARGETS),
            _trials(row),
        ]
        for row in leaderboard.to_dict("records")
    ]
    if floor:
        rows.append(["noise floor", "", *(percent(floor[t]) for t in TARGETS), ""])
    caption = (
        "By cross-validation on the training side: mean absolute percentage error. The objective, "
        "mean log error of CPU time and memory, decides"
    )
    head = ["Model", "Objective", *map(heading, TITLES.values()), "Trials"]
    return Table(caption, head, rows)


def tested(verdict: Verdict, floor: dict[str, float]) -> Table:
    """Show every family's error on unseen subjects, with interval, the noise floor below."""
    rows = []
    for name, errors_of in verdict.tested.items():
        shown = "best on headers alone" if name == HEADER_ONLY else _model_name(name, verdict)
        rows.append([shown, *(percent_interval(errors_of[t]) for t in TARGETS)])
    if floor:
        rows.append(["noise floor", *(percent(floor[t]) for t in TARGETS)])
    subjects = counted(verdict.test_subjects, "unseen subject")
    caption = f"On {subjects}: mean absolute percentage error, with 95 % interval"
    return Table(caption, ["Model", *map(heading, TITLES.values())], rows)


def _model_name(name: str, verdict: Verdict) -> str:
    parts = [name]
    if name in BASELINES:
        parts.append("(baseline)")
    if name == verdict.winner:
        parts.append("★ best")
    return " ".join(parts)


def _trials(row: dict[Any, Any]) -> str:
    pruned = f", {int(row['pruned'])} pruned" if int(row["pruned"]) else ""
    return f"{int(row['trials'])}{pruned}{', cut short' if row['cut_short'] is True else ''}"


def errors(predicted: pd.DataFrame, noises: list[Noise]) -> Table:
    """Show the winner's error by application and configuration, the noise floor beside it."""
    floors = {(one.app, one.device, one.cpus): one for one in noises}
    rows = []
    for app, configuration, own in by_configuration(predicted):
        floor = floors.get((app, configuration.device, configuration.cpus))
        row = [
            f"{app}: {configuration.label}",
            f"{len(own)} of {own['subject'].nunique()}",
        ]
        for target in TARGETS:
            row.append(percent_interval(error_of(own, target)))
            row.append("unknown" if floor is None else percent(floor.cv[target].value))
        rows.append(row)
    head = ["Run", "Runs of subjects"]
    for title in TITLES.values():
        head += [heading(title), "its noise"]
    return Table("Error on unseen subjects, with 95 % interval; noise: CV of repeats", head, rows)


def bounds(found: dict[str, dict[str, Any]], risk: dict[str, dict[str, Any]]) -> Table:
    """Show how the winner's bounds held: on unseen subjects, and out of fold.

    Parameters
    ----------
    found : dict
        The winner's metrics by target; empty without a test side.
    risk : dict
        ``risk_at_upper_quantile`` of the receipt.
    """
    rows = []
    for target in TARGETS:
        own, known = found.get(target), risk[target]
        low, high = known["interval"]
        row = [heading(TITLES[target])]
        if own:
            row += [
                percent(100 * own["coverage"]),
                percent(100 * own["inside"]),
                _share(own["under_request"], own["under_request_low"], own["under_request_high"]),
                f"{own['asked_over_used']:.2f}×",
                percent(own["upp"]),
                percent(own["ov_mape"]),
            ]
        rows.append(
            [*row, _share(known["rate"], low, high, f"{known['exceeded']}/{known['subjects']}: ")]
        )
    head = ["Target"]
    if found:
        head += [
            "Runs below upper bound",
            "Runs inside both",
            "Subjects above it",
            "Asked over used",
            "UPP",
            "OV_MAPE",
        ]
    caption = (
        "Rates with exact 95 % interval. UPP: runs predicted too low by the median; OV_MAPE: "
        "mean excess of those predicted too high"
    )
    return Table(caption, [*head, "Subjects above it, out of fold"], rows)


def _share(rate: float, low: float, high: float, before: str = "") -> str:
    return f"{before}{percent(100 * rate)} ({100 * low:.0f} to {percent(100 * high)})"


def phases(summary: pd.DataFrame) -> Table:
    """Show medians of every phase."""
    rows = [
        [
            f"{row['app']}: {row['cpus']} CPU{'s' if row['cpus'] != 1 else ''}",
            str(row["phase"]),
            str(row["runs"]),
            amount("cpu_s", float(row["duration_s"])),
            percent(100 * float(row["share"])),
            amount("cpu_s", float(row["cpu_s"])),
            format_bytes(row["peak_rss_bytes"]) if row["peak_rss_bytes"] > 0 else "unknown",
        ]
        for row in summary.to_dict("records")
    ]
    head = ["Run", "Phase", "Runs", "Wall time", "Of all phases", "CPU time", "Peak memory"]
    return Table("Medians over completed runs", head, rows)
