"""The catalogue: a row for every volume, usable or not, and characteristics of the usable ones.

Each file is read once. An unusable volume is listed with the reason, and does not stop the rest.

Runs outlive the images they were measured on. The record of the catalogue therefore keeps header,
characteristics and small volume of every volume that was ever catalogued, so that runs on a
replaced image set still train. A recorded history holds no volumes: they are generated again from
their recipes, and compared with the recorded characteristics.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from voxcast.errors import ImageError, TableError, one_line
from voxcast.files import atomic_path, canonical_json
from voxcast.images.characteristics import (
    CHARACTERISTICS,
    VERSIONS,
    current_rows,
)
from voxcast.images.header import (
    HEADER_COLUMNS,
    HEADER_TYPES,
    MAX_VOXELS,
    SHAPE_COLUMNS,
    log_itk_refusals,
)
from voxcast.images.image_set import read_participants, recipe_of_row
from voxcast.images.network_volume import (
    SMALL_VOLUMES,
    points_of,
    read_small_volumes,
    write_small_volumes,
)
from voxcast.images.sources import changed
from voxcast.images.summary import Grids, summaries

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import pyarrow

    from voxcast.images.sources import ImageFile


logger = logging.getLogger(__name__)

CATALOGUE, ON_RECORD = "catalogue.parquet", "on_record.parquet"
# DVC tracks the catalogue of the project, not of its campaigns.
RESTORE = "restore it (data/catalogue with `dvc checkout`), or remove it to forget earlier images"
MAX_PROBLEMS_SHOWN = 10
PATH = "path"  # of the file when it was catalogued
_FILE = ("subject", "session", "suffix", PATH)
_CHARACTERISTICS: dict[str, type] = {**dict.fromkeys(CHARACTERISTICS, float), VERSIONS: str}
_CATALOGUE: dict[str, type] = {
    **dict.fromkeys(("volume_id", *_FILE, "problem"), str),
    **HEADER_TYPES,
    "voxel_sha256": str,
    **_CHARACTERISTICS,
}
_REQUIRED: dict[str, type] = {
    **dict.fromkeys(("volume_id", "subject", "session", "image_set"), str),
    "coarse_points": int,  # grid of the characteristics
    **HEADER_TYPES,
    "voxel_sha256": str,
}
_ON_RECORD: dict[str, type] = {**_REQUIRED, PATH: str, **_CHARACTERISTICS}


def build_catalogue(
    files: Sequence[ImageFile],
    out_folder: str | Path,
    grids: Grids,
    volume_ids: Mapping[str, str] | None = None,
    root: str | Path = ".",
    image_set: str = "",
    max_voxels: int = MAX_VOXELS,
) -> int:
    """Write ``catalogue.parquet``, a row for every file, and update the record.

    Good volumes are added to ``on_record.parquet``, a row for each `volume_id`, and to
    ``volumes.npz``; both keep earlier image sets. The first reasons why volumes cannot be used are
    logged.

    Parameters
    ----------
    volume_ids : mapping, optional
        Identifiers by path, for generated volumes; of others it is the voxels' hash.
    root : str or Path
        Base of relative paths in `files`.
    image_set : str
        Label of the image set.
    max_voxels : int
        A volume with more is bad, and is not read.

    Returns
    -------
    int
        Number of bad volumes.

    Raises
    ------
    ImageError
        If no volume can be used; the message names the first reason.
    TableError
        If the volumes on record cannot be read.
    """
    if not files:
        raise ImageError("image set is empty", out_folder, "choose images with images=… and rerun")
    out_folder, root = Path(out_folder), Path(root)
    on_record = _rows_on_record(out_folder / ON_RECORD)
    volumes = read_small_volumes(out_folder / SMALL_VOLUMES, RESTORE)
    problems = {file.path: _problem(file, root / file.path) for file in files}
    read = [file.path for file in files if not problems[file.path]]
    looks = summaries([root / name for name in read], grids, max_voxels)
    problems |= {n: look for n, look in zip(read, looks, strict=True) if isinstance(look, str)}
    seen = {n: s for n, s in zip(read, looks, strict=True) if not isinstance(s, str)}
    if not seen:
        first = problems[files[0].path]
        raise ImageError(f"none of {len(files)} volumes can be used, the first: {first}")
    rows: list[dict[str, Any]] = []
    new_on_record: dict[str, dict[str, Any]] = {}
    cubes: dict[str, np.ndarray] = {}
    for file in files:
        row = {name: getattr(file, name) for name in _FILE}
        row["problem"] = problems[file.path] or None
        if summary := seen.get(file.path):
            row |= summary.facts(file.subject, grids.coarse_points)
            volume_id = row["volume_id"] = (volume_ids or {}).get(file.path, summary.volume_id)
            if volume_id not in new_on_record:
                new_on_record[volume_id] = {**row, "image_set": image_set}
                if summary.network_volume is not None:
                    cubes[volume_id] = summary.network_volume
        rows.append(row)
    _write_rows(out_folder / CATALOGUE, rows, _CATALOGUE)
    _log_problems([problem for problem in problems.values() if problem], len(files), out_folder)
    log_itk_refusals([(root / name, summary.itk_refusal) for name, summary in seen.items()])
    # First, as a volume without a row is ignored, but not the other way round.
    earlier_volumes = {key: volume for key, volume in volumes.items() if key in on_record}
    _add_small_volumes(out_folder / SMALL_VOLUMES, earlier_volumes, cubes)
    by_id = {**on_record, **new_on_record}
    _write_rows(out_folder / ON_RECORD, [by_id[key] for key in sorted(by_id)], _ON_RECORD)
    return len(files) - len(seen)


def _problem(file: ImageFile, path: Path) -> str:
    """Return why a listed file is not read; empty if it may be."""
    if file.problem:
        problem, _, then = file.problem.partition("; ")
        return one_line(ImageError(problem, path, then or None))
    if changed(file):
        then = "list it again: voxcast learn"
        return one_line(ImageError("changed since it was listed", path, then))
    return ""


def _log_problems(problems: Sequence[str], files: int, folder: Path) -> None:
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        logger.warning(problem)
    if problems:
        text = "%d of %d volumes cannot be used; see column problem in %s"
        logger.warning(text, len(problems), files, folder)


def _rows_on_record(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of the volumes on record by volume id; none if there is no record yet."""
    if not path.is_file():
        return {}
    rows = cast("list[dict[str, Any]]", read_on_record(path).to_dict("records"))
    # Without any path the column holds NaN.
    return {
        row["volume_id"]: {**row, PATH: row[PATH] if isinstance(row[PATH], str) else None}
        for row in rows
    }


