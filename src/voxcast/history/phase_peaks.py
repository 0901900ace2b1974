"""Peak memory of a phase, from the samples of its run.

A phase shorter than the pause between two samples may have no sample of its own. It gets the run's
memory at its ends, interpolated between samples. A phase with samples does not: memory is mostly
freed where a phase ends, and the interpolation would add that of the phase before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.history.thinning import MAX_SAMPLES

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


def phase_peak(t_s: ArrayLike, rss_bytes: ArrayLike, start_s: float, end_s: float) -> int | None:
    """Return the largest memory of a phase's samples; without any, of the readings at its ends.

    Parameters
    ----------
    t_s, rss_bytes : array-like, shape (samples,)
        Samples of the run in order of time. Those that are not finite do not count.
    start_s, end_s : float
        The phase. An end outside the samples has the reading of the nearest sample, if that is no
        further away than the longest pause between samples.

    Returns
    -------
    int or None
        In bytes; None if the samples say nothing of the phase.

    Examples
    --------
    >>> phase_peak([0.0, 1.0, 2.0], [100, 300, 200], 1.4, 1.6)
    260
    """
    seconds, memory = np.asarray(t_s, dtype=float), np.asarray(rss_bytes, dtype=float)
    is_readable = np.isfinite(seconds) & np.isfinite(memory)
    seconds, memory = seconds[is_readable], memory[is_readable]
    if not len(seconds):
        return None
    inside = memory[(seconds >= start_s) & (seconds <= end_s)]
    if len(inside):
        return round(float(inside.max()))
    pause_s = float(np.diff(seconds).max()) if len(seconds) > 1 else 0.0
    ends = [s for s in (start_s, end_s) if seconds[0] - pause_s <= s <= seconds[-1] + pause_s]
    return round(float(np.interp(ends, seconds, memory).max())) if ends else None


def without_sample(t_s: ArrayLike, start_s: ArrayLike, end_s: ArrayLike) -> NDArray[np.bool_]:
    """Return for each phase of a run whether no sample lies in it.

    Of a trace that is thinned, so that a sample may have been dropped, only phases shorter than
    its shortest pause count as such.

    Parameters
    ----------
    t_s : array-like, shape (samples,)
        Times of the samples, in order.
    start_s, end_s : array-like, shape (phases,)
        The phases.

    Examples
    --------
    >>> without_sample([0.0, 1.0, 2.0], [0.5, 1.2], [1.5, 1.8]).tolist()
    [False, True]
    """
    seconds = np.asarray(t_s, dtype=float)
    start, end = np.asarray(start_s, dtype=float), np.asarray(end_s, dtype=float)
    if len(seconds) < 2:
        return np.zeros(len(start), dtype=bool)
    empty = np.searchsorted(seconds, end, side="right") == np.searchsorted(seconds, start)
    longest_s = np.inf if len(seconds) < MAX_SAMPLES else np.diff(seconds).min()
    return np.asarray(empty & (end - start < longest_s))


def with_peaks(phases: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return phases in which those without a peak have the peak of their run's trace.

    Parts recorded before phases had readings at their ends lack the peaks of short phases. Peaks
    of the source are kept as they are: a recorded trace is thinned, and imported ones are coarse.

    Parameters
    ----------
    phases, traces : DataFrame
        Columns as in `voxcast.history.run_table`.

    Returns
    -------
    DataFrame
        The phases, with a column ``without_sample``, see `without_sample`.
    """
    import pandas as pd

    samples_by_key: dict[object, tuple[NDArray[Any], NDArray[Any]]] = {
        key: (samples["t_s"].to_numpy(), samples["rss_bytes"].to_numpy())
        for key, samples in traces.sort_values("t_s").groupby("cell_key")
    }
    ends = phases[["start_s", "end_s"]].to_numpy(dtype=float)
    is_without = np.zeros(len(phases), dtype=bool)
    for key, rows in phases.groupby("cell_key").indices.items():
        if key in samples_by_key:
            is_without[rows] = without_sample(samples_by_key[key][0], *ends[rows].T)
    unknown = phases["peak_rss_bytes"].isna()
    columns = (phases.loc[unknown, name] for name in ("cell_key", "start_s", "end_s"))
    readings = []
    for key, start_s, end_s in zip(*columns, strict=True):
        t_s, rss_bytes = samples_by_key.get(key, ((), ()))
        readings.append(phase_peak(t_s, rss_bytes, start_s, end_s))
    peaks = phases["peak_rss_bytes"].astype("Int64").array.copy()
    peaks[unknown.to_numpy()] = pd.array(readings, dtype="Int64")
    return phases.assign(peak_rss_bytes=peaks, without_sample=is_without)
