"""The runs on record that an application's models were learned from, counted by origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TrainingRuns:
    """Counts of the training table for one application.

    Attributes
    ----------
    runs, subjects : int
        Size of the table.
    image_sets : int
        Image sets that the volumes of runs measured in this project came from.
    batches : tuple of str
        Recorded parts that are not of this project's own runs.
    noisy : int
        Runs that shared the machine with other work.
    """

    runs: int
    subjects: int
    image_sets: int
    batches: tuple[str, ...]
    noisy: int

    @property
    def noisy_share(self) -> float:
        """Share of runs that shared the machine with other work, 0 to 1."""
        return self.noisy / self.runs if self.runs else 0.0


def training_runs(table: pd.DataFrame, app: str) -> TrainingRuns:
    """Count the runs of an application in a training table.

    Parameters
    ----------
    table : DataFrame
        With ``app subject noisy image_set batch``, see
        `voxcast.features.training_table.build_table`.
    app : str
        Name of the application.
    """
    rows = table[table["app"] == app]
    measured_here = rows[rows["batch"] == ""]
    return TrainingRuns(
        runs=len(rows),
        subjects=int(rows["subject"].nunique()),
        image_sets=int(measured_here.loc[measured_here["image_set"] != "", "image_set"].nunique()),
        batches=tuple(sorted(set(rows["batch"]) - {""})),
        noisy=int(rows["noisy"].sum()),
    )
