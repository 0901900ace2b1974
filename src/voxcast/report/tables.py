"""Tables of the report as text with units; the template turns them into HTML and escapes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.records import TARGETS
from voxcast.report.comparison import BASELINES, error_of
from voxcast.report.formatting import TITLES, counted, heading, percent, percent_interval
from voxcast.report.inputs import HEADER_ONLY, by_configuration

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.analysis.noise import Noise
    from voxcast.report.comparison import Verdict

SHOWN = 8  # features of an application


@dataclass(frozen=True)
class Table:
    """A caption, the heads of the columns, and rows of text; the first column names the row."""

    caption: str
    head: list[str]
    rows: list[list[str]]


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
        rows.append(["noise floor", "", *(percent(floor.get(t, math.nan)) for t in TARGETS), ""])
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
        rows.append(["noise floor", *(percent(floor.get(t, math.nan)) for t in TARGETS)])
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
    floors = {(one.app, one.device, one.cpus, one.scale): one for one in noises}
    rows = []
    for part in by_configuration(predicted):
        own, to = part.runs, part.configuration
        floor = floors.get((part.app, to.device, to.cpus, part.scale))
        row = [part.label, f"{len(own)} of {own['subject'].nunique()}"]
        for target in TARGETS:
            row.append(percent_interval(error_of(own, target)))
            row.append("unknown" if floor is None else percent(floor.error_percent(target)))
        rows.append(row)
    head = ["Run", "Runs of subjects"]
    for title in TITLES.values():
        head += [heading(title), "its noise"]
    return Table("Error on unseen subjects, with 95 % interval; noise: CV of repeats", head, rows)


def importance(shuffled: pd.DataFrame) -> Table | None:
    """Show by application which features a model goes by; None if by none."""
    rows = []
    for app, own in shuffled[shuffled["rise"] > 0].groupby("app", sort=True):
        first = own.nlargest(SHOWN, "rise")
        said = [f"{r['feature'].replace('_', ' ')} {r['rise']:+.1f}" for _, r in first.iterrows()]
        rows.append([str(app), ", ".join(said)])
    caption = "Features by what shuffling them adds to the error, in percentage points"
    return Table(caption, ["Application", "Features"], rows) if rows else None


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
        "mean excess of those predicted too high. Out of fold: of the application where it was "
        "worst"
    )
    return Table(caption, [*head, "Subjects above it, out of fold"], rows)


def _share(rate: float, low: float, high: float, before: str = "") -> str:
    return f"{before}{percent(100 * rate)} ({100 * low:.0f} to {percent(100 * high)})"
