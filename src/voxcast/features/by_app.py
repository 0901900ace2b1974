"""The training table by application: each is learned alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def tables_by_app(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each application, sorted by name, with positions from 0.

    Columns that are empty for an application, such as the parameters of others, are left out.
    """
    return {
        str(app): rows.dropna(axis="columns", how="all").reset_index(drop=True)
        for app, rows in table.groupby("app", sort=True)
    }
