"""A query to a model: the features of a run and its allocation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.rows import CONTENT
from voxcast.features.table import rows_of

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.features.rows import Row


@dataclass(frozen=True, eq=False, slots=True)
class Query:
    """A run to predict.

    Attributes
    ----------
    features : Row
        See `voxcast.features.rows.features`; with ``content.`` features when the voxels are known.
    cpus : int
        CPUs of the run, for the slowdown law.
    host_class : str or None
        Machine of the run; None if it is unknown.
    volume : ndarray or None
        Small volume of the image, for the network.
    host, sitting : str or None
        Id of the machine, and a sitting on it, see `voxcast.models.speed.speeds.Speeds.estimate`.
    """

    features: Row
    cpus: int = 1
    host_class: str | None = None
    volume: np.ndarray | None = None
    host: str | None = None
    sitting: str | None = None

    @property
    def app(self) -> str:
        """Name of the application, empty for a table without applications."""
        return str(self.features.get("app", ""))

    @property
    def knows_content(self) -> bool:
        """Whether the voxels' characteristics are among the features."""
        return any(name.startswith(CONTENT) for name in self.features)

    def header_only(self) -> Query:
        """Return the same query without anything that was read from the voxels."""
        features = {k: v for k, v in self.features.items() if not k.startswith(CONTENT)}
        return replace(self, features=features, volume=None)


def queries_of(table: pd.DataFrame, volumes: np.ndarray | None = None) -> list[Query]:
    """Return one query for each row of a table.

    Parameters
    ----------
    table : DataFrame
        Features, and ``cpus``, ``host_class``, ``host_id`` and ``sitting`` if the table has them.
    volumes : ndarray or None, shape (n_runs,)
        Small volume of each row.
    """
    count = len(table)
    cpus = table["cpus"].tolist() if "cpus" in table else [1] * count
    classes, hosts, sittings = (
        table[name].tolist() if name in table else [None] * count
        for name in ("host_class", "host_id", "sitting")
    )
    cubes = [None] * count if volumes is None else volumes
    columns = zip(rows_of(table), cpus, classes, cubes, hosts, sittings, strict=True)
    return [Query(*values) for values in columns]
