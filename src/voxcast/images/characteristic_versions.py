"""Versions of characteristics: values of another version are unknown, never mixed.

Each row of a table of volumes states, as JSON, the version of each of its characteristics. Tables
of releases that stated none are told apart by a column that the older of them lack.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from voxcast.files import canonical_json
from voxcast.images.characteristics import CHARACTERISTICS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    import pandas as pd

    class Versioned(Protocol):
        """A characteristic, or its declaration."""

        @property
        def version(self) -> int: ...


VERSIONS = "versions_json"
# Older tables estimated the foreground on the strided grid, and lack this column.
FIRST_STATED = "eroded_fraction"


def versions_of(characteristics: Mapping[str, Versioned]) -> dict[str, int]:
    """Return the versions of the characteristics of voxcast and of others, by name."""
    entries: dict[str, Versioned] = {**CHARACTERISTICS, **characteristics}
    return {name: entry.version for name, entry in entries.items()}


def current_rows(rows: pd.DataFrame, versions: Mapping[str, int]) -> pd.DataFrame:
    """Return rows of volumes with the characteristics of ``versions`` alone.

    A value of another version becomes unknown, and so does a missing column; `VERSIONS` then
    states those characteristics that were computed in the version asked for.
    """
    import pandas as pd

    texts = rows[VERSIONS] if VERSIONS in rows else pd.Series([None] * len(rows), rows.index)
    is_first = rows[FIRST_STATED].notna() if FIRST_STATED in rows else texts.notna() & False
    stated = [
        _stated(text, first) for text, first in zip(texts, is_first.astype(bool), strict=True)
    ]
    columns = {}
    for name, version in versions.items():
        valid = [name in rows and of_row.get(name) == version for of_row in stated]
        values = rows[name] if name in rows else pd.Series(float("nan"), rows.index)
        columns[name] = values.astype(float).where(pd.Series(valid, rows.index, dtype=bool))
    texts_now = [
        canonical_json({n: v for n, v in versions.items() if n in rows and of_row.get(n) == v})
        for of_row in stated
    ]
    others = [name for name in rows if name not in columns and name != VERSIONS]
    return pd.concat(
        [
            rows[others],
            pd.DataFrame(columns, rows.index),
            pd.Series(texts_now, rows.index, name=VERSIONS, dtype=object),
        ],
        axis=1,
    )


def is_current(text: str, versions: Mapping[str, int]) -> bool:
    """Whether all characteristics of a row were computed in these versions."""
    stated = _stated(text, is_first=False)
    return all(stated.get(name) == version for name, version in versions.items())


def _stated(text: object, is_first: bool) -> dict[str, int]:
    if isinstance(text, str) and text:
        content = json.loads(text)
        return dict(content) if isinstance(content, dict) else {}
    return dict.fromkeys(CHARACTERISTICS, 1) if is_first else {}
