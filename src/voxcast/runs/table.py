"""The table of runs: its columns, groups and selections of its rows, and repeats of one run.

One row per run, in one schema for all sources of runs: the fields of `voxcast.records.Run`.
Integers that may be unknown are nullable, since a float would round large sizes. Unknown strings
are empty, never missing.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from voxcast.errors import ConfigError, TableError
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT, Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pandas as pd

_DTYPES = {
    str: "str", bool: "bool", int: "int64", int | None: "Int64", float | None: "float64",
}  # fmt: skip
DTYPES = {name: _DTYPES[hint] for name, hint in get_type_hints(Run).items()}
METRONOME = {name: dtype for name, dtype in DTYPES.items() if name.startswith("metronome_")}
BEFORE = {name: dtype for name, dtype in DTYPES.items() if name.startswith("before_")}
# Columns that older tables lack; they are unknown there.
ADDED = METRONOME | BEFORE
KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int64": (int,),
    "Int64": (int, type(None)),
    "float64": (float, int, type(None)),
}
UNKNOWN: dict[str, Any] = {"str": "", "bool": False, "int64": 0, "Int64": None, "float64": None}

PHASE_DTYPES = {
    "cell_key": "str",
    "app": "str",
    "volume_id": "str",
    "cpus": "int64",
    "phase": "str",
    "start_s": "float64",
    "end_s": "float64",
    "duration_s": "float64",
    "cpu_s": "float64",
    "peak_rss_bytes": "Int64",
}
TRACE_DTYPES = {"cell_key": "str", "t_s": "float64", "rss_bytes": "int64", "cpu_s": "float64"}

JSON_COLUMNS = {"label": "labels_json", "parameter": "parameters_json"}
# The work; runs with the same work and allocation are repeats of one run.
TASK = ["app", "app_version", "parameters_json", "volume_id", "scale"]
WORK = [*TASK, "host_class"]
ALLOCATION = ["device", "node_type", "cpus", "gpus", "mem_limit_bytes"]
# Machines of one kind still differ, so noise is estimated from repeats on a single machine.
REPEATED = [*WORK, *ALLOCATION, "host_id"]
MAX_BYTES, MAX_SECONDS = 2**50, 10 * 365.25 * 86400  # more is a wrong unit
MAX_AMOUNT = 2**63 - 1  # that a table of runs can hold


def implausible(name: str, value: float) -> str | None:
    """Return the problem with an amount of a run; None if it is plausible."""
    if not math.isfinite(value) or (value < 0 and name != "exit_status"):
        return f"{name}: is {value:g}"
    if name.endswith("_bytes") and value > MAX_BYTES:
        return f"{name}: {value:.3g} is out of range"
    if name.endswith("_s") and value > MAX_SECONDS:
        return f"{name}: {value:.3g} is more than ten years"
    if value > MAX_AMOUNT:
        return f"{name}: {value:.3g} is out of range"
    return None


def checked_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row of the history; a column missing in ``values`` gets its unknown value."""
    return {name: values.get(name, UNKNOWN[dtype]) for name, dtype in DTYPES.items()}


