"""The catalogue: a row for every volume, usable or not, and characteristics of the usable ones.

Each file is read once. An unusable volume is listed with the reason, and does not stop the others.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.files import canonical_json
from voxcast.images.characteristic_versions import VERSIONS, versions_of
from voxcast.images.characteristics import characteristics
from voxcast.images.headers import HEADER_COLUMNS, HEADER_TYPES, MAX_VOXELS, ImageHeader
from voxcast.images.itk_refusals import itk_refusal, log_itk_refusals
from voxcast.images.lab_characteristics import lab_values
from voxcast.images.network_volume import network_volume
from voxcast.images.on_record import PATH, VolumesOnRecord, write_rows
from voxcast.images.sources import changed
from voxcast.images.volume_contents import VolumeContents
from voxcast.images.volumes import read_volume
from voxcast.log import progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow

    from voxcast.images.characteristics import Characteristic
    from voxcast.images.sources import ImageFile

logger = logging.getLogger(__name__)

CATALOGUE, CHARACTERISTICS_TABLE = "catalogue.parquet", "characteristics.parquet"
_TEXT = ("volume_id", "subject", "session", "suffix", "path", "problem")


@dataclass(frozen=True)
class Look:
    """The data of one volume; `problem` is why the other fields are missing.

    `failures` are the characteristics of a laboratory that could not be computed, with the reason;
    `itk_refusal` is why applications built on ITK refuse the file.
    """

    problem: str | None
    header: ImageHeader | None = None
    voxel_sha256: str | None = None
    characteristics: dict[str, float] | None = None
    network: np.ndarray | None = None
    failures: dict[str, str] = field(default_factory=dict)
    itk_refusal: str = ""


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
    """Write ``catalogue.parquet`` and ``characteristics.parquet``, and add to what is on record.

    The catalogue has a row for every file, the characteristics have one for every good
    `volume_id`, so that the same voxels under two subjects can be joined to both. Good volumes are
    added to ``on_record.parquet`` and ``volumes.npz``, which keep those of earlier image sets.

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
        Characteristics of a laboratory, see `voxcast.images.lab_characteristics`.

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
    lab = lab or {}
    versions = versions_of(lab)
    on_record = VolumesOnRecord(out_folder, versions)
    earlier_paths = _paths(Path(out_folder) / CATALOGUE)
    import nibabel.orientations  # noqa: F401  # once, before threads: imports may race

    paths = [Path(root) / file.path for file in files]

    def look(n: int) -> Look:
        return look_at(paths[n], files[n], coarse_points, network_points, max_voxels, lab)

    # Decompression and array arithmetic release the interpreter lock.
    with ThreadPoolExecutor(max_workers=2) as pool:
        looking = pool.map(look, range(len(files)))
        looks = list(progress(looking, total=len(files), desc="reading volumes", unit="volume"))
    bad = [look for look in looks if look.problem]
    if len(bad) == len(looks):
        raise ImageError(f"none of {len(files)} volumes can be used, the first: {bad[0].problem}")
    rows: list[dict[str, Any]] = []
    new_on_record: dict[str, dict[str, Any]] = {}
    cubes: dict[str, np.ndarray] = {}
    for file, seen in zip(files, looks, strict=True):
        volume_id = None
        if seen.problem is None and seen.voxel_sha256 is not None:
            volume_id = (volume_ids or {}).get(file.path, seen.voxel_sha256[:16])
        rows.append(_row(file, seen, volume_id))
        if volume_id is not None and volume_id not in new_on_record and seen.network is not None:
            grid = {"image_set": image_set, "coarse_points": coarse_points}
            grid[VERSIONS] = canonical_json(versions)
            new_on_record[volume_id] = {**rows[-1], **grid, **(seen.characteristics or {})}
            cubes[volume_id] = seen.network
    out_folder = Path(out_folder)
    write_rows(out_folder / CATALOGUE, rows, _catalogue_schema())
    write_rows(
        out_folder / CHARACTERISTICS_TABLE,
        list(new_on_record.values()),
        _characteristics_schema(versions),
    )
    _log_failures(paths, looks)
    log_itk_refusals((path, seen.itk_refusal) for path, seen in zip(paths, looks, strict=True))
    outdated = [row for row in on_record.outdated() if row["volume_id"] not in new_on_record]
    renewed = _renewed(outdated, earlier_paths, Path(root), max_voxels, lab)
    on_record.add([*renewed, *new_on_record.values()], cubes)
    return len(bad)


