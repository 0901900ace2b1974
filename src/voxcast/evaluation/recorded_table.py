"""Recorded histories as one training table, with all applications and scales.

A run whose volume is on record has the features of the volume. The features of imported runs
without images are application, allocation, parameters, and labels that were known before the run.
An imported run without a subject in the source is a subject of its own.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from voxcast.errors import TableError
from voxcast.features.phase_labels import COLUMN as PHASES
from voxcast.features.phase_labels import phase_texts
from voxcast.features.rows import DOWN, FULL, IDENTITY, features
from voxcast.features.training_table import build_table, with_speed_deviations
from voxcast.images.catalogue import ON_RECORD, RECORDED_IMAGES, read_on_record
from voxcast.images.characteristics import CHARACTERISTICS, current_rows
from voxcast.records import MEASURED, TARGETS, Configuration
from voxcast.runs.store import batch_names, load_history, load_phases, reserved_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from voxcast.features.rows import Row
    from voxcast.runs.store import StoredHistory


# The characteristics that are features, by application.
Declared: TypeAlias = "Mapping[str, Sequence[str] | None]"
ALL: Declared = {}
Drivers: TypeAlias = "Mapping[str, Mapping[str, Sequence[str]]]"
NO_DRIVERS: Drivers = {}
# Columns of a run beside the features.
CONTEXT_COLUMNS = ("parameters_json",)


def recorded_table(
    batches: Sequence[Path | str],
    is_sealed: Callable[[str], bool],
    declared: Declared = ALL,
    drivers: Drivers = NO_DRIVERS,
) -> pd.DataFrame:
    """Return the runs of recorded histories with their features; no image is needed.

    Studies choose, so they see no run that others are judged on: neither batches that are
    reserved for judging, nor the subjects of the test table. Runs without an image are in no test
    table and are all returned.

    Parameters
    ----------
    batches : sequence of Path
        Folders of ``data/history``, each with the characteristics of its volumes.
    is_sealed : callable
        Whether a subject is on the test side.
    declared : mapping
        See `table_on_images`.
    drivers : mapping
        By application what drives each of its phases, for the family that sums them; see
        `voxcast.features.phase_labels`. Other applications have no labels by phase.

    Returns
    -------
    DataFrame
        As of `voxcast.features.training_table.build_table`, with `CONTEXT_COLUMNS`, ``batch``,
        the name of the folder, and the column of `voxcast.features.rows`.

    Raises
    ------
    TableError
        If a batch is reserved for judging, or does not include the characteristics of its
        volumes, as imports do not.
    """
    import pandas as pd

    tables = []
    for batch in map(Path, batches):
        if batch.name in reserved_names(batch.parent):
            fix = "models are judged on it, by `reserved_table`"
            raise TableError("is reserved for judging", batch, fix)
        tables.append(_table_of_batch(batch, declared, drivers))
    table = _with_speed_deviation(pd.concat(tables, ignore_index=True), list(map(Path, batches)))
    sealed = (table["volume_id"] != "") & table["subject"].map(is_sealed).astype(bool)
    return table[~sealed].reset_index(drop=True)


def reserved_table(batch: Path, declared: Declared = ALL) -> pd.DataFrame:
    """Return the runs of a batch that is reserved for judging.

    Parameters
    ----------
    declared : mapping
        See `table_on_images`.
    """
    table = _table_of_batch(batch, declared, NO_DRIVERS)
    history = batch.parent
    beside = [history / name for name in batch_names(history)]
    # A batch without repeats does not tell how runs follow the speed of the machine.
    return _with_speed_deviation(
        table, [batch, *(b for b in beside if b.name not in reserved_names(history))]
    )


def _table_of_batch(batch: Path, declared: Declared, drivers: Drivers) -> pd.DataFrame:
    import pandas as pd

    path = batch / RECORDED_IMAGES
    if not path.is_file():
        raise TableError(
            "no such file", path, "take a campaign recorded by voxcast: it has its images"
        )
    runs = load_history([batch]).assign(batch=batch.name)
    images = current_rows(pd.read_parquet(path))
    table = table_on_images(runs, images, declared)[0]
    phases = load_phases([batch])
    texts: dict[str, str] = {}
    for app, of_this_app in table.groupby("app", sort=True):
        cpu_s = dict(zip(of_this_app["cell_key"], of_this_app["cpu_s"], strict=True))
        texts |= phase_texts(phases, cpu_s, drivers.get(str(app), {}))
    return table.assign(**{PHASES: table["cell_key"].map(texts).fillna("")}) if texts else table


def _with_speed_deviation(table: pd.DataFrame, batches: Sequence[Path]) -> pd.DataFrame:
    return with_speed_deviations(table, load_history(batches), load_phases(batches))


def table_on_images(
    runs: pd.DataFrame, images: pd.DataFrame, declared: Declared = ALL
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join the runs of any application and scale with their images and `CONTEXT_COLUMNS`.

    Parameters
    ----------
    images : DataFrame
        Headers and characteristics of the volumes.
    declared : mapping
        By application the characteristics that are its features; all for any other.

    Returns
    -------
    table : DataFrame
        As of `voxcast.features.training_table.build_table`.
    left_out : dict of str to int
        Number of runs left out, by reason.
    """
    import pandas as pd

    tables: list[pd.DataFrame] = []
    left_out: Counter[str] = Counter()
    for app, of_this_app in runs.groupby("app", sort=True):
        rows, left_out_of_app = build_table(
            of_this_app,
            images.assign(problem=None),
            scales=(FULL, DOWN),
            without_image=True,
            declared=declared.get(str(app)),
        )
        tables.append(rows)
        left_out.update(left_out_of_app)
    # In the order of the keys, across applications.
    table = pd.concat([rows for rows in tables if len(rows)] or tables[:1])
    if len(table):
        table = table.sort_values("cell_key", ignore_index=True)
    if table.empty:
        return table, left_out
    context = runs.set_index("cell_key").loc[table["cell_key"], list(CONTEXT_COLUMNS)]
    return pd.concat([table, context.reset_index(drop=True)], axis=1), left_out


