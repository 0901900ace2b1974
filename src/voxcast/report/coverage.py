"""Coverage of the winner's bounds on unseen subjects by application, device and quartile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.records import TARGETS
from voxcast.report.formatting import TITLES
from voxcast.report.tables import Table
from voxcast.studies.scoring import coverage

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
    for (app, device), runs in predictions.groupby(["app", "device"], sort=True):
        for target in TARGETS:
            measured = runs.rename(columns={f"{target}_actual": target}).assign(noisy=False)
            counts = coverage(measured, target)
            low, high = (100 * end for end in counts["interval"])
            quartiles = (f"{q['covered']}/{q['runs']}" for q in counts["by_quartile"])
            rows.append(
                [
                    f"{app} on {device}: {TITLES[target]}",
                    f"{counts['covered']} of {counts['subjects']} ({low:.0f} to {high:.0f} %)",
                    " · ".join(quartiles),
                ]
            )
    caption = (
        "Unseen subjects whose runs all stayed below the upper bound, with exact binomial 95 % "
        "interval; and runs below the bound, by quartile of the measured value"
    )
    head = ["", "Subjects below the bound", "Runs by quartile"]
    return Table(caption, head, rows) if rows else None
