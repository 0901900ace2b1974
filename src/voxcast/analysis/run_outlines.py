"""Runs on record in outline: the request, the use and the prediction of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from voxcast.records import MEASURED

if TYPE_CHECKING:
    import pandas as pd

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
