"""Facts of images and recorded runs as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.runs.store import open_history

if TYPE_CHECKING:
    import os

    import pandas as pd


def inspect(image: str | os.PathLike[str]) -> pd.Series:
    """Return the header and the characteristics of an image.

    Parameters
    ----------
    image : path
        A NIfTI file.

    Raises
    ------
    ImageError
        If it cannot be read.

    Examples
    --------
    >>> voxcast.inspect("sub-01_T1w.nii.gz")["foreground_ml"]  # doctest: +SKIP
    """
    import pandas as pd

    from voxcast.images.characteristics import characteristics
    from voxcast.images.volume import Volume

    volume = Volume.open(Path(image))
    facts = {**volume.header.columns(), **characteristics(volume.read())}
    return pd.Series(facts, name=str(image))


def history(*folders: str | os.PathLike[str]) -> pd.DataFrame:
    """Return recorded runs, one row for each.

    Parameters
    ----------
    *folders : path
        Folders of ``data/history``, their parts, or folders of runs; by default all runs of the
        project above the current folder.

    Raises
    ------
    TableError
        If a folder cannot be read as a history.
    ConfigError
        If neither a folder is named nor a project found.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        recorded = project.require(None) / "data/history"
        paths = sorted(path for path in recorded.iterdir() if path.is_dir())
    return open_history(paths).runs
