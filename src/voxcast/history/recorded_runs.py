"""A recorded history in place of runs measured on this machine, as the same tables."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from voxcast.history.parts import load_history, load_phases, load_traces
from voxcast.history.run_series import write_stage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd

logger = logging.getLogger(__name__)


def write_recorded(
    folder: Path,
    batches: Sequence[Path | str],
    device: str,
    apps: Collection[str],
    volumes: Collection[str],
) -> pd.DataFrame:
    """Write ``runs.parquet``, ``phases.parquet`` and ``traces.parquet`` of a device.

    Parameters
    ----------
    folder : Path
        Folder of the device's tables.
    batches : sequence of Path
        Recorded histories, see `voxcast.history.parts`.
    apps, volumes : collection of str
        Applications and volume ids of the project; other runs are left out, with a warning.

    Returns
    -------
    DataFrame
        The runs.

    Raises
    ------
    TableError
        If a batch has no recorded runs.
    """
    runs = load_history(batches)
    runs = runs[runs["device"] == device]
    has_app = runs["app"].isin(list(apps))
    has_volume = runs["volume_id"].isin([*volumes, ""])
    selected = runs[has_app & has_volume]
    notes = []
    if not len(runs):
        notes.append(f"{device}: the recorded history has no runs on it")
    if n_excluded := int((~has_app).sum()):
        notes.append(
            f"{device}: {n_excluded} recorded runs are of applications that are not configured"
        )
    if n_excluded := int((has_app & ~has_volume).sum()):
        notes.append(f"{device}: {n_excluded} recorded runs are of volumes outside this image set")
    for note in notes:
        logger.info(note)
    keys = set(selected["cell_key"])
    phases, traces = (
        frame[frame["cell_key"].isin(keys)]
        for frame in (load_phases(batches), load_traces(batches))
    )
    runs = selected.reset_index(drop=True)
    write_stage(folder, runs, phases, traces, notes)
    return runs
