"""Durations and peaks of the phases of many runs of one application, as matrices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    import pandas as pd

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
    left_out : int
        Number of runs with other phases, or with a phase of unknown peak.
    """

    phases: tuple[str, ...]
    cell_keys: tuple[str, ...]
    duration_s: np.ndarray
    peak_bytes: np.ndarray
    left_out: int


def phase_matrix(table: pd.DataFrame) -> PhaseMatrix:
    """Arrange the phases of the runs of one application.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.phases.logged.phase_table`.

    Raises
    ------
    TableError
        If there are no phases with peaks.
    """
    peaks = table.assign(peak_rss_bytes=table["peak_rss_bytes"].astype("float64"))
    by_phase = peaks.groupby(["cell_key", "phase"], sort=False).agg(
        start_s=("start_s", "min"),
        duration_s=("duration_s", "sum"),
        peak_bytes=("peak_rss_bytes", lambda peaks: peaks.max(skipna=False)),
    )
    by_phase = by_phase.reset_index().sort_values(["cell_key", "start_s"], kind="stable")
    orders = by_phase.groupby("cell_key")["phase"].agg(tuple)
    complete = by_phase.groupby("cell_key")["peak_bytes"].agg(
        lambda peaks: bool(peaks.notna().all())
    )
    usable = orders[complete]
    if usable.empty:
        raise TableError("has no run with peak memory of all its phases", "the history")
    phases: tuple[str, ...] = usable.value_counts().index[0]
    keys = usable[[order == phases for order in usable]].index
    in_order = by_phase[by_phase["cell_key"].isin(set(keys))].set_index(["cell_key", "phase"])
    duration_s, peak_bytes = (
        in_order[column].unstack()[list(phases)].loc[keys].to_numpy(dtype=float)
        for column in ("duration_s", "peak_bytes")
    )
    cell_keys = tuple(str(key) for key in keys)
    return PhaseMatrix(phases, cell_keys, duration_s, peak_bytes, len(orders) - len(keys))


def used_byte_s(
    runs: pd.DataFrame, traces: pd.DataFrame, matrix: PhaseMatrix
) -> np.ndarray | None:
    """Return the memory in use integrated over the time in phases, for each run.

    This is the mean memory times the duration of the phases. The mean is that of the source (label
    ``mean_rss_bytes``) or of the trace, which is slightly too high if the trace was thinned to its
    peaks. None unless all runs have a mean.

    Parameters
    ----------
    runs, traces : DataFrame
        See `voxcast.history.parts`.
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
    byte_s: np.ndarray = mean * matrix.duration_s.sum(axis=1)
    return byte_s
