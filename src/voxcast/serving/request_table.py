"""Tables of requests and of answers, as pandas has them, and as rows.

Registered models import this module by its name, see `voxcast.serving.predictor`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from voxcast.serving.signature import OUTPUT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

_DTYPES = {"string": "object", "double": "float64", "long": "int64", "boolean": "bool"}


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, without missing values."""
    names = table.columns.tolist()
    # Several times faster than to_dict("records"), which matters for requests of one row.
    columns = (table[name].tolist() for name in names)
    return [plain_row(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def plain_row(cells: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a row of plain Python values, without missing ones."""
    import numpy as np
    import pandas as pd

    row = {}
    for name, cell in cells:
        value = cell.item() if isinstance(cell, np.generic) else cell
        is_nan = isinstance(value, float) and math.isnan(value)
        if value is not None and not is_nan and value is not pd.NA and value is not pd.NaT:
            row[name] = value
    return row


def answer_table(answers: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return answers as a table, which has all columns and their types if there are none, too."""
    import pandas as pd

    table = pd.DataFrame(answers, columns=list(OUTPUT_TYPES))
    return table.astype({name: _DTYPES[kind] for name, kind in OUTPUT_TYPES.items()})
