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


def reserved_names(history: Path) -> frozenset[str]:
    """Return the names of the batches that are reserved for judging."""
    path = history / RESERVED
    return frozenset(path.read_text(encoding="utf-8").split() if path.is_file() else ())


def batches_to_learn_from(history: Path, app: str) -> dict[str, int]:
    """Return the number of completed runs of ``app`` by batch.

    Batches without characteristics of their images cannot be learned from, and those that are
    reserved for judging must not be; they are left out.

    Parameters
    ----------
    history : Path
        Folder of the batches, such as ``data/history``.
    """
    import pandas as pd

    reserved = reserved_names(history)
    counts = {}
    for batch in (history / name for name in batch_names(history) if name not in reserved):
        if not (batch / RECORDED_IMAGES).is_file():
            continue
        columns = ["app", "outcome"]
        runs = [pd.read_parquet(part / RUNS, columns=columns) for part in recorded_parts(batch)]
        wanted = pd.Series([app, "completed"], columns)
        count = sum(int(frame.eq(wanted).all(axis=1).sum()) for frame in runs)
        if count:
            counts[batch.name] = count
    return counts
