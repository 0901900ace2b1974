"""Batches of the recorded history, found by what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.history.parts import RUNS, recorded_parts
from voxcast.images.recorded import RECORDED_IMAGES

if TYPE_CHECKING:
    from pathlib import Path

RESERVED = "reserved.txt"  # names of batches to judge by, one a line


def batch_names(history: Path) -> list[str]:
    """Return the names of the recorded batches in a history, sorted."""
    return sorted({path.parent.parent.name for path in history.glob(f"[!.]*/[!.]*/{RUNS}")})


def batches_to_learn_from(history: Path, app: str, host_class: str) -> dict[str, int]:
    """Return the number of completed runs of ``app`` on machines of ``host_class`` by batch.

    Batches without characteristics of their images cannot be learned from, and those that are
    reserved for judging must not be; they are left out.

    Parameters
    ----------
    history : Path
        Folder of the batches, such as ``data/history``.
    """
    import pandas as pd

    reserved = set()
    if (history / RESERVED).is_file():
        reserved = {*(history / RESERVED).read_text(encoding="utf-8").split()}
    counts = {}
    for batch in (history / name for name in batch_names(history) if name not in reserved):
        if not (batch / RECORDED_IMAGES).is_file():
            continue
        columns = ["app", "host_class", "outcome"]
        runs = [pd.read_parquet(part / RUNS, columns=columns) for part in recorded_parts(batch)]
        wanted = pd.Series([app, host_class, "completed"], columns)
        count = sum(int(frame.eq(wanted).all(axis=1).sum()) for frame in runs)
        if count:
            counts[batch.name] = count
    return counts
