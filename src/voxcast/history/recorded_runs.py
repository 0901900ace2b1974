"""A recorded history in the place of runs measured here: the same tables, nothing is run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from voxcast.files import atomic_path
from voxcast.history.parts import PHASES, TRACES, load_history, load_phases, load_traces
from voxcast.history.run_folders import write_profiles

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd


def write_recorded(
    folder: Path,
    batches: Sequence[Path | str],
    device: str,
    apps: Collection[str],
    volumes: Collection[str],
) -> pd.DataFrame:
    """Write ``profiles.parquet``, ``phases.parquet`` and ``traces.parquet`` of a device.

    Parameters
    ----------
    folder : Path
        The folder of the device's runs; run folders in it are left as they are.
    batches : sequence of Path
        Recorded histories, see `voxcast.history.parts`.
    apps, volumes : collection of str
        Applications and volume ids of the project; runs of others are left out, which is said.

    Returns
    -------
    DataFrame
        The profiles.

    Raises
    ------
    TableError
        If a batch holds no recorded runs.
    """
    runs = load_history(batches)
    runs = runs[runs["device"] == device]
    chosen = runs["app"].isin(list(apps))
    present = runs["volume_id"].isin([*volumes, ""])
    kept = runs[chosen & present]
    notes = []
    if not len(runs):
        notes.append(f"{device}: the recorded history has no runs on it")
    if lost := int((~chosen).sum()):
        notes.append(f"{device}: {lost} recorded runs are of applications not chosen here")
    if lost := int((chosen & ~present).sum()):
        notes.append(f"{device}: {lost} recorded runs are of volumes not in this image set")
    for note in notes:
        print(f"voxcast: {note}", file=sys.stderr)
    keys = set(kept["cell_key"])
    for name, load in ((PHASES, load_phases), (TRACES, load_traces)):
        frame = load(batches)
        with atomic_path(folder / name) as partial:
            frame[frame["cell_key"].isin(keys)].to_parquet(partial, index=False)
    return write_profiles(folder, notes, kept.reset_index(drop=True))
