"""Phases logged by the applications: from the records of their runs, and as matrices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError
from voxcast.records import MEASURED
from voxcast.runs.series import phases_in, with_peaks
from voxcast.runs.table import PHASE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
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


MEAN_LABEL = "mean_rss_bytes"


@dataclass(frozen=True, eq=False)
class PhaseMatrix:
    """Runs with the same phases.

    Attributes
    ----------
    phases : tuple of str
        In their order; a phase that occurs several times, such as an epoch, counts once.
    cell_keys : tuple of str
        The runs.
    duration_s, peak_bytes : ndarray, shape (runs, phases)
        Total duration and highest peak of each phase.
    read_at_ends : mapping of str to int
        Number of runs by phase whose memory in it is that at its ends: no sample lies in it.
    left_out : mapping of str to int
        Number of runs that are not in the matrix, by cause.
    """

    phases: tuple[str, ...]
    cell_keys: tuple[str, ...]
    duration_s: np.ndarray
    peak_bytes: np.ndarray
    read_at_ends: Mapping[str, int]
    left_out: Mapping[str, int]


def phase_matrix(runs: pd.DataFrame, phases: pd.DataFrame, traces: pd.DataFrame) -> PhaseMatrix:
    """Arrange the phases of the completed runs of one application.

    The sequence of phases of most runs counts. A phase without a peak gets its peak in the trace,
    see `voxcast.runs.series`.

    Parameters
    ----------
    runs, phases, traces : DataFrame
        Of the application; columns as in `voxcast.runs.table`.

    Raises
    ------
    TableError
        If no completed run has the peaks of all its phases.
    """
    completed = set(runs.loc[runs["outcome"] == "completed", "cell_key"])
    phases = phases[phases["cell_key"].isin(completed)]
    table = with_peaks(phases, traces)
    imported = set(runs.loc[runs["source"] != MEASURED, "cell_key"])
    is_stated = phases["cell_key"].isin(imported) & phases["peak_rss_bytes"].notna()
    by_phase = (
        table.assign(
            peak_rss_bytes=table["peak_rss_bytes"].astype("float64"),
            read_at_ends=table["without_sample"] & ~is_stated,
        )
        .groupby(["cell_key", "phase"], sort=False)
        .agg(
            start_s=("start_s", "min"),
            duration_s=("duration_s", "sum"),
            peak_bytes=("peak_rss_bytes", lambda peaks: peaks.max(skipna=False)),
            read_at_ends=("read_at_ends", "all"),
        )
        .reset_index()
        .sort_values(["cell_key", "start_s"], kind="stable")
    )
    orders = by_phase.groupby("cell_key")["phase"].agg(tuple)
    unread = set(by_phase.loc[by_phase["peak_bytes"].isna(), "cell_key"])
    usable = orders[[key not in unread for key in orders.index]]
    if usable.empty:
        raise TableError("has no run with peak memory of all its phases", "the history")
    names: tuple[str, ...] = usable.value_counts().index[0]
    keys = usable[[order == names for order in usable]].index
    in_order = by_phase[by_phase["cell_key"].isin(set(keys))].set_index(["cell_key", "phase"])
    duration_s, peak_bytes = (
        in_order[column].unstack()[list(names)].loc[keys].to_numpy(dtype=float)
        for column in ("duration_s", "peak_bytes")
    )
    read_at_ends = in_order.groupby("phase")["read_at_ends"].sum()
    outcomes = runs.loc[runs["outcome"] != "completed", "outcome"].value_counts()
    has_trace = set(traces["cell_key"])
    left_out = {
        **{f"of outcome {outcome}": int(count) for outcome, count in outcomes.items()},
        "without phases": len(completed - set(orders.index)),
        "without a trace": len(unread - has_trace),
        "without a memory reading near a phase": len(unread & has_trace),
        "with other phases": len(usable) - len(keys),
    }
    return PhaseMatrix(
        names,
        tuple(str(key) for key in keys),
        duration_s,
        peak_bytes,
        {phase: int(read_at_ends[phase]) for phase in names if read_at_ends[phase]},
        {cause: count for cause, count in left_out.items() if count},
    )


def used_byte_s(
    runs: pd.DataFrame, traces: pd.DataFrame, matrix: PhaseMatrix
) -> np.ndarray | None:
    """Return the memory in use integrated over the time in phases, for each run.

    This is the mean memory times the duration of the phases. The mean comes from the source (label
    ``mean_rss_bytes``) or from the trace, which is too high if that was thinned to its
    peaks. None unless all runs have a mean.

    Parameters
    ----------
    runs, traces : DataFrame
        See `voxcast.runs.store`.
    """
    means: dict[str, float] = {}
    for key, samples in traces[traces["cell_key"].isin(set(matrix.cell_keys))].groupby("cell_key"):
        seconds, used = samples["t_s"].to_numpy(float), samples["rss_bytes"].to_numpy(float)
        if len(samples) > 1 and np.ptp(seconds) > 0:
            means[str(key)] = float(np.trapezoid(used, seconds) / np.ptp(seconds))
    for key, text in zip(runs["cell_key"], runs["labels_json"], strict=True):
        labelled_mean = json.loads(text).get(MEAN_LABEL) if text else None
        if labelled_mean is not None:
            means[str(key)] = float(labelled_mean)
    if not set(matrix.cell_keys) <= set(means):
        return None
    mean = np.array([means[key] for key in matrix.cell_keys])
    return np.asarray(mean * matrix.duration_s.sum(axis=1))