def of_app(table: pd.DataFrame, app: str, scale: str | None = None) -> pd.DataFrame:
    """Return the runs of an application, at one scale or all, without empty columns."""
    runs = table[table["app"] == app]
    if scale is not None:
        runs = runs[runs["scale"] == scale]
    return runs.dropna(axis=1, how="all").reset_index(drop=True)


logger = logging.getLogger(__name__)


def history_table(history: StoredHistory, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the usable runs of a history with their features.

    A run whose volume is on record has the features of the volume. An imported run without one
    has its labels, see `imported_table`.

    Parameters
    ----------
    history : StoredHistory
        Where the images of the runs are looked for.
    runs : DataFrame
        The runs of it to use.

    Raises
    ------
    TableError
        If no run is usable, with the reasons.
    """
    import pandas as pd

    images = _images(history)
    has_image = runs["volume_id"].isin(set() if images is None else set(images["volume_id"]))
    is_import = runs["source"] != MEASURED
    with_images = [runs[~is_import], *_imports_with_targets(runs[is_import & has_image])]
    measured = pd.concat([table for table in with_images if len(table)] or with_images[:1])
    tables = []
    if len(measured):
        tables.append(_with_images(measured.reset_index(drop=True), images, history))
    if (is_import & ~has_image).any():
        imports = runs[is_import & ~has_image]
        tables.append(imported_table(imports, history.folders[0]))
    if not tables:
        raise TableError("has no usable run", history.folders[0])
    return pd.concat(tables, ignore_index=True)


def _imports_with_targets(runs: pd.DataFrame) -> list[pd.DataFrame]:
    tables = []
    for app, of_app in runs.groupby("app"):
        try:
            tables.append(with_targets(of_app))
        except TableError as error:
            logger.warning("%s is not replayed: %s", app, error.problem)
    return tables


def _with_images(
    runs: pd.DataFrame, images: pd.DataFrame | None, history: StoredHistory
) -> pd.DataFrame:
    import pandas as pd

    if images is None and (runs["volume_id"] != "").any():
        raise TableError(
            f"has runs on images, but neither {RECORDED_IMAGES} beside its parts nor the "
            f"{ON_RECORD} of its project",
            history.folders[0],
            "give the whole folder of the history, or run `dvc repro catalogue` in the project",
        )
    if images is None:
        images = pd.DataFrame(columns=["volume_id", *CHARACTERISTICS])
    table, left_out = table_on_images(runs, images)
    causes = ", ".join(f"{count} {cause}" for cause, count in left_out.items())
    if table.empty:
        raise TableError(f"has no usable run ({causes})", history.folders[0])
    if causes:
        logger.info("runs left out: %s", causes)
    return table


def _images(history: StoredHistory) -> pd.DataFrame | None:
    """Return header and characteristics of the volumes of a history, if they are recorded.

    They are beside the parts of a batch; of runs and tables of a device in the catalogue of their
    project, ``data/catalogue`` beside ``data/runs``.
    """
    import pandas as pd

    batches = dict.fromkeys(part.parent for part in history.parts)
    tables = [
        current_rows(pd.read_parquet(batch / RECORDED_IMAGES))
        for batch in batches
        if (batch / RECORDED_IMAGES).is_file()
    ]
    of_devices = (*history.run_folders, *history.parts)  # a folder of runs, or its tables
    projects = dict.fromkeys(folder.resolve().parent.parent for folder in of_devices)
    tables += [
        read_on_record(data / "catalogue" / ON_RECORD)
        for data in projects
        if (data / "catalogue" / ON_RECORD).is_file()
    ]
    if not tables:
        return None
    return pd.concat(tables, ignore_index=True).drop_duplicates("volume_id")


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


def imported_table(runs: pd.DataFrame, where: object) -> pd.DataFrame:
    """Return the completed runs with their features.

    Parameters
    ----------
    runs : DataFrame
        Imported runs, columns as in `voxcast.runs.table`.
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
        If no run is usable.
    """
    import pandas as pd

    tables = []
    problems = {}
    for app, of_app in runs.groupby("app", sort=True):
        try:
            tables.append(_table_of_app(of_app))
        except TableError as error:
            problems[str(app)] = error.problem
    if not tables:
        listed = "; ".join(f"{app}: {problem}" for app, problem in problems.items())
        raise TableError(f"has no run to replay ({listed})", where)
    for app, problem in problems.items():
        logger.warning("%s is not replayed: %s", app, problem)
    return pd.concat(tables, ignore_index=True)


def _table_of_app(runs: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    usable = with_targets(runs).astype({"peak_rss_bytes": "float64"})
    app = str(usable["app"].iloc[0])
    label_values = pd.DataFrame(
        [json.loads(text) if text else {} for text in usable["labels_json"]], index=usable.index
    )
    label_features = _label_features(app, label_values)
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


def _label_features(app: str, values: pd.DataFrame) -> list[Row]:
    """Return as features the labels that are known before a run and do not name it."""
    import pandas as pd

    rows: list[Row] = [{} for _ in range(len(values))]
    left_out = []
    for name in values.columns:
        stated = values[name].dropna()
        is_number = stated.map(lambda value: isinstance(value, int | float)).all()
        names_runs = not is_number and stated.nunique() > MAX_DISTINCT * len(stated)
        if str(name) in NOT_FEATURES or stated.nunique() < 2 or names_runs:
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
