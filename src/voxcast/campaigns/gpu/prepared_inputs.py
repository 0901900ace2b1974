"""The inputs of a GPU campaign for a machine with few packages: applications and volumes.

Volumes are prepared where ANTs is installed: on the network's grid, corrected and normalised, a
megabyte each. The inputs are read with the standard library alone.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError
from voxcast.files import atomic_path, read_json, sha256_file, write_json
from voxcast.records import App, of_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INDEX_FILE = "inputs.json"
NVML_FILE = "pynvml.py"
MAX_BYTES = 30_000_000
N4_ITERATIONS = 50


@dataclass(frozen=True)
class Source:
    """A volume of an image set; `recipe` is None for one that was not generated."""

    volume_id: str
    subject: str
    path: Path
    recipe: dict[str, Any] | None = None


@dataclass(frozen=True)
class Inputs:
    """The prepared applications, and volumes whose paths are those of prepared files.

    A volume keeps the identifier of what it was prepared from, so that the network's time can be
    joined with that of the phases before it.
    """

    apps: dict[str, App]
    volumes: tuple[Source, ...]
    training: tuple[dict[str, Any], ...]  # parameters of `dnn_train` to try
    repeats: int


def prepare(
    folder: Path,
    apps: Mapping[str, App],
    sources: Sequence[Source],
    training: Sequence[Mapping[str, Any]],
    repeats: int,
) -> Path:
    """Prepare ``sources`` for the network and write all inputs into ``folder``.

    Needs ANTs, and some seconds per volume. Volumes that exist are not prepared again.

    Returns
    -------
    Path
        The index.

    Raises
    ------
    RunError
        If the inputs are larger than `MAX_BYTES`.
    """
    from tqdm import tqdm

    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for source in tqdm(sources, desc="preparing", unit="volume", disable=None):
        name = f"volumes/{source.volume_id}.nii.gz"
        if not (folder / name).is_file():
            _write_normalised(source.path, folder / name)
        listed.append(
            {
                "volume_id": source.volume_id,
                "subject": source.subject,
                "file": name,
                "sha256": sha256_file(folder / name),
                "recipe": source.recipe,
            }
        )
    nvml = importlib.util.find_spec("pynvml")
    if nvml is not None and nvml.origin is not None:
        # One file of plain Python: it need not be installed there.
        shutil.copyfile(nvml.origin, folder / NVML_FILE)
    content = {
        "apps": {name: dataclasses.asdict(app) for name, app in apps.items()},
        "volumes": listed,
        "training": [dict(point) for point in training],
        "repeats": repeats,
    }
    write_json(folder / INDEX_FILE, content)
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size_bytes > MAX_BYTES:
        excess = f"is {size_bytes / 1e6:.0f} MB, more than {MAX_BYTES / 1e6:.0f}"
        raise RunError(excess, folder, "prepare fewer volumes")
    return folder / INDEX_FILE


def read_inputs(folder: Path) -> Inputs:
    """Read what `prepare` wrote.

    Raises
    ------
    RunError
        If it is missing or broken, a volume included.
    """
    try:
        content = read_json(folder / INDEX_FILE)
        apps = {name: of_fields(App, fields) for name, fields in content["apps"].items()}
        volumes = []
        for entry in content["volumes"]:
            path = folder / entry["file"]
            if sha256_file(path) != entry["sha256"]:
                raise RunError("is not the volume that was prepared", path, "copy it again")
            volumes.append(Source(entry["volume_id"], entry["subject"], path, entry["recipe"]))
        training = tuple(dict(point) for point in content["training"])
        return Inputs(apps, tuple(volumes), training, int(content["repeats"]))
    except FileNotFoundError as error:
        raise RunError("no such file", error.filename, "prepare the inputs first") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"is broken ({error!r})", folder / INDEX_FILE, "prepare it again") from None


def lend_nvml(folder: Path) -> None:
    """Let NVML be imported from ``folder`` where it is not installed."""
    if importlib.util.find_spec("pynvml") is None and (folder / NVML_FILE).is_file():
        sys.path.append(str(folder))


def _write_normalised(image: Path, path: Path) -> None:
    """Take a scan through the steps of the tiled segmentation that come before its network."""
    import ants
    import nibabel

    from voxcast_apps.tiles.alignment import correct_bias, normalise, register
    from voxcast_apps.tiles.grid import grid_affine

    with tempfile.TemporaryDirectory() as scratch:
        aligned, _ = register(ants.image_read(str(image)), 1.0, Path(scratch))
        normalised = normalise(correct_bias(aligned, N4_ITERATIONS).numpy())
    volume = nibabel.Nifti1Image(normalised, grid_affine())
    volume.set_data_dtype("int16")  # with a slope: half the size, exact to 1e-4
    with atomic_path(path) as partial:
        nibabel.save(volume, partial)
