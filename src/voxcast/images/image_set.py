"""An image set, prepared for a campaign: its volumes are generated or listed, and catalogued."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from voxcast.errors import ConfigError
from voxcast.images.cohort import PARTICIPANTS, generated_ids, recipe_of
from voxcast.images.sources import read_tsv, refresh, write_tsv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.images.characteristics import Characteristic
    from voxcast.images.sources import ImageFile
    from voxcast_apps.heads.grids import Sizes

logger = logging.getLogger(__name__)

LIST_FILE = "images.tsv"
MAX_PROBLEMS_SHOWN = 10


class ImageChoice(Protocol):
    """Which images: a `generated` cohort, of varied heads or not, or a user's images in `path`."""

    @property
    def kind(self) -> str: ...
    @property
    def generated(self) -> bool: ...
    @property
    def path(self) -> str | None: ...
    @property
    def participants(self) -> Sequence[str]: ...
    @property
    def seed(self) -> int: ...
    @property
    def subjects(self) -> int: ...
    @property
    def sizes(self) -> Sizes: ...
    @property
    def label_prefix(self) -> str: ...


def list_volumes(choice: ImageChoice, folder: Path, hashes: Path) -> list[ImageFile]:
    """Generate a cohort in ``folder``, or list a user's images; write the list there.

    Parameters
    ----------
    hashes : Path
        An earlier list, if there is one; files with the same size and time are not hashed again.

    Raises
    ------
    ConfigError
        If a user's images are chosen and no path is set.
    """
    if choice.generated:
        from voxcast.images.cohort import write_cohort

        files = write_cohort(
            folder,
            seed=choice.seed,
            subjects=choice.subjects,
            sizes=choice.sizes,
            label_prefix=choice.label_prefix,
            varied=choice.kind == "varied_cohort",
        )
    elif choice.path is None:
        raise ConfigError("needs a value", "images.path", "set it, e.g. -S images.path=/my/bids")
    else:
        earlier = read_tsv(hashes) if hashes.is_file() else []
        files = refresh(earlier, choice.path, choice.participants)
    folder.mkdir(parents=True, exist_ok=True)
    write_tsv(folder / LIST_FILE, files)
    return files


def image_set_label(choice: ImageChoice) -> str:
    """Return a short name of an image set: the last folders of its path, or the cohort's seed."""
    if choice.generated or choice.path is None:
        return " ".join(filter(None, ("cohort", choice.label_prefix, str(choice.seed))))
    # A dataset is often called bids or rawdata, so its parent is named, too.
    return "/".join(Path(choice.path).expanduser().absolute().parts[1:][-2:])


def catalogue_volumes(
    folder: Path,
    catalogue: Path,
    coarse_points: int,
    network_points: int,
    max_voxels: int,
    image_set: str,
    lab: Mapping[str, Characteristic] | None = None,
) -> int:
    """Write the catalogue of the volumes that are listed in ``folder``.

    Parameters
    ----------
    max_voxels : int
        A volume with more cannot be used, and is not read.
    image_set : str
        Label of the image set, see `image_set_label`.
    lab : mapping, optional
        Characteristics of a laboratory, see `voxcast.images.lab_characteristics`.

    Returns
    -------
    int
        Number of volumes that cannot be used.
    """
    from voxcast.images.catalogue import build_catalogue

    files = read_tsv(folder / LIST_FILE)
    # The list decides which images belong to the set: identifiers of an earlier cohort match no
    # path in it.
    volume_ids = generated_ids(folder) if (folder / PARTICIPANTS).is_file() else None
    return build_catalogue(
        files, catalogue, coarse_points, network_points, volume_ids,
        image_set=image_set, max_voxels=max_voxels, lab=lab,
    )  # fmt: skip


def log_problems(catalogue: Path) -> None:
    """Log which volumes of a catalogue cannot be used, and why."""
    import pandas as pd

    from voxcast.images.catalogue import CATALOGUE

    volumes = pd.read_parquet(catalogue / CATALOGUE)
    problems = volumes["problem"].dropna()
    for problem in problems.iloc[:MAX_PROBLEMS_SHOWN]:
        logger.warning(problem)
    if len(problems):
        logger.warning(
            "%d of %d volumes cannot be used; see column problem in %s",
            len(problems), len(volumes), catalogue,
        )  # fmt: skip


def prepare_image_set(
    choice: ImageChoice,
    folder: Path,
    catalogue: Path,
    coarse_points: int,
    network_points: int,
    max_voxels: int,
    lab: Mapping[str, Characteristic] | None = None,
) -> list[ImageFile]:
    """Generate or list the volumes and catalogue them, unless all of it is up to date.

    Parameters
    ----------
    folder, catalogue : Path
        Folders of the image set and of its catalogue; created if missing.
    """
    files = list_volumes(choice, folder, folder / LIST_FILE)
    catalogued = catalogue / LIST_FILE
    if not (catalogued.is_file() and read_tsv(catalogued) == files):
        label = image_set_label(choice)
        catalogue_volumes(folder, catalogue, coarse_points, network_points, max_voxels, label, lab)
        log_problems(catalogue)
        write_tsv(catalogued, files)  # last: it marks the catalogue as complete
    return files


def recipes_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the recipes of generated volumes by volume id; none for a user's images."""
    return recipe_of(folder) if (folder / PARTICIPANTS).is_file() else {}
