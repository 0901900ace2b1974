"""Participants of an image set as means of regions: random parcellations of a common grid.

Volumes are sampled at points of an ellipsoid about the brain, in the world coordinates of their
headers, where generated heads lie as the template does. Both steps are cached by content: a
volume is read once for all parcellations, and a parcellation is applied once for all that is
fitted to it.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, ImageError
from voxcast.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from voxcast.apps.builtin.parcel_pipelines import Setting
    from voxcast.content_cache import Arrays, ContentCache

PARTICIPANTS = "participants.tsv"
SPACING_MM = 3.0
# About the brain of the MNI152 template.
CENTRE_MM, SEMI_AXES_MM = (0.0, -18.0, 8.0), (68.0, 86.0, 64.0)
MOST_PARCELS = 5000
SAMPLED, MEANS = "sampled_volume", "region_means"  # functions in the cache
VERSION = "1"  # of both; raised whenever either gives other numbers


@dataclass(frozen=True)
class Participant:
    """One row of ``participants.tsv``, and the volume of the participant."""

    label: str
    volume: Path
    columns: dict[str, str]


@dataclass
class Regions:
    """Region means of participants, and how they were had.

    Attributes
    ----------
    content : dict
        What decides them, for keys of the cache.
    loads : int
        Number of raw volumes that were read.
    """

    content: dict[str, Any]
    means: np.ndarray  # participants x regions
    loads: int


def fitted_data(
    parameters: Mapping[str, Any],
) -> tuple[Setting, list[Participant], np.ndarray]:
    """Return what is fitted, to whom, and the targets, as parameters of an application name them.

    Parameters
    ----------
    parameters : mapping
        As `voxcast.apps.builtin.parcel_study.DEFAULTS`; those of the regions are not read.

    Returns
    -------
    setting, participants : Setting, list of Participant
    targets : ndarray
        Participants x outputs.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    ImageError
        If the image set lacks participants.
    """
    from voxcast.apps.builtin.parcel_pipelines import Setting

    setting = Setting(
        *(parameters[name] for name in ("pipeline", "features", "candidates", "folds"))
    ).checked(parameters["participants"])
    participants = participants_of(Path(parameters["images"]), parameters["participants"])
    return setting, participants, targets_of(participants, parameters["target"])


def participants_of(folder: Path, count: int) -> list[Participant]:
    """Return the first `count` participants of a BIDS dataset with one T1-weighted volume each.

    Raises
    ------
    ImageError
        If there are fewer, or a volume is missing.
    """
    table = folder / PARTICIPANTS
    try:
        with table.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))[:count]
    except OSError as error:
        then = "make the images of the campaign, or set the parameter images"
        raise ImageError(f"cannot be read ({error.strerror})", table, then) from None
    if len(rows) < count:
        then = "set the parameter participants"
        raise ImageError(f"has {len(rows)} participants, not {count}", table, then)
    participants = []
    for row in rows:
        label = row.get("participant_id") or ""
        volumes = sorted((folder / label / "anat").glob(f"{label}*_T1w.nii*")) if label else []
        if len(volumes) != 1:
            raise ImageError(
                f"has {len(volumes)} T1w volumes of {label or 'a row'}, not 1", folder
            )
        participants.append(Participant(label, volumes[0], row))
    return participants


def targets_of(participants: list[Participant], name: str) -> np.ndarray:
    """Return a column of numbers, or of lists of numbers, as participants x outputs.

    Raises
    ------
    ConfigError
        If there is no such column, or it holds anything else.
    """
    import numpy as np

    try:
        values = [json.loads(participant.columns[name]) for participant in participants]
        targets = np.array(values, float).reshape(len(values), -1)
    except KeyError:
        raise ConfigError(f"no column of {PARTICIPANTS}", f"target {name!r}") from None
    except (TypeError, ValueError):
        reason = f"not a number, or as many numbers, for each row of {PARTICIPANTS}"
        raise ConfigError(reason, f"target {name!r}") from None
    if not np.isfinite(targets).all() or (np.ptp(targets, axis=0) == 0).any():
        raise ConfigError("is the same for all, or is missing for some", f"target {name!r}")
    return targets


def region_means(
    participants: list[Participant], parcels: int, seed: int, cache: ContentCache | None
) -> Regions:
    """Return the mean of each participant's volume in each region, over that of all regions.

    Parameters
    ----------
    parcels : int
        Number of regions.
    seed : int
        Of the random parcellation.
    """
    import numpy as np

    # The bytes of a volume are hashed in any case; they are decompressed where nothing is cached.
    hashes = [sha256_file(participant.volume) for participant in participants]
    content = {"volumes": hashes, "parcels": parcels, "seed": seed}
    loads = 0

    def sampled(participant: Participant, sha256: str) -> np.ndarray:
        def compute() -> Arrays:
            nonlocal loads
            loads += 1
            return {"values": sampled_volume(participant.volume)}

        return _cached(cache, SAMPLED, {"volume": sha256}, compute)["values"]

    def compute() -> Arrays:
        labels = parcellation(parcels, seed)
        sizes = np.bincount(labels, minlength=parcels)
        rows = []
        for participant, sha256 in zip(participants, hashes, strict=True):
            values = sampled(participant, sha256)
            means = np.bincount(labels, values, parcels) / sizes
            rows.append(means / values.mean(dtype=float))
        return {"means": np.array(rows, np.float32)}

    return Regions(content, _cached(cache, MEANS, content, compute)["means"], loads)


def parcellation(parcels: int, seed: int) -> np.ndarray:
    """Return the region of each point of the grid: that of the nearest of random points.

    Raises
    ------
    ConfigError
        If `parcels` is not 2 to 5000.

    Examples
    --------
    >>> labels = parcellation(20, seed=1)
    >>> sorted(set(labels.tolist())) == list(range(20))
    True
    """
    import numpy as np
    from scipy.spatial import cKDTree

    if not 2 <= parcels <= MOST_PARCELS:
        raise ConfigError(f"needs 2 to {MOST_PARCELS}, not {parcels}", "parcels")
    points = grid_points()
    rng = np.random.default_rng([seed, parcels])
    centres = points[rng.choice(len(points), parcels, replace=False)]
    return np.asarray(cKDTree(centres).query(points)[1])


def grid_points() -> np.ndarray:
    """Return the points of the ellipsoid in millimetres, points x 3."""
    import numpy as np

    centre, semi_axes = np.array(CENTRE_MM), np.array(SEMI_AXES_MM)
    steps = [np.arange(-axis, axis + SPACING_MM / 2, SPACING_MM) for axis in semi_axes]
    offsets = np.stack(np.meshgrid(*steps, indexing="ij"), -1).reshape(-1, 3)
    points: np.ndarray = offsets[((offsets / semi_axes) ** 2).sum(1) <= 1] + centre
    return points


def sampled_volume(path: Path) -> np.ndarray:
    """Return the voxels nearest to the points of the grid; 0 outside of the volume.

    Raises
    ------
    ImageError
        If it cannot be read, is not one 3-D volume, or lies elsewhere.
    """
    import nibabel
    import numpy as np

    try:
        image = nibabel.load(path)
        voxels = np.asanyarray(image.dataobj)  # type: ignore[attr-defined]
        inverse = np.linalg.inv(image.affine)  # type: ignore[attr-defined]
    except (OSError, ValueError, EOFError, nibabel.filebasedimages.ImageFileError) as error:
        raise ImageError(f"cannot be read ({error})", path) from None
    if voxels.ndim != 3:
        raise ImageError(f"needs one 3-D volume, not shape {voxels.shape}", path)
    indices = np.rint(grid_points() @ inverse[:3, :3].T + inverse[:3, 3]).astype(int)
    inside = ((indices >= 0) & (indices < voxels.shape)).all(1)
    values = np.zeros(len(indices), np.float32)
    values[inside] = voxels[tuple(indices[inside].T)]
    if not np.isfinite(values).all() or values.mean() <= 0:
        raise ImageError("has no brain where the template has it", path)
    return values


def _cached(
    cache: ContentCache | None,
    function: str,
    content: dict[str, Any],
    compute: Callable[[], Arrays],
) -> Arrays:
    return compute() if cache is None else cache.arrays(function, VERSION, content, compute)
