"""Phases logged by the applications, from the records of their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.history.run_series import phases_in
from voxcast.history.run_table import PHASE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd


def phase_table(folders: Iterable[Path]) -> pd.DataFrame:
    """Read the phases of all runs recorded in ``folders``.

    Parameters
    ----------
    folders : iterable of Path
        Folders with a table of phases, or with one folder per run.

    Returns
    -------
    DataFrame
        One row per phase, by cell key and start; times in seconds from the start of the run.
        Empty, with all columns, if there are none. A broken record is skipped with a warning.
    """
    import pandas as pd

    tables = [frame_of([], PHASE_DTYPES), *map(phases_in, folders)]
    table = pd.concat([frame for frame in tables if len(frame)] or tables[:1])
    return table.sort_values(["cell_key", "start_s"], kind="stable", ignore_index=True)


def phase_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise phases over runs.

    Returns
    -------
    DataFrame
        One row for each application, number of CPUs and phase, in the order of the phases: `runs`,
        medians of `duration_s`, `cpu_s` and `peak_rss_bytes`, and `share`, the phase's share of
        the duration of all phases of that application and number of CPUs.
    """
    keys = ["app", "cpus", "phase"]
    summary = (
        table.astype({"peak_rss_bytes": "float64"})
        .groupby(keys, as_index=False)
        .agg(
            runs=("cell_key", "nunique"),
            start_s=("start_s", "median"),
            duration_s=("duration_s", "median"),
            cpu_s=("cpu_s", "median"),
            peak_rss_bytes=("peak_rss_bytes", "median"),
            total_s=("duration_s", "sum"),
        )
        .sort_values(["app", "cpus", "start_s"], ignore_index=True)
    )
    total_s = summary.groupby(["app", "cpus"])["total_s"].transform("sum")
    return summary.assign(share=summary["total_s"] / total_s).drop(columns=["start_s", "total_s"])
