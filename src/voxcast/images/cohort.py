"""The generated image set: head volumes made from a template, written as a BIDS dataset.

Subject i depends on the seed, i and the sizes only, so a cohort grows without changing.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from voxcast.errors import ConfigError, ImageError
from voxcast.files import atomic_path, read_json, sha256_file, write_json
from voxcast.images.bids import write_dataset_files
from voxcast.images.participants import relative_path
from voxcast.images.recipe import DESCRIPTIONS, GENERATOR_VERSION, Recipe, draw_recipe
from voxcast.images.rendering import Rendered, render
from voxcast.images.sources import ImageFile

if TYPE_CHECKING:
    import numpy as np

    from voxcast.images.grids import Sizes

MAX_ATTEMPTS = 5
_GZIP_LEVEL = 3  # higher ones take far longer on noise and save little


def write_cohort(
    folder: str | Path,
    *,
    seed: int,
    subjects: int,
    sizes: Sizes,
    label_prefix: str = "",
    root: str | Path = ".",
) -> list[ImageFile]:
    """Write a cohort as a BIDS dataset and return its list of files.

    A subject whose volume lies there already, made by the same recipe, is not made again.

    Parameters
    ----------
    folder : str or Path
        The dataset's folder.
    label_prefix : str
        Letters before a subject's number, which keep the subjects of several sets apart.
    root : str or Path
        Paths in the list are relative to it.

    Raises
    ------
    ConfigError
        If there are no subjects, or a parameter makes no sense.
    ImageError
        If a subject fails the check of its volume five times.
    """
    if not 1 <= subjects <= 9999:
        raise ConfigError(f"needs 1 to 9999, not {subjects}", "images.subjects")
    if label_prefix and not (label_prefix.isascii() and label_prefix.isalpha()):
        raise ConfigError(f"needs letters only, not {label_prefix!r}", "images.label_prefix")
    sizes = sizes.checked()
    folder = Path(folder)
    files, participants = [], []
    progress = tqdm(range(1, subjects + 1), desc="making heads", unit="volume", disable=None)
    for index in progress:
        label = f"{label_prefix}{index:04d}"
        path = folder / f"sub-{label}" / "anat" / f"sub-{label}_T1w.nii.gz"
        recipe = _already_made(path, seed, index, sizes) or _make(path, seed, index, sizes)
        participants.append({"participant_id": f"sub-{label}", **recipe.columns()})
        files.append(
            ImageFile(
                subject=label,
                session="",
                suffix="T1w",
                path=relative_path(path, root),
                size_bytes=path.stat().st_size,
                mtime_ns=0,  # decided by the recipe, not by when it was followed
                sha256=sha256_file(path),
            )
        )
    write_dataset_files(
        folder,
        "Generated head MRI volumes",
        {"Name": "voxcast", "Version": GENERATOR_VERSION},
        participants,
        DESCRIPTIONS,
    )
    return files


def write_volume(path: str | Path, array: np.ndarray, affine: np.ndarray) -> None:
    """Write a ``.nii.gz`` atomically; the same content gives the same bytes at any time."""
    import nibabel

    image = nibabel.Nifti1Image(array, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_sform(affine, code=1)
    image.set_qform(affine, code=1)
    with (
        atomic_path(path) as partial,
        partial.open("wb") as stream,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0) as packed,
    ):
        packed.write(image.to_bytes())


def _make(path: Path, seed: int, index: int, sizes: Sizes) -> Recipe:
    problem = None
    for attempt in range(MAX_ATTEMPTS):
        recipe = draw_recipe(seed, index, sizes, attempt)
        rendered = render(recipe)
        problem = rendered.problem
        if problem is None:
            write_volume(path, rendered.array, rendered.affine)
            # Last: a volume without it was cut short, or is of another recipe.
            write_json(_sidecar(path), _sidecar_content(path, recipe, rendered))
            return recipe
    raise ImageError(
        f"failed the check {MAX_ATTEMPTS} times ({problem})", path, "choose another images.seed"
    )


def _already_made(path: Path, seed: int, index: int, sizes: Sizes) -> Recipe | None:
    sidecar = _sidecar(path)
    if not (path.is_file() and sidecar.is_file()):
        return None
    content = read_json(sidecar)
    recipe = draw_recipe(seed, index, sizes, int(content["Attempt"]))
    recorded = (content["RecipeSHA256"], content["GeneratorVersion"], content["FileSHA256"])
    same = recorded == (recipe.sha256, GENERATOR_VERSION, sha256_file(path))
    return recipe if same else None


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".nii.gz") + ".json")


def _sidecar_content(path: Path, recipe: Recipe, rendered: Rendered) -> dict[str, Any]:
    return {
        "Modality": "MR",
        "Description": "Generated from the MNI152 template; no measurement",
        "GeneratorVersion": GENERATOR_VERSION,
        "RecipeSHA256": recipe.sha256,
        "Attempt": recipe.attempt,
        "FileSHA256": sha256_file(path),
        "BrainMaskRatio": rendered.mask_ratio,
        "SignalToNoise": rendered.snr,
        "Contrast": rendered.contrast,
    }
