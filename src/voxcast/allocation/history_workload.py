"""A history as a workload: the jobs of a queue, from runs with submission, limit and CPUs."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.workload import Workload
from voxcast.errors import TableError
from voxcast.history.imports.file_records import Remark

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import pandas as pd

ADVICE = "import `sacct` with Submit, Start, ElapsedRaw, TimelimitRaw and AllocCPUS"


def workload_of_history(history: pd.DataFrame, where: object) -> Workload:
    """Return the jobs of a history that a queue can be simulated with.

    Runs of every outcome count: they took their place in the queue. Jobs have the numbers of their
    jobs where these are different whole numbers, and those of their rows from 1 otherwise.

    Parameters
    ----------
    history : DataFrame
        Runs, see `voxcast.history.run_table`. The time of submission is in their labels.
    where : object
        The history, for messages.

    Raises
    ------
    TableError
        If no run has a time of submission, a time limit, a runtime and a number of CPUs.
    """
    jobs: list[tuple[float, float, float, int, float]] = []
    numbers: list[str] = []
    rows: list[int] = []
    left_out: list[Remark] = []
    for row, run in enumerate(history.to_dict("records"), 1):
        labels = json.loads(run["labels_json"] or "{}")
        submit_s, start_s = (_timestamp_s(text) for text in
                             (labels.get("submitted_at"), run["started_at"]))  # fmt: skip
        reason = _shortcoming(run, submit_s)
        if reason:
            left_out.append(Remark("", row, reason))
            continue
        wait_s = start_s - submit_s if start_s >= submit_s else math.nan
        jobs.append((submit_s, run["runtime_s"], run["limit_s"], int(run["cpus"]), wait_s))
        numbers.append(str(labels.get("job_id", "")))
        rows.append(row)
    if not jobs:
        reasons = Counter(remark.reason for remark in left_out).most_common(2)
        texts = ", ".join(f"{count} {reason}" for reason, count in reasons) or "it has no runs"
        raise TableError(f"no run is a job of a queue ({texts})", where, ADVICE)
    if len(set(numbers)) == len(numbers) and all(text.isdecimal() for text in numbers):
        rows = [int(text) for text in numbers]
    table = np.array(jobs, dtype=np.float64)
    order = np.lexsort((np.array(rows), table[:, 0]))
    table = table[order]
    return Workload(
        np.array(rows, dtype=np.int64)[order], table[:, 0] - table[0, 0], table[:, 1],
        table[:, 2], table[:, 3].astype(np.int64), table[:, 4], skipped=tuple(left_out),
    )  # fmt: skip


def _shortcoming(run: Mapping[Hashable, Any], submit_s: float) -> str | None:
    if math.isnan(submit_s):
        return "without a time of submission"
    if not run["limit_s"] > 0 or math.isinf(run["limit_s"]):
        return "without a time limit"
    if not run["runtime_s"] >= 0:
        return "without a runtime"
    return None if run["cpus"] >= 1 else "without a number of CPUs"


def _timestamp_s(text: str | None) -> float:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return math.nan
    # Slurm writes no time zone; only differences are used.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
