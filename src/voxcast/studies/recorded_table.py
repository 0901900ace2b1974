"""Recorded histories as one training table, with all applications and scales."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.features.table import build_table
from voxcast.history.parts import load_history, load_phases
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.recorded import RECORDED_IMAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd

FULL, DOWN = "full_scale", "scaled_down"
# Columns of a run beside the features.
CONTEXT_COLUMNS = ("host_id", "parameters_json", "started_at")


def recorded_table(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Return the runs of recorded histories with their features; no image is needed.

    Parameters
    ----------
    batches : sequence of Path
        Folders of ``data/history``, each of which includes the characteristics of its volumes.

    Returns
    -------
    DataFrame
        As of `voxcast.features.table.build_table`, with `CONTEXT_COLUMNS` and ``batch``, the name
        of the folder.

    Raises
    ------
    TableError
        If a batch does not include the characteristics of its volumes, as imports do not.
    """
    import pandas as pd

    tables = []
    for batch in map(Path, batches):
        path = batch / RECORDED_IMAGES
        if not path.is_file():
            raise TableError(
                "no such file", path, "take a campaign recorded by voxcast: it has its images"
            )
        runs = load_history([batch]).assign(batch=batch.name)
        tables.append(table_on_images(runs, pd.read_parquet(path))[0])
    return pd.concat(tables, ignore_index=True)


def table_on_images(
    runs: pd.DataFrame, images: pd.DataFrame
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join the runs of any application and scale with their images and `CONTEXT_COLUMNS`.

    Parameters
    ----------
    images : DataFrame
        Headers and characteristics of the volumes.

    Returns
    -------
    table : DataFrame
        As of `voxcast.features.table.build_table`.
    left_out : dict of str to int
        Number of runs left out, by reason.
    """
    import pandas as pd

    table, left_out = build_table(
        runs,
        images.assign(problem=None),
        images[["volume_id", *CHARACTERISTICS]],
        scales=(FULL, DOWN),
        without_image=True,
    )
    if table.empty:
        return table, left_out
    context = runs.set_index("cell_key").loc[table["cell_key"], list(CONTEXT_COLUMNS)]
    return pd.concat([table, context.reset_index(drop=True)], axis=1), left_out


def seconds_in_phase(batches: Sequence[Path | str], phase: str) -> pd.Series:
    """Return the total wall seconds that each run spent in a phase, by cell key."""
    phases = load_phases([Path(batch) for batch in batches])
    phases = phases[phases["phase"] == phase]
    return (phases["end_s"] - phases["start_s"]).groupby(phases["cell_key"]).sum()


def of_app(table: pd.DataFrame, app: str, scale: str | None = None) -> pd.DataFrame:
    """Return the runs of an application, at one scale or all, without empty columns."""
    runs = table[table["app"] == app]
    if scale is not None:
        runs = runs[runs["scale"] == scale]
    return runs.dropna(axis=1, how="all").reset_index(drop=True)


def network_volumes(table: pd.DataFrame, catalogues: Sequence[Path]) -> np.ndarray:
    """Return the small volume of each run, from the ``volumes.npz`` of several catalogues."""
    import numpy as np

    by_id: dict[str, np.ndarray] = {}
    for folder in catalogues:
        with np.load(folder / "volumes.npz", allow_pickle=False) as content:
            ids, volumes = content["volume_id"], content["volumes"]
        by_id |= {str(name): volume for name, volume in zip(ids, volumes, strict=True)}
    return np.stack([by_id[name] for name in table["volume_id"]])
