"""Imported runs without images as a training table, from what their source states.

Features are application, allocation, parameters, and labels that were known before the run. A run
without a subject in the source is a subject of its own.
"""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.features.rows import features
from voxcast.features.table import IDENTITY
from voxcast.records import TARGETS, Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.features.rows import Row

logger = logging.getLogger(__name__)

# Labels of our imports that are known only after a run, or that name it.
NOT_FEATURES = frozenset({
    "state", "status", "note", "nodes", "tasks", "attempt", "submitted_at", "mean_rss_bytes",
    "peak_rss_at_least_bytes",
    "node_used_mem_min_kb", "job_id", "job_name", "array_job", "het_job", "task", "hash",
    "native_id", "file", "run", "cluster",
})  # fmt: skip
# A text label with more values than this share of the runs names them.
MAX_DISTINCT = 0.5
# CPU time is predicted if at least this share of the runs has it; otherwise wall time is.
MIN_WITH_CPU_TIME = 0.9
WIDE = 10.0


def imported_table(
    runs: pd.DataFrame, labels: Sequence[str] | None, where: object
) -> pd.DataFrame:
    """Return the completed runs with their features.

    Parameters
    ----------
    runs : DataFrame
        Imported runs, columns as in `voxcast.runs.table`.
    labels : sequence of str or None
        Labels to use as features; by default all that are known before a run and do not name it.
    where : object
        The history, for messages.

    Returns
    -------
    DataFrame
        As of `voxcast.features.training_table.build_table`, with ``parameters_json`` and
        ``started_at``.
        Applications without a usable run are left out with a warning.

    Raises
    ------
    TableError
        If no run is usable, or no run has a named label.
    """
    import pandas as pd

    tables = []
    problems = {}
    for app, of_app in runs.groupby("app", sort=True):
        try:
            tables.append(_table_of_app(of_app, labels))
        except TableError as error:
            problems[str(app)] = error.problem
    if not tables:
        listed = "; ".join(f"{app}: {problem}" for app, problem in problems.items())
        raise TableError(f"has no run to replay ({listed})", where)
    for app, problem in problems.items():
        logger.warning("%s is not replayed: %s", app, problem)
    return pd.concat(tables, ignore_index=True)


def _table_of_app(runs: pd.DataFrame, labels: Sequence[str] | None) -> pd.DataFrame:
    import pandas as pd

    usable = with_targets(runs).astype({"peak_rss_bytes": "float64"})
    app = str(usable["app"].iloc[0])
    label_values = pd.DataFrame(
        [json.loads(text) if text else {} for text in usable["labels_json"]], index=usable.index
    )
    label_features = _label_features(app, label_values, labels)
    without_subject = usable["subject"] == ""
    if n_without := int(without_subject.sum()):
        logger.warning("%s: %d runs have no subject and count as one each", app, n_without)
    subjects = usable["subject"].where(~without_subject, usable["cell_key"])
    records = []
    for run, subject, labels_of_run in zip(
        usable.to_dict("records"), subjects, label_features, strict=True
    ):
        configuration = Configuration(run["device"], max(int(run["cpus"]), 1), int(run["gpus"]))
        parameters = json.loads(run["parameters_json"]) if run["parameters_json"] else {}
        row = features(None, None, app, parameters, configuration)
        identity: dict[str, Any] = {name: run[name] for name in (*IDENTITY, *TARGETS)}
        identity |= {"subject": str(subject), "cpus": configuration.cpus}
        context = {name: run[name] for name in ("parameters_json", "started_at")}
        records.append(identity | context | labels_of_run | row)
    return pd.DataFrame(records)


def with_targets(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the completed runs of an application that have all targets.

    Where CPU time is mostly unknown, wall time stands for it in every run, so that wall time is
    predicted directly.

    Raises
    ------
    TableError
        If there are none, with the reason.
    """
    app = str(runs["app"].iloc[0])
    completed = runs[runs["outcome"] == "completed"]
    if completed.empty:
        raise TableError(f"none of {len(runs)} runs completed")
    with_memory = completed[completed["peak_rss_bytes"].fillna(0) > 0]
    if with_memory.empty:
        problem = f"none of {len(completed)} completed runs has a peak memory"
        raise TableError(problem, then="import a source that states it")
    with_cpu = with_memory["cpu_s"] > 0
    if with_cpu.mean() >= MIN_WITH_CPU_TIME:
        usable = with_memory[with_cpu]
    else:
        logger.warning("%s: CPU time is not known; wall time is predicted directly", app)
        usable = with_memory.assign(cpu_s=with_memory["runtime_s"])
    if n_left_out := len(completed) - len(usable):
        logger.warning(
            "%s: %d of %d completed runs lack memory or CPU time and are left out",
            app, n_left_out, len(completed),
        )  # fmt: skip
    return usable.reset_index(drop=True)


def _label_features(app: str, values: pd.DataFrame, labels: Sequence[str] | None) -> list[Row]:
    """Return the features of each run that its labels are."""
    import pandas as pd

    if labels is not None and (absent := sorted(set(labels) - set(values.columns))):
        raise TableError(
            f"no run has the label {absent[0]}; there are {', '.join(values.columns) or 'none'}"
        )
    rows: list[Row] = [{} for _ in range(len(values))]
    left_out = []
    for name in values.columns if labels is None else labels:
        stated = values[name].dropna()
        is_number = stated.map(lambda value: isinstance(value, int | float)).all()
        names_runs = not is_number and stated.nunique() > MAX_DISTINCT * len(stated)
        if labels is None and (str(name) in NOT_FEATURES or stated.nunique() < 2 or names_runs):
            left_out.append(str(name))
            continue
        # A wide range is easier to learn from on the scale of the logarithm.
        as_log = is_number and stated.min() > 0 and stated.max() > WIDE * stated.min()
        for row, value in zip(rows, values[name], strict=True):
            if pd.isna(value):
                row |= {} if is_number else {f"parameter.{name}": ""}
            elif as_log:
                row[f"parameter.log_{name}"] = math.log(value)
            else:
                row[f"parameter.{name}"] = float(value) if is_number else str(value)
    used = sorted({name.removeprefix("parameter.") for row in rows for name in row})
    logger.info("%s: features from labels: %s", app, ", ".join(used) or "none")
    if left_out:
        logger.info("%s: labels that are not features: %s", app, ", ".join(sorted(left_out)))
    return rows
