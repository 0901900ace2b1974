"""Coverage of the winner's bounds on unseen subjects by application, device and quarter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.evaluation.scoring import coverage
from voxcast.models.distribution_metrics import covered_by_predicted_quarter, joint_exceedance
from voxcast.records import TARGETS
from voxcast.report.formatting import TITLES
from voxcast.report.tables import Table

if TYPE_CHECKING:
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
