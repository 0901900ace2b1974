"""Characteristics of generated volumes as recorded when runs were measured on them.

A recorded history holds no volumes: they are generated again from their recipes, and compared with
the recorded characteristics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ImageError
from voxcast.files import canonical_json
from voxcast.images.catalogue import CATALOGUE, CHARACTERISTICS_TABLE
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import HEADER_COLUMNS, SHAPE_COLUMNS
from voxcast.images.image_set import read_participants, recipe_of_row

if TYPE_CHECKING:
    import os

    import pandas as pd

RECORDED_IMAGES = "images.parquet"  # beside the parts of a recorded history
# Allowed difference between processors of characteristics near zero; all but two are ratios.
FLOOR = 1e-4
# A piece of about ten voxels may count on one processor only.
FLOORS = {"component_count": 1.0, "foreground_voxels": 1.0}
GRID = (*SHAPE_COLUMNS, "axcodes", "dtype")
MAX_LISTED = 3


def recorded_images(
    catalogue_folder: str | os.PathLike[str], images_folder: str | os.PathLike[str] | None
) -> pd.DataFrame:
    """Return one row per volume: recipe, header and characteristics, to be stored with the runs.

    Parameters
    ----------
    images_folder : str or os.PathLike or None
        Of the generated set; None for a user's images, which have no recipe.

    Raises
    ------
    ImageError
        If a volume of the catalogue was not generated, or its characteristics are missing.
    """
    import pandas as pd

    catalogue = _catalogue(catalogue_folder)
    if images_folder is None:
        return catalogue.sort_values("subject", ignore_index=True)
    rows = []
    for row in read_participants(images_folder):
        recipe = {
            name: canonical_json(value) if isinstance(value, list) else value
            for name, value in recipe_of_row(row).items()
        }
        identity_columns = ("volume_id", "subject", "recipe_sha256")
        rows.append({name: row[name] for name in identity_columns} | recipe)
    table = pd.DataFrame(rows).drop(columns="dtype")  # the header has it too
    unknown = sorted(set(catalogue["volume_id"]) - set(table["volume_id"]))
    if unknown:
        subject = catalogue.set_index("volume_id")["subject"][unknown[0]]
        raise ImageError(
            "has no recipe of the generated set", f"subject {subject}", "build the catalogue again"
        )
    table = table.merge(catalogue.drop(columns="subject"), on="volume_id", validate="one_to_one")
    return table.sort_values("subject", ignore_index=True)


def check_recorded(
    catalogue_folder: str | os.PathLike[str],
    recorded: str | os.PathLike[str],
    rtol: float = 1e-3,
    *,
    require_all: bool = True,
) -> int:
    """Check that the volumes of a catalogue are the recorded ones.

    Parameters
    ----------
    recorded : str or os.PathLike
        Parquet file with the table of `recorded_images`.
    rtol : float
        Largest relative difference of a characteristic; near zero an absolute one, see `FLOORS`.
    require_all : bool
        Whether every recorded volume must be in the catalogue; otherwise missing ones are skipped.

    Returns
    -------
    int
        Number of volumes compared.

    Raises
    ------
    ImageError
        Naming the first volumes and characteristics that differ, or, with ``require_all``, a
        recorded volume that the catalogue lacks.
    """
    import pandas as pd

    old = pd.read_parquet(recorded).set_index("volume_id")
    new = _catalogue(catalogue_folder).drop_duplicates("volume_id").set_index("volume_id")
    subjects, is_here = old["subject"], old.index.isin(new.index)
    problems = []
    for volume_id, subject in subjects[~is_here].items() if require_all else ():
        is_replaced = subject in set(new["subject"])
        other = "is of another recipe or generator now" if is_replaced else "is missing"
        problems.append(f"volume {volume_id} of subject {subject} {other}")
    old = old[is_here]
    new = new.loc[old.index]
    for name in (*GRID, *CHARACTERISTICS):
        is_same = (new[name] == old[name]).to_numpy()
        if name in CHARACTERISTICS:
            floor = FLOORS.get(name, FLOOR)
            is_same = np.isclose(new[name], old[name], rtol=rtol, atol=floor, equal_nan=True)
        problems += [
            f"volume {volume_id} of subject {subjects[volume_id]}: {name} is "
            f"{new[name][volume_id]}, recorded as {old[name][volume_id]}"
            for volume_id in old.index[~is_same]
        ]
    if problems:
        more = f" and {len(problems) - MAX_LISTED} more" if len(problems) > MAX_LISTED else ""
        raise ImageError(
            "; ".join(problems[:MAX_LISTED]) + more,
            recorded,
            "generate the volumes with the recorded image set and generator",
        )
    return len(old)


def _catalogue(folder: str | os.PathLike[str]) -> pd.DataFrame:
    import pandas as pd

    columns = ["volume_id", "subject", *HEADER_COLUMNS, "voxel_sha256"]
    table = pd.read_parquet(Path(folder) / CATALOGUE)
    table = table[table["problem"].isna()][columns]
    numbers = pd.read_parquet(Path(folder) / CHARACTERISTICS_TABLE)
    return table.merge(numbers, on="volume_id", how="left", validate="many_to_one")
