"""How much faster than usual its machine was during each run: a column of the training table.

The work of neighbours comes and goes within minutes. Timings beside a run show part of it
(`voxcast.runs.speed`), so that families can be compared by errors that are less of
the machine. It is measured during the run, so it is never a feature, and labels stay as measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.features.table import SPEED_DEVIATION
from voxcast.runs.speed import speed_deviations

if TYPE_CHECKING:
    import pandas as pd


def with_speed_deviations(
    table: pd.DataFrame, runs: pd.DataFrame, phases: pd.DataFrame
) -> pd.DataFrame:
    """Add the column `SPEED_DEVIATION`, a natural logarithm whose median in every sitting is zero.

    How fast a whole sitting was is left in the times: it is for a model to know. Where nothing was
    timed beside a run the value is zero.

    Parameters
    ----------
    table : DataFrame
        As of `voxcast.features.training_table.build_table`.
    runs, phases : DataFrame
        All runs on record with their phases: the runs of the table, and others that show how runs
        follow the speed of the machine.
    """
    completed = runs[runs["outcome"] == "completed"].drop_duplicates("cell_key")
    by_key = speed_deviations(completed, phases)["log_speed"]
    deviations = table["cell_key"].map(by_key).fillna(0.0).astype(float)
    of_sitting = deviations.groupby([table["app"], table["host_id"], table["sitting"]])
    return table.assign(**{SPEED_DEVIATION: deviations - of_sitting.transform("median")})