def _add_small_volumes(
    path: Path, earlier: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray]
) -> None:
    """Write small volumes beside those on record, which are dropped on a grid of another size."""
    (points,) = {points_of(volume) for volume in new.values()}
    same_size = {key: volume for key, volume in earlier.items() if points_of(volume) == points}
    if dropped := len(set(earlier) - set(same_size) - set(new)):
        logger.warning(
            "%d small volumes of earlier images are dropped: they have another number of "
            "points; the network sees those images as unknown", dropped,
        )  # fmt: skip
    write_small_volumes(path, {**same_size, **new}, points)


def read_on_record(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table of volumes on record, with the present columns.

    Returns
    -------
    DataFrame
        One row per volume, sorted by ``volume_id``; characteristics of another version are
        unknown.

    Raises
    ------
    TableError
        If it is missing, broken, or lacks a column other than a characteristic.
    """
    import pyarrow
    import pyarrow.parquet

    if not Path(path).is_file():
        raise TableError("no such file", path, "run `dvc repro catalogue`, which writes it")
    try:
        table = pyarrow.parquet.read_table(path)
        if missing := [name for name in _REQUIRED if name not in table.column_names]:
            raise TableError(f"lacks the column {missing[0]}", path, RESTORE)
        fields = [field for field in _schema(_ON_RECORD) if field.name in table.column_names]
        typed = table.select([field.name for field in fields]).cast(pyarrow.schema(fields))
        rows = current_rows(typed.to_pandas()).reindex(columns=list(_ON_RECORD))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, RESTORE) from None
    if rows["volume_id"].isna().any() or not rows["volume_id"].is_unique:
        raise TableError("has a volume without an identifier, or twice", path, RESTORE)
    return rows


def _write_rows(path: Path, rows: list[dict[str, Any]], types: Mapping[str, type]) -> None:
    """Write rows atomically as Parquet."""
    import pyarrow
    import pyarrow.parquet

    with atomic_path(path) as partial:
        table = pyarrow.Table.from_pylist(rows, schema=_schema(types))
        pyarrow.parquet.write_table(table, partial)


def _schema(types: Mapping[str, type]) -> pyarrow.Schema:
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    return pyarrow.schema([(name, arrow_types[type_]) for name, type_ in types.items()])


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

    table = pd.read_parquet(Path(folder) / CATALOGUE)
    columns = ["volume_id", "subject", *HEADER_COLUMNS, "voxel_sha256", *_CHARACTERISTICS]
    return table.loc[table["problem"].isna(), columns]
