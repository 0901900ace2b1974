"""Selection of runs of a history: by application, and by column, label or parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, TableError
from voxcast.history.groups import group_column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd


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
        If there is no such application, or there are several and none is named.
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
    """Return the runs of the named applications; of all if none is named.

    Raises
    ------
    TableError
        If there are no runs of one of them.
    """
    if not apps:
        return runs
    choices = sorted(runs["app"].unique())
    if absent := sorted(set(apps) - set(choices)):
        problem = f"has no runs of {', '.join(absent)}, but of {', '.join(choices) or 'none'}"
        raise TableError(problem, where)
    return runs[runs["app"].isin(list(apps))].reset_index(drop=True)


def runs_where(runs: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the runs that meet all conditions ``NAME=VALUE``.

    Parameters
    ----------
    conditions : sequence of str
        Names as in `voxcast.history.groups.group_column`; the values are compared as text.

    Raises
    ------
    ConfigError
        If a condition has no ``=``.
    TableError
        If there is no such column, label or parameter, or no run has the value.
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