def frame_of(
    rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str] = DTYPES
) -> pd.DataFrame:
    """Return ``rows`` as a table with exactly these columns, also without rows."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(dtypes)).astype(dict(dtypes))


def in_schema(frame: pd.DataFrame, dtypes: Mapping[str, str] = DTYPES) -> pd.DataFrame:
    """Return ``frame`` with exactly these columns; newer columns are unknown.

    Raises
    ------
    KeyError
        If it lacks a column of every table.
    """
    names = [name for name in dtypes if name in ADDED and name not in frame.columns]
    newer = {name: UNKNOWN[dtypes[name]] for name in names}
    return frame.assign(**newer)[list(dtypes)].astype(dict(dtypes))


def group_column(frame: pd.DataFrame, name: str) -> pd.Series[str]:
    """Return the values of a grouping as text: ``app``, ``label:dataset``, ``parameter:epochs``.

    A run without a value is in the group of the empty text.

    Raises
    ------
    TableError
        If no run has such a column, label or parameter.
    """
    import pandas as pd

    kind, _, key = name.partition(":")
    if not key:
        if name not in frame.columns:
            columns = ", ".join(map(str, frame.columns))
            raise TableError("no such column", name, f"choose from {columns}, label:NAME")
        return frame[name].map(lambda value: "" if pd.isna(value) else str(value)).astype(str)
    if kind not in JSON_COLUMNS:
        raise TableError("no such column", name, "write label:NAME or parameter:NAME")
    if JSON_COLUMNS[kind] not in frame.columns:
        raise TableError(f"a table without {kind}s", name, "name a column")
    values = frame[JSON_COLUMNS[kind]].map(lambda text: json.loads(text) if text else {})
    if len(frame) and not any(key in by_name for by_name in values):
        available = sorted({label for by_name in values for label in by_name})
        there_are = f"there are {', '.join(available) or 'none'}"
        raise TableError(f"no run has this {kind}", name, there_are)
    return values.map(lambda by_name: str(by_name.get(key, ""))).astype(str)


def groups(frame: pd.DataFrame, by: Sequence[str]) -> list[tuple[dict[str, str], pd.DataFrame]]:
    """Split runs by `group_column`; return each group with its values, sorted by value."""
    if frame.empty:
        return []
    columns = {name: group_column(frame, name) for name in by}
    if not columns:
        return [({}, frame)]
    grouped = frame.groupby([column.rename(name) for name, column in columns.items()], sort=True)
    return [(dict(zip(columns, map(str, key), strict=True)), group) for key, group in grouped]


def only_app(apps: Collection[str], app: str | None, where: object) -> str:
    """Return the application to describe: the one that is named, or the only one.

    Parameters
    ----------
    apps : collection of str
        Applications of the history.
    app : str or None
        Named by the user.
    where : object
        The history, for the message.

    Raises
    ------
    TableError
        If the application is unknown, or one of several must be named.
    """
    choices = sorted(set(apps))
    if not choices:
        raise TableError("has no runs", where)
    if app is None and len(choices) > 1:
        raise TableError(f"has runs of {', '.join(choices)}", where, "choose with --app")
    if app is not None and app not in choices:
        raise TableError(f"has no runs of {app}, but of {', '.join(choices)}", where)
    return choices[0] if app is None else app


def runs_of_apps(runs: pd.DataFrame, apps: Sequence[str], where: object) -> pd.DataFrame:
    """Return the runs of the named applications; all runs if no application is named.

    Raises
    ------
    TableError
        If one of them has no runs.
    """
    choices = sorted(runs["app"].unique())
    if absent := sorted(set(apps) - set(choices)):
        problem = f"has no runs of {', '.join(absent)}, but of {', '.join(choices) or 'none'}"
        raise TableError(problem, where)
    return runs[runs["app"].isin(list(apps))].reset_index(drop=True) if apps else runs


def runs_where(runs: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the runs that meet all conditions ``NAME=VALUE``.

    Parameters
    ----------
    conditions : sequence of str
        Names as in `group_column`; the values are compared as text.

    Raises
    ------
    ConfigError
        If a condition has no ``=``.
    TableError
        If the column, label or parameter is unknown, or no run has the value.
    """
    for condition in conditions:
        name, sign, value = condition.partition("=")
        if not sign or not name:
            raise ConfigError("is not a condition", condition, "write it as NAME=VALUE")
        column = group_column(runs, name)
        if not (column == value).any():
            values = sorted(set(column))
            listed = ", ".join(repr(v)[:60] for v in values[:10]) + (", …" * (len(values) > 10))
            raise TableError(f"no run has {name} {value!r}", condition, f"there are {listed}")
        runs = runs[(column == value).to_numpy()]
    return runs.reset_index(drop=True)


def plain_repeats(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the repeats that measure the noise of an idle machine.

    Local runs at the start of a sitting, disturbed runs, and the later repeats that replace them
    are left out.
    """
    return runs[(runs["repeat"] < NOISY_REPEAT) & ~runs["noisy"]]


def anchors(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs at the start of each sitting."""
    return runs[runs["repeat"] >= ANCHOR_REPEAT]


def settled(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that count: undisturbed where the same work was also run undisturbed.

    The runs at the start of each sitting are left out.
    """
    counted = runs[runs["repeat"] < ANCHOR_REPEAT]
    undisturbed = ~counted["noisy"]
    keys = [counted[name] for name in WORK + ALLOCATION]
    return counted[undisturbed | ~undisturbed.groupby(keys, dropna=False).transform("any")]


def once_each(runs: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return one row per piece of work, with the geometric mean of ``target`` of settled runs."""
    settled_runs = settled(runs)
    logs = settled_runs[target].astype(float).clip(lower=1e-9).map(np.log)
    keys = WORK + ALLOCATION
    means = logs.groupby([settled_runs[name] for name in keys], dropna=False).transform("mean")
    return settled_runs.assign(**{target: np.exp(means)}).drop_duplicates(keys)
