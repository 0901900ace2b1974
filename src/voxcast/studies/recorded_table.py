"""Recorded histories as one table to learn from: every application and scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.features.table import build_table
from voxcast.history.parts import load_history, load_phases
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.recorded import RECORDED_IMAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd

FULL, DOWN = "full_scale", "scaled_down"
ABOUT = ("noisy", "host_id", "parameters_json", "started_at")  # of a run, beside the features


def recorded_table(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Return the runs of recorded histories with their features; no image is needed.

    Parameters
    ----------
    batches : sequence of Path
        Folders of ``data/history``, each with the characteristics of its volumes beside it.

    Returns
    -------
    DataFrame
        As `voxcast.features.table.build_table` gives it, with the columns of `ABOUT` and
        ``batch``, the name of the folder.
    """
    import pandas as pd

    tables = []
    for batch in map(Path, batches):
        runs = load_history([batch])
        images = pd.read_parquet(batch / RECORDED_IMAGES).assign(problem=None)
        seen = images[["volume_id", *CHARACTERISTICS]]
        table, _ = build_table(runs, images, seen, scales=(FULL, DOWN), without_image=True)
        about = (
            runs.set_index("cell_key").loc[table["cell_key"], list(ABOUT)].reset_index(drop=True)
        )
        tables.append(pd.concat([table, about], axis=1).assign(batch=batch.name))
    return pd.concat(tables, ignore_index=True)


def spent_in(batches: Sequence[Path | str], phase: str) -> pd.Series:
    """Return the wall seconds that each run spent in a phase altogether, by cell key."""
    phases = load_phases([Path(batch) for batch in batches])
    own = phases[phases["phase"] == phase]
    return (own["end_s"] - own["start_s"]).groupby(own["cell_key"]).sum()


def of_app(table: pd.DataFrame, app: str, scale: str | None = None) -> pd.DataFrame:
    """Return the runs of an application, at one scale or all, without the columns of others."""
    own = table[table["app"] == app]
    if scale is not None:
        own = own[own["scale"] == scale]
    return own.dropna(axis=1, how="all").reset_index(drop=True)


def network_volumes(table: pd.DataFrame, catalogues: Sequence[Path]) -> np.ndarray:
    """Return the small volume of each run, from the ``volumes.npz`` of several catalogues."""
    import numpy as np

    known: dict[str, np.ndarray] = {}
    for folder in catalogues:
        with np.load(folder / "volumes.npz", allow_pickle=False) as content:
            names, cubes = content["volume_id"], content["volumes"]
        known |= {str(name): cube for name, cube in zip(names, cubes, strict=True)}
    return np.stack([known[name] for name in table["volume_id"]])