def look_at(
    path: Path,
    file: ImageFile | None,
    coarse_points: int,
    network_points: int | None,
    max_voxels: int = MAX_VOXELS,
    lab: Mapping[str, Characteristic] | None = None,
) -> Look:
    """Read a volume once and return its data for the catalogue, or its problem.

    Without ``network_points`` there is no small volume.
    """
    try:
        if file is not None and file.problem:
            problem, _, then = file.problem.partition("; ")
            raise ImageError(problem, path, then or None)
        if file is not None and changed(file):
            raise ImageError("changed since it was listed", path, "list it again: voxcast learn")
        volume = read_volume(path, coarse_points, max_voxels)
        contents = VolumeContents(volume.coarse, volume.foreground, volume.layout.header)
        values, failures = lab_values(lab or {}, contents)
        return Look(
            problem=None,
            header=volume.layout.header,
            voxel_sha256=volume.voxel_sha256,
            characteristics=characteristics(volume.coarse, volume.foreground) | values,
            failures=failures,
            itk_refusal=itk_refusal(path),
            network=None if network_points is None else network_volume(volume, network_points),
        )
    except ImageError as error:
        return Look(problem=one_line(error))
    except MemoryError:
        return Look(problem=f"{path}: too large for this machine's memory; crop or resample it")


def _log_failures(paths: Sequence[Path], looks: Sequence[Look]) -> None:
    """Log how often a characteristic of a laboratory failed, and the first reason."""
    for name in sorted({name for look in looks for name in look.failures}):
        failed = [n for n, look in enumerate(looks) if name in look.failures]
        logger.warning(
            "%s: not computed for %d of %d volumes, whose runs are left out where it is declared; "
            "the first is %s: %s",
            name, len(failed), len(looks), paths[failed[0]], looks[failed[0]].failures[name],
        )  # fmt: skip


def _paths(catalogue: Path) -> dict[str, str]:
    """Return the paths of the volumes in an earlier catalogue, by the hash of their voxels."""
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(catalogue, columns=["voxel_sha256", "path"]).to_pylist()
    except (OSError, ValueError, pyarrow.ArrowException):  # none yet, or one that is replaced now
        return {}
    return {row["voxel_sha256"]: row["path"] for row in rows if row["voxel_sha256"]}


def _renewed(
    outdated: Sequence[dict[str, Any]],
    earlier_paths: Mapping[str, str],
    root: Path,
    max_voxels: int,
    lab: Mapping[str, Characteristic],
) -> list[dict[str, Any]]:
    """Compute the characteristics of earlier volumes whose file is there and unchanged."""
    versions = canonical_json(versions_of(lab))
    renewed = []
    for row in outdated:
        path = row[PATH] or earlier_paths.get(row["voxel_sha256"])
        if path is None or not (root / path).is_file():
            continue
        look = look_at(root / path, None, int(row["coarse_points"]), None, max_voxels, lab)
        if look.voxel_sha256 == row["voxel_sha256"]:
            new_values = {**(look.characteristics or {}), PATH: path, VERSIONS: versions}
            renewed.append({**row, **new_values})
    if outdated:
        logger.warning(
            "%d volumes of earlier image sets have characteristics of another version: %d are "
            "computed anew; of %d the file is gone or changed, and their runs are left out",
            len(outdated), len(renewed), len(outdated) - len(renewed),
        )  # fmt: skip
    return renewed


def _row(file: ImageFile, seen: Look, volume_id: str | None) -> dict[str, Any]:
    header = dict.fromkeys(HEADER_COLUMNS) if seen.header is None else seen.header.columns()
    return {
        "volume_id": volume_id,
        "subject": file.subject,
        "session": file.session,
        "suffix": file.suffix,
        "path": file.path,
        "problem": seen.problem,
        **header,
        "voxel_sha256": seen.voxel_sha256,
    }


def _catalogue_schema() -> pyarrow.Schema:
    import pyarrow

    arrow_types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    types = {**dict.fromkeys(_TEXT, str), **HEADER_TYPES, "voxel_sha256": str}
    return pyarrow.schema([(name, arrow_types[type_]) for name, type_ in types.items()])


def _characteristics_schema(versions: Mapping[str, int]) -> pyarrow.Schema:
    import pyarrow

    numbers = [(name, pyarrow.float64()) for name in versions]
    texts = [(name, pyarrow.string()) for name in ("volume_id", VERSIONS)]
    return pyarrow.schema([texts[0], *numbers, texts[1]])
