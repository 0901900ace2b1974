"""The catalogue: a row for every volume, usable or not, and characteristics of the usable ones.

Each file is read once. An unusable volume is listed with the reason, and does not stop the rest.

Runs outlive the images they were measured on. The record of the catalogue therefore keeps header,
characteristics and small volume of every volume that was ever catalogued, so that runs on a
replaced image set still train.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from voxcast.errors import ImageError, TableError, one_line
from voxcast.files import atomic_path
from voxcast.images.characteristics import (
    VERSIONS,
    current_rows,
    is_current,
    versions_of,
)
from voxcast.images.header import HEADER_COLUMNS, HEADER_TYPES, MAX_VOXELS, log_itk_refusals
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

    import numpy as np
    import pandas as pd
    import pyarrow

    from voxcast.images.characteristics import Characteristic
    from voxcast.images.sources import ImageFile


logger = logging.getLogger(__name__)

CATALOGUE, CHARACTERISTICS_TABLE = "catalogue.parquet", "characteristics.parquet"
_TEXTS = ("volume_id", "subject", "session", "suffix", "path", "problem")
_CATALOGUE: dict[str, type] = {**dict.fromkeys(_TEXTS, str), **HEADER_TYPES, "voxel_sha256": str}


def build_catalogue(
    files: Sequence[ImageFile],
    out_folder: str | Path,
    coarse_points: int,
    network_points: int,
    volume_ids: Mapping[str, str] | None = None,
    root: str | Path = ".",
    image_set: str = "",
    max_voxels: int = MAX_VOXELS,
    lab: Mapping[str, Characteristic] | None = None,
) -> int:
    """Write ``catalogue.parquet`` and ``characteristics.parquet``, and update the record.

    The catalogue has a row for every file, the characteristics have one for every good
    `volume_id`, so that the same voxels under two subjects can be joined to both. Good volumes are
    added to ``on_record.parquet`` and ``volumes.npz``, which keep earlier image sets.

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
    lab : mapping, optional
        Characteristics of a laboratory, see `voxcast.images.characteristics`.

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
    lab, grids, out_folder = lab or {}, Grids(coarse_points, network_points), Path(out_folder)
    versions = versions_of(lab)
    on_record = _rows_on_record(out_folder / ON_RECORD, versions)
    volumes = read_small_volumes(out_folder / SMALL_VOLUMES, RESTORE)
    listed = {file.path: Path(root) / file.path for file in files}
    problems = {file.path: _problem(file, listed[file.path]) for file in files}
    read = [name for name in listed if not problems[name]]
    looks = summaries([listed[name] for name in read], grids, max_voxels, lab)
    problems |= {n: look for n, look in zip(read, looks, strict=True) if isinstance(look, str)}
    seen = {n: s for n, s in zip(read, looks, strict=True) if not isinstance(s, str)}
    if not seen:
        first = problems[files[0].path]
        raise ImageError(f"none of {len(files)} volumes can be used, the first: {first}")
    rows: list[dict[str, Any]] = []
    new_on_record: dict[str, dict[str, Any]] = {}
    cubes: dict[str, np.ndarray] = {}
    for file in files:
        summary = seen.get(file.path)
        volume_id = summary and (volume_ids or {}).get(file.path, summary.volume_id)
        rows.append({
            "volume_id": volume_id,
            **{name: getattr(file, name) for name in ("subject", "session", "suffix", "path")},
            "problem": problems[file.path] or None,
            **(summary.header.columns() if summary else dict.fromkeys(HEADER_COLUMNS)),
            "voxel_sha256": summary and summary.voxel_sha256,
        })  # fmt: skip
        if summary and volume_id and volume_id not in new_on_record:
            facts = summary.facts(file.subject, coarse_points, lab)
            new_on_record[volume_id] = {**facts, **rows[-1], "image_set": image_set}
            if summary.network_volume is not None:
                cubes[volume_id] = summary.network_volume
    _write_rows(out_folder / CATALOGUE, rows, _CATALOGUE)
    types = {"volume_id": str, **dict.fromkeys(versions, float), VERSIONS: str}
    _write_rows(out_folder / CHARACTERISTICS_TABLE, list(new_on_record.values()), types)
    _log_failures({listed[name]: summary.failures for name, summary in seen.items()})
    log_itk_refusals([(listed[name], summary.itk_refusal) for name, summary in seen.items()])
    outdated = [
        row
        for key, row in on_record.items()
        if key not in new_on_record and not is_current(row[VERSIONS], versions)
    ]
    renewed = {row["volume_id"]: row for row in _renewed(outdated, Path(root), max_voxels, lab)}
    # First, as a volume without a row is ignored, but not the other way round.
    earlier = {key: volume for key, volume in volumes.items() if key in on_record}
    _add_small_volumes(out_folder / SMALL_VOLUMES, earlier, cubes)
    by_id = {**on_record, **renewed, **new_on_record}
    ordered = [by_id[key] for key in sorted(by_id)]
    _write_rows(out_folder / ON_RECORD, ordered, _types(versions))
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


