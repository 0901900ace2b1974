"""The training table: its columns, and how its rows, volumes and stopped runs are read.

Column names: identity and configuration as in the profiles, targets as in `voxcast.records`,
features with the prefixes of `voxcast.features.rows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from voxcast.features.rows import CATEGORIES
from voxcast.images.network_volume import read_stacked

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.features.rows import Row


IDENTITY = (
    "cell_key",
    "volume_id",
    "subject",
    "app",
    "device",
    "cpus",
    "gpus",
    "scale",
    "repeat",
    "host_class",
    "noisy",
)
# Where and when a run was measured: plain columns, not features.
PLACE = ("host_id", "node_type", "sitting", "started_at")  # fmt: skip


FULL, DOWN = "full_scale", "scaled_down"
# The work of a run: the same again takes the same.
WORK = ("app", "app_version", "volume_id", "parameters_json", "device", "cpus", "gpus", "scale")
CENSORED_OUTCOMES = (
    "timeout", "out_of_memory", "preempted", "stalled", "cancelled", "node_failure",
)  # fmt: skip


def feature_names(table: pd.DataFrame) -> list[str]:
    """Return the feature columns of a table, sorted."""
    return sorted(c for c in table.columns if "." in c or c in CATEGORIES)


def rows_of(table: pd.DataFrame) -> list[Row]:
    """Return the features of a table's rows as `voxcast.features.rows.features` made them."""
    return cast("list[Row]", table[feature_names(table)].to_dict("records"))


def volumes_of(table: pd.DataFrame, path: Path) -> np.ndarray:
    """Return the small volume of each run of a table, shape (n_runs,).

    A volume whose small volume is not on record is all zeros: the network sees it as unknown.

    Parameters
    ----------
    table : DataFrame
        Runs with their ``volume_id``.
    path : Path
        ``volumes.npz`` of the stage featurize.
    """
    import numpy as np

    ids, stored = read_stacked(path, "run `dvc repro featurize`, which writes it")
    position = {name: n for n, name in enumerate(ids)}
    small = np.zeros(len(table), stored.dtype)
    positions = np.array([position.get(v, -1) for v in table["volume_id"]], dtype=int)
    small[positions >= 0] = stored[positions[positions >= 0]]
    return small


SPEED_DEVIATION = "speed_deviation"
TIMES = ("cpu_s", "runtime_s")  # which follow the speed of the machine


def tables_by_app(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each application, sorted by name, with positions from 0.

    Columns that are empty for an application, such as the parameters of others, are left out.
    """
    return {
        str(app): rows.dropna(axis="columns", how="all").reset_index(drop=True)
        for app, rows in table.groupby("app", sort=True)
    }
