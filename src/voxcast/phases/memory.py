"""Phases of runs that logged none, from their memory and CPU traces.

Runs of the same application that logged their phases teach what these look like. Without any, the
change points of a run of usual length do, and all runs refine it; such phases have numbers for
names. See `voxcast.phases.template` for the model, `voxcast.phases.change_points` for a run alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError
from voxcast.history.phase_peaks import phase_peak
from voxcast.history.run_table import PHASE_DTYPES, frame_of
from voxcast.phases.change_points import change_points
from voxcast.phases.segmenter import LoggedRun, Segmenter, Trace
from voxcast.phases.trace_grid import samples_in_order, usual_step_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

ROUNDS = 5  # of refinement of phases without names


@dataclass(frozen=True, eq=False)
class SegmentedRuns:
    """Phases that were read from traces.

    Attributes
    ----------
    phases : DataFrame
        Columns of `voxcast.history.run_table.PHASE_DTYPES`, for runs without logged phases.
    logged_runs : int
        Number of runs that taught what phases look like; 0 if none has logged any.
    share_right : float or None
        See `Segmenter`.
    left_out : mapping of str to int
        Runs without logged phases that have none now, by cause.
    """

    phases: pd.DataFrame
    logged_runs: int
    share_right: float | None
    left_out: Mapping[str, int]


def segmented_runs(
    runs: pd.DataFrame, phases: pd.DataFrame, traces: pd.DataFrame
) -> SegmentedRuns:
    """Return phases of the completed runs of one application that logged none.

    Parameters
    ----------
    runs, phases, traces : DataFrame
        Of one application; columns as in `voxcast.history.run_table`. If runs differ in their
        phases, those of most runs are looked for.

    Raises
    ------
    TableError
        If no completed run has a trace.
    """
    completed = {
        str(row["cell_key"]): row
        for row in runs[runs["outcome"] == "completed"].to_dict("records")
    }
    readable = readable_traces(traces[traces["cell_key"].isin(completed)])
    if not readable:
        raise TableError("has no completed run with a trace", "the history")
    names, logged = logged_runs(
        phases, readable, {key: str(row["subject"]) for key, row in completed.items()}
    )
    without = [key for key in readable if key not in set(phases["cell_key"])]
    segmenter = Segmenter(names, logged) if logged else _without_names(list(readable.values()))
    rows, unlike = [], 0
    for key in without:
        boundaries_s, is_usual = segmenter.boundaries_s(readable[key])
        if is_usual:
            rows += _rows(key, completed[key], segmenter.phases, readable[key], boundaries_s)
        else:
            unlike += 1
    no_trace = len(set(completed) - set(readable) - set(phases["cell_key"]))
    left_out = {"unlike those with logged phases": unlike, "without a trace": no_trace}
    return SegmentedRuns(
        frame_of(rows, PHASE_DTYPES),
        len(logged),
        segmenter.share_right if logged else None,
        {cause: count for cause, count in left_out.items() if count},
    )


def readable_traces(traces: pd.DataFrame) -> dict[str, Trace]:
    """Return the traces of runs by cell key; those of fewer than two readable samples are not."""
    by_key = {}
    for key, samples in traces.groupby("cell_key"):
        try:
            by_key[str(key)] = Trace(
                *samples_in_order(samples["t_s"], samples["rss_bytes"], samples["cpu_s"])
            )
        except TableError:
            continue
    return by_key


def logged_runs(
    phases: pd.DataFrame, traces: Mapping[str, Trace], subjects: Mapping[str, str]
) -> tuple[tuple[str, ...], list[LoggedRun]]:
    """Return the phases of most runs, in order, and the runs with these phases and a trace.

    Phases of one name that follow each other, such as epochs, are one.
    """
    sequences = phase_starts(phases)
    orders: dict[tuple[str, ...], list[LoggedRun]] = {}
    for key, (names, starts_s) in sequences.items():
        if key in traces:
            orders.setdefault(names, []).append(
                LoggedRun(traces[key], starts_s[1:], subjects.get(key) or key)
            )
    return max(orders.items(), key=lambda order: len(order[1]), default=((), []))


def phase_starts(
    phases: pd.DataFrame,
) -> dict[str, tuple[tuple[str, ...], NDArray[np.float64]]]:
    """Return the names and starts of the phases of each run, by cell key; see `logged_runs`."""
    by_key = {}
    for key, of_run in phases.sort_values("start_s", kind="stable").groupby("cell_key"):
        pairs = zip(of_run["phase"], of_run["start_s"], strict=True)
        firsts = [next(group) for _, group in groupby(pairs, key=lambda pair: pair[0])]
        names, starts_s = zip(*firsts, strict=True)
        by_key[str(key)] = (tuple(map(str, names)), np.array(starts_s, dtype=float))
    return by_key


def _without_names(traces: Sequence[Trace]) -> Segmenter:
    """Learn phases from runs of which none has logged any."""
    lengths_s = [np.ptp(trace.t_s) for trace in traces]
    usual = traces[int(np.argsort(lengths_s, kind="stable")[len(traces) // 2])]
    starts_s = change_points(usual.grid(usual_step_s(usual.t_s)))
    names = [f"phase_{number}" for number in range(1, len(starts_s) + 2)]
    segmenter = Segmenter(names, [LoggedRun(usual, starts_s)])
    for _ in range(ROUNDS if len(traces) > 1 else 0):
        # The likelihood is not asked: all runs count as usual.
        logged = [LoggedRun(trace, segmenter.boundaries_s(trace)[0]) for trace in traces]
        segmenter = Segmenter(names, logged)
    return segmenter


def _rows(
    cell_key: str,
    run: Mapping[Any, Any],
    names: Sequence[str],
    trace: Trace,
    boundaries_s: NDArray[np.float64],
) -> list[dict[str, object]]:
    ends_s = np.concatenate([[min(trace.t_s[0], 0.0)], boundaries_s, [trace.t_s[-1]]])
    cpu_s = None if trace.cpu_s is None else np.diff(np.interp(ends_s, trace.t_s, trace.cpu_s))
    return [
        {
            "cell_key": cell_key,
            "app": str(run["app"]),
            "volume_id": str(run["volume_id"]),
            "cpus": int(run["cpus"]),
            "phase": name,
            "start_s": float(start_s),
            "end_s": float(end_s),
            "duration_s": float(end_s - start_s),
            "cpu_s": None if cpu_s is None else float(cpu_s[number]),
            "peak_rss_bytes": phase_peak(trace.t_s, trace.rss_bytes, start_s, end_s),
        }
        for number, (name, start_s, end_s) in enumerate(
            zip(names, ends_s[:-1], ends_s[1:], strict=True)
        )
    ]
