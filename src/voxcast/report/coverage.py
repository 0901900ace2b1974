"""How the winner's bounds held on unseen subjects: never only pooled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.records import TARGETS
from voxcast.report.formatting import TITLES
from voxcast.report.tables import Table
from voxcast.studies.judgement import coverage

if TYPE_CHECKING:
    import pandas as pd


def held(own: pd.DataFrame) -> Table | None:
    """Count subjects below their upper bound by application, device and target.

    Parameters
    ----------
    own : DataFrame
        The winner's rows of ``predictions.csv``.
    """
    rows = []
    for (app, device), runs in own.groupby(["app", "device"], sort=True):
        for target in TARGETS:
            known = runs.rename(columns={f"{target}_actual": target}).assign(noisy=False)
            said = coverage(known, target)
            low, high = (100 * end for end in said["interval"])
            quartiles = (f"{part['covered']}/{part['runs']}" for part in said["by_quartile"])
            rows.append(
                [
                    f"{app} on {device}: {TITLES[target]}",
                    f"{said['covered']} of {said['subjects']} ({low:.0f} to {high:.0f} %)",
                    " · ".join(quartiles),
                ]
            )
    caption = (
        "Unseen subjects all of whose runs stayed below the upper bound, with exact 95 % "
        "interval; and runs below it, by quartile of what was measured"
    )
    head = ["", "Subjects below the bound", "Runs by quartile"]
    return Table(caption, head, rows) if rows else None
