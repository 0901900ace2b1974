"""Runs on record: runs of some folders, and outlines of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError
from voxcast.records import MEASURED
from voxcast.runs.store import open_history
from voxcast.runs.table import ADDED, DTYPES, PHASE_DTYPES, frame_of, in_schema

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd

    Source = tuple[pd.DataFrame, pd.DataFrame]


def runs_on_record(
    folders: Iterable[Path], *, named: bool = True
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the measured runs in ``folders`` and their phases; imported runs are left out.

    Parameters
    ----------
    folders : iterable of Path
        See `voxcast.runs.store.open_history`.
    named : bool
        Whether the user named these folders. A named folder that is missing or has no runs is an
        error; otherwise it is skipped.

    Returns
    -------
    runs, phases : DataFrame
        Columns as in `voxcast.runs.table`. A cell key that occurs in several folders is
        taken from the first.

    Raises
    ------
    TableError
        If nothing can be read in a folder, or a named folder is missing or has no runs.
    """
    sources: list[Source] = []
    for folder in folders:
        try:
            history = open_history(folder)
        except TableError:
            if named:
                raise
            continue
        sources.append((history.runs, history.phases))
    return united(sources)


def united(sources: Iterable[Source]) -> Source:
    """Combine measured runs and their phases; a repeated cell key is taken from the first source.

    Returns
    -------
    runs, phases : DataFrame
        Runs in the order they were started, phases by key and start.
    """
    import pandas as pd

    seen: set[str] = set()
    runs, phases = [frame_of([])], [frame_of([], PHASE_DTYPES)]
    for source_runs, source_phases in sources:
        if missing := [n for n in DTYPES if n not in ADDED and n not in source_runs.columns]:
            raise TableError(f"runs lack the column {missing[0]}", then="measure or import again")
        is_new = (source_runs["source"] == MEASURED) & ~source_runs["cell_key"].isin(seen)
        new = source_runs[is_new].drop_duplicates("cell_key")
        keys = set(new["cell_key"])
        seen |= keys
        runs.append(in_schema(new))
        phases.append(source_phases[source_phases["cell_key"].isin(keys)][list(PHASE_DTYPES)])
    return (
        pd.concat([frame for frame in runs if len(frame)] or runs[:1]).sort_values(
            ["started_at", "cell_key"], ignore_index=True
        ),
        pd.concat([frame for frame in phases if len(frame)] or phases[:1]).sort_values(
            ["cell_key", "start_s"], kind="stable", ignore_index=True
        ),
    )


IDENTITY = ("app", "source", "outcome", "device", "cpus", "gpus", "started_at")
PREDICTED = (
    "predicted_median_s", "predicted_upper_s", "predicted_median_bytes", "predicted_upper_bytes",
    "confidence",
)  # fmt: skip
# Of a job, as `voxcast.jobs.collect` records them, and of an evaluation on unseen subjects.
_OF_JOB = (
    "predicted_runtime_s", "upper_runtime_s", "predicted_peak_rss_bytes", "upper_peak_rss_bytes",
    "confidence",
)  # fmt: skip
_OF_EVALUATION = (
    "runtime_s_median", "runtime_s_upper", "peak_rss_bytes_median", "peak_rss_bytes_upper",
    "stated",
)  # fmt: skip


def run_outlines(runs: pd.DataFrame, evaluated: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return an outline of each run.

    Parameters
    ----------
    runs : DataFrame
        As `voxcast.runs.table`.
    evaluated : DataFrame, optional
        Predictions of runs by a model that saw nothing of their subject: ``cell_key runtime_s_*
        peak_rss_bytes_* stated``, the last the probability of the upper bounds.

    Returns
    -------
    DataFrame
        The columns `IDENTITY`, ``requested_s requested_bytes used_s used_bytes``, `PREDICTED` and
        ``predicted_by``: ``submission``, ``evaluation``, or empty where no prediction is known. A
        campaign requests nothing, its time limit only ends runs that hang.
    """
    import pandas as pd

    outlines = runs[list(IDENTITY)].copy()
    is_job = (runs["source"] != MEASURED).to_numpy()
    for name, column in (("s", "limit_s"), ("bytes", "mem_limit_bytes")):
        requested = runs[column].to_numpy(dtype=float, na_value=np.nan)
        outlines[f"requested_{name}"] = np.where(is_job, requested, np.nan)
    for name, column in (("s", "runtime_s"), ("bytes", "peak_rss_bytes")):
        outlines[f"used_{name}"] = runs[column].to_numpy(dtype=float, na_value=np.nan)
    texts = runs["labels_json"].where(is_job, "")
    labels = [_labels(str(text)) for text in texts]
    predicted = pd.DataFrame(
        [[label.get(name) for name in _OF_JOB] for label in labels],
        index=runs.index, columns=list(PREDICTED), dtype=object,
    ).apply(pd.to_numeric, errors="coerce")  # fmt: skip
    by_submission = predicted["predicted_median_s"].notna()
    outlines["predicted_by"] = np.where(by_submission, "submission", "")
    if evaluated is not None and len(evaluated):
        by_key = evaluated.drop_duplicates("cell_key").set_index("cell_key")[list(_OF_EVALUATION)]
        of_run = by_key.reindex(runs["cell_key"]).set_axis(runs.index).set_axis(PREDICTED, axis=1)
        by_evaluation = of_run["predicted_median_s"].notna() & ~by_submission
        predicted = predicted.where(~by_evaluation, of_run)
        outlines.loc[by_evaluation, "predicted_by"] = "evaluation"
    return outlines.assign(**{name: predicted[name].astype(float) for name in PREDICTED})


def _labels(text: str) -> dict[str, object]:
    try:
        labels = json.loads(text or "{}")
    except ValueError:  # edited by hand
        return {}
    return labels if isinstance(labels, dict) else {}
