"""Phases of many runs of one application side by side: durations and peaks as matrices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    import pandas as pd

MEAN = "mean_rss_bytes"  # a label


@dataclass(frozen=True, eq=False)
class PhaseMatrix:
    """Runs that went through the same phases.

    Attributes
    ----------
    phases : tuple of str
        In their order; a phase that comes several times, such as an epoch, is one.
    cell_keys : tuple of str
        The runs.
    duration_s, peak_bytes : ndarray, shape (runs, phases)
        Together, and the highest, of each phase.
    left_out : int
        Runs with other phases, or with a phase whose peak is not known.
    """

    phases: tuple[str, ...]
    cell_keys: tuple[str, ...]
    duration_s: np.ndarray
    peak_bytes: np.ndarray
    left_out: int


def phase_matrix(table: pd.DataFrame) -> PhaseMatrix:
    """Lay out the phases of one application's runs.

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
        peak_bytes=("peak_rss_bytes", lambda own: own.max(skipna=False)),
    )
    by_phase = by_phase.reset_index().sort_values(["cell_key", "start_s"], kind="stable")
    orders = by_phase.groupby("cell_key")["phase"].agg(tuple)
    known = by_phase.groupby("cell_key")["peak_bytes"].agg(lambda own: bool(own.notna().all()))
    usable = orders[known]
    if usable.empty:
        raise TableError("has no runs whose phases have peaks of memory", "the history")
    phases: tuple[str, ...] = usable.value_counts().index[0]
    kept = usable[[order == phases for order in usable]].index
    own = by_phase[by_phase["cell_key"].isin(set(kept))].set_index(["cell_key", "phase"])
    duration_s, peak_bytes = (
        own[column].unstack()[list(phases)].loc[kept].to_numpy(dtype=float)
        for column in ("duration_s", "peak_bytes")
    )
    keys = tuple(str(key) for key in kept)
    return PhaseMatrix(phases, keys, duration_s, peak_bytes, len(orders) - len(kept))


def used_byte_s(
    runs: pd.DataFrame, traces: pd.DataFrame, matrix: PhaseMatrix
) -> np.ndarray | None:
    """Return memory in use summed over the time in phases, of each run.

    That is its mean memory times the duration of its phases: the mean that its source tells
    (label ``mean_rss_bytes``), or that of its trace, somewhat too high where the trace was thinned
    to its peaks. None unless all runs have one.

    Parameters
    ----------
    runs, traces : DataFrame
        See `voxcast.history.parts`.
    """
    means: dict[str, float] = {}
    for key, own in traces[traces["cell_key"].isin(set(matrix.cell_keys))].groupby("cell_key"):
        seconds, used = own["t_s"].to_numpy(float), own["rss_bytes"].to_numpy(float)
        if len(own) > 1 and np.ptp(seconds) > 0:
            means[str(key)] = float(np.trapezoid(used, seconds) / np.ptp(seconds))
    for key, text in zip(runs["cell_key"], runs["labels_json"], strict=True):
        told = json.loads(text).get(MEAN) if text else None
        if told is not None:
            means[str(key)] = float(told)
    if not set(matrix.cell_keys) <= set(means):
        return None
    mean = np.array([means[key] for key in matrix.cell_keys])
    found: np.ndarray = mean * matrix.duration_s.sum(axis=1)
    return found
