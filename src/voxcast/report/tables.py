"""Tables of models and predictions as text with units; the template escapes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.analysis.model_comparison import BASELINES, CONSTANT, HEADER_ONLY, mean_error
from voxcast.analysis.run_groups import by_configuration
from voxcast.features.descriptions import quantity_title
from voxcast.quantities import counted
from voxcast.records import TARGETS
from voxcast.report.wording import TITLES, heading, percent, percent_interval, run_group_label

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.analysis.model_comparison import ModelComparison
    from voxcast.analysis.noise import RepeatNoise

UPP_NOTE = (
    "UPP is the share of runs for which the number is too low (under-predicted). OV_MAPE is the "
    "mean excess of the other runs (over-predicted), in percent of what they used."
)
ONE_SUBJECT_NOTE = "An error over the runs of one subject has no interval."
MAX_FEATURES = 8  # listed for an application


@dataclass(frozen=True)
class Table:
    """A caption, column heads, and rows of text whose first cell is the row head.

    ``notes`` are sentences below the table.
    """

    caption: str
    head: list[str]
    rows: list[list[str]]
    notes: tuple[str, ...] = ()


def cross_validated(
    models: ModelComparison, leaderboard: pd.DataFrame, floor: dict[str, float]
) -> Table:
    """Rank the families by cross-validation, with the noise floor in the last row."""
    rows = [
        [
            _model_name(str(row["family"]), models),
            f"{row['cv_objective']:.3f}",
            *(percent(models.cross_validated[str(row["family"])][t]) for t in TARGETS),
            _trials(row),
        ]
        for row in leaderboard.to_dict("records")
    ]
    if floor:
        rows.append(["noise floor", "", *(percent(floor.get(t, math.nan)) for t in TARGETS), ""])
    caption = (
        "Cross-validation on the training side: mean absolute percentage error. Families are "
        "ranked by the objective, the mean absolute log error of CPU time and memory"
    )
    head = ["Model", "Objective", *map(heading, TITLES.values()), "Trials"]
    return Table(caption, head, rows)


def tested(models: ModelComparison, floor: dict[str, float]) -> Table:
    """List every family's error on unseen subjects, with the noise floor in the last row."""
    rows = []
    for name, error_by_target in models.tested.items():
        label = "best on headers alone" if name == HEADER_ONLY else _model_name(name, models)
        rows.append([label, *(percent_interval(error_by_target[t]) for t in TARGETS)])
    if floor:
        rows.append(["noise floor", *(percent(floor.get(t, math.nan)) for t in TARGETS)])
    caption = (
        f"Mean absolute percentage error on {counted(models.test_subjects, 'unseen subject')}"
    )
    if models.test_subjects > 1:
        caption += ", with 95 % interval over subjects"
    notes = () if models.test_subjects > 1 else (ONE_SUBJECT_NOTE,)
    return Table(caption, ["Model", *map(heading, TITLES.values())], rows, notes)


def _model_name(name: str, models: ModelComparison) -> str:
    parts = [name]
    if name in BASELINES:
        parts.append("(constant baseline)" if name == CONSTANT else "(baseline)")
    if name == models.winner:
        parts.append("★ best")
    return " ".join(parts)


def _trials(row: dict[Any, Any]) -> str:
    pruned = f", {int(row['pruned'])} pruned" if int(row["pruned"]) else ""
    return f"{int(row['trials'])}{pruned}{', cut short' if row['cut_short'] is True else ''}"


def errors(predictions: pd.DataFrame, noise: list[RepeatNoise]) -> Table:
    """List the winner's error and the noise floor by application and configuration."""
    floors = {(n.app, n.device, n.cpus, n.scale): n for n in noise}
    rows = []
    for group in by_configuration(predictions):
        runs, configuration = group.runs, group.configuration
        floor = floors.get((group.app, configuration.device, configuration.cpus, group.scale))
        row = [run_group_label(group), f"{len(runs)} of {runs['subject'].nunique()}"]
        for target in TARGETS:
            row.append(percent_interval(mean_error(runs, target)))
            row.append("unknown" if floor is None else percent(floor.error_percent(target)))
        rows.append(row)
    head = ["Run", "Runs of subjects"]
    for title in TITLES.values():
        head += [heading(title), "Noise floor"]
    caption = (
        "Mean absolute percentage error on unseen subjects, with 95 % interval over subjects; "
        "noise floor: the expected error of predicting the mean of repeats"
    )
    has_single = any(g.runs["subject"].nunique() < 2 for g in by_configuration(predictions))
    return Table(caption, head, rows, (ONE_SUBJECT_NOTE,) if has_single else ())


def importance(shuffled: pd.DataFrame) -> Table | None:
    """List the important features of each application; None if there are none."""
    rows = []
    for app, features in shuffled[shuffled["rise"] > 0].groupby("app", sort=True):
        first = features.nlargest(MAX_FEATURES, "rise")
        texts = [f"{quantity_title(r['feature'])} {r['rise']:+.1f}" for _, r in first.iterrows()]
        rows.append([str(app), ", ".join(texts)])
    caption = "Features by the increase of the error when they are shuffled, in percentage points"
    return Table(caption, ["Application", "Features"], rows) if rows else None


def bounds(metrics: dict[str, dict[str, Any]], risk: dict[str, dict[str, Any]]) -> Table:
    """List the coverage of the winner's bounds on unseen subjects and out of fold.

    Parameters
    ----------
    metrics : dict
        The winner's metrics by target; empty without a test side.
    risk : dict
        ``risk_at_upper_quantile`` of the receipt.
    """
    rows = []
    for target in TARGETS:
        tested, out_of_fold = metrics.get(target), risk[target]
        low, high = out_of_fold["interval"]
        row = [heading(TITLES[target])]
        if tested:
            row += [
                percent(100 * tested["coverage"]),
                percent(100 * tested["inside"]),
                _share(
                    tested["under_request"],
                    tested["under_request_low"],
                    tested["under_request_high"],
                ),
                f"{tested['asked_over_used']:.2f}×",
                percent(tested["upp"]),
                percent(tested["ov_mape"]),
            ]
        rows.append(
            [
                *row,
                _share(
                    out_of_fold["rate"],
                    low,
                    high,
                    f"{out_of_fold['exceeded']}/{out_of_fold['subjects']}: ",
                ),
            ]
        )
    head = ["Target"]
    if metrics:
        head += [
            "Runs below upper bound",
            "Runs within both bounds",
            "Subjects above upper bound",
            "Requested / used",
            "Median too low (UPP)",
            "Excess of the others (OV_MAPE)",
        ]
    caption = (
        "Coverage of the bounds, and over- and under-prediction of the median. Rates have an "
        "exact binomial 95 % interval"
    )
    notes = (
        "Requested / used: the sum of the upper bounds over the sum of what the runs used.",
        *((UPP_NOTE,) if metrics else ()),
    )
    return Table(caption, [*head, "Subjects above upper bound, out of fold"], rows, notes)


def _share(rate: float, low: float, high: float, prefix: str = "") -> str:
    return f"{prefix}{percent(100 * rate)} ({100 * low:.0f} to {percent(100 * high)})"
