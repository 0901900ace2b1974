"""Groups of runs by columns, labels of the source or parameters of the application."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

JSON_COLUMNS = {"label": "labels_json", "parameter": "parameters_json"}


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
        raise TableError(
            f"no run has this {kind}", name, f"there are {', '.join(available) or 'none'}"
        )
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