def _log_failures(failures: Mapping[Path, Mapping[str, str]]) -> None:
    """Log how often a characteristic of a laboratory failed, and the first reason."""
    for name in sorted({name for of_volume in failures.values() for name in of_volume}):
        failed = [path for path, of_volume in failures.items() if name in of_volume]
        logger.warning(
            "%s: not computed for %d of %d volumes, whose runs are left out where it is declared; "
            "the first is %s: %s",
            name, len(failed), len(failures), failed[0], failures[failed[0]][name],
        )  # fmt: skip


def _renewed(
    outdated: Sequence[dict[str, Any]],
    root: Path,
    max_voxels: int,
    lab: Mapping[str, Characteristic],
) -> list[dict[str, Any]]:
    """Compute the characteristics of earlier volumes whose file is there and unchanged."""
    renewed = []
    for row in outdated:
        path = row[PATH]
        if path is None or not (root / path).is_file():
            continue
        points = int(row["coarse_points"])
        (summary,) = summaries([root / path], Grids(points), max_voxels, lab)
        if not isinstance(summary, str) and summary.voxel_sha256 == row["voxel_sha256"]:
            renewed.append({**row, **summary.facts(row["subject"], points, lab), PATH: path})
            renewed[-1]["volume_id"] = row["volume_id"]
    if outdated:
        logger.warning(
            "%d volumes of earlier image sets have characteristics of another version: %d are "
            "computed anew; of %d the file is gone or changed, and their runs are left out",
            len(outdated), len(renewed), len(outdated) - len(renewed),
        )  # fmt: skip
    return renewed


ON_RECORD = "on_record.parquet"
_REQUIRED: dict[str, type] = {
    **dict.fromkeys(("volume_id", "subject", "session", "image_set"), str),
    "coarse_points": int,  # grid of the characteristics
    **HEADER_TYPES,
    "voxel_sha256": str,
}
PATH = "path"  # of the file when it was catalogued
# DVC tracks the catalogue of the project, not of its campaigns.
RESTORE = "restore it (data/catalogue with `dvc checkout`), or remove it to forget earlier images"


def _rows_on_record(path: Path, versions: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the rows of the volumes on record by volume id; none if there is no record yet."""
    if not path.is_file():
        return {}
    rows = cast("list[dict[str, Any]]", read_on_record(path, versions).to_dict("records"))
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


def read_on_record(
    path: str | os.PathLike[str], versions: Mapping[str, int] | None = None
) -> pd.DataFrame:
    """Read a table of volumes on record.

    Parameters
    ----------
    versions : mapping, optional
        Versions of the characteristics by name; by default voxcast's own. Values of another
        version are unknown.

    Returns
    -------
    DataFrame
        One row per volume, sorted by ``volume_id``, with `columns_of`.

    Raises
    ------
    TableError
        If it is missing, broken, or lacks a column other than a characteristic.
    """
    versions = versions_of({}) if versions is None else versions
    import pyarrow
    import pyarrow.parquet

    if not Path(path).is_file():
        raise TableError("no such file", path, "run `dvc repro catalogue`, which writes it")
    try:
        table = pyarrow.parquet.read_table(path)
        if missing := [name for name in _REQUIRED if name not in table.column_names]:
            raise TableError(f"lacks the column {missing[0]}", path, RESTORE)
        fields = [field for field in _schema(_types(versions)) if field.name in table.column_names]
        typed = table.select([field.name for field in fields]).cast(pyarrow.schema(fields))
        rows = current_rows(typed.to_pandas(), versions)
        rows = rows.reindex(columns=list(columns_of(versions)))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, RESTORE) from None
    if rows["volume_id"].isna().any() or not rows["volume_id"].is_unique:
        raise TableError("has a volume without an identifier, or twice", path, RESTORE)
    return rows


def columns_of(versions: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns of a table of volumes on record, with these characteristics."""
    return tuple(_types(versions))


def _write_rows(path: Path, rows: list[dict[str, Any]], types: Mapping[str, type]) -> None:
    """Write rows atomically as Parquet."""
    import pyarrow
    import pyarrow.parquet

    with atomic_path(path) as partial:
        table = pyarrow.Table.from_pylist(rows, schema=_schema(types))
        pyarrow.parquet.write_table(table, partial)


def _types(versions: Mapping[str, int]) -> dict[str, type]:
    return {**_REQUIRED, PATH: str, **dict.fromkeys(versions, float), VERSIONS: str}


def _schema(types: Mapping[str, type]) -> pyarrow.Schema:
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    return pyarrow.schema([(name, arrow_types[type_]) for name, type_ in types.items()])
