"""The characteristics that a project declares, as functions that can be called on its images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.config.composition import PARAMS_FILE
from voxcast.config.loading import load
from voxcast.images.lab_characteristics import load_lab_characteristics

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from voxcast.images.characteristics import Characteristic


def project_characteristics(
    folder: Path, needed: Collection[str] | None = None
) -> dict[str, Characteristic]:
    """Import the functions of the characteristics that a project declares.

    Parameters
    ----------
    folder : Path
        The project.
    needed : collection of str, optional
        Others of them are not imported.

    Raises
    ------
    ConfigError
        If the configuration cannot be used, or a function cannot be imported.
    """
    declared = load(folder / PARAMS_FILE).features.characteristics
    wanted = {n: entry for n, entry in declared.items() if needed is None or n in needed}
    return load_lab_characteristics(wanted, folder)
