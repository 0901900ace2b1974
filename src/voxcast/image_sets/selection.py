"""The images that a user names: a folder, a BIDS dataset, some of its participants, or files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ImageError
from voxcast.images.bids import ImageEntry, find_images, is_anatomical, subject_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DATASET_FILE = "dataset_description.json"
MAX_LABELS_SHOWN = 8


@dataclass(frozen=True)
class ImageSelection:
    """A folder of images, and the participants chosen from it; empty for all."""

    folder: Path
    participants: tuple[str, ...] = ()


def select(paths: Sequence[Path], participants: Iterable[str] = ()) -> ImageSelection:
    """Return the selection that a user names by one folder, or by files of one folder or dataset.

    Parameters
    ----------
    participants : iterable of str
        Labels, with or without ``sub-``; empty for all.

    Raises
    ------
    ImageError
        If a path is missing, files are of several folders, or there is no such participant.
    """
    labels = tuple(dict.fromkeys(subject_label(label) for label in participants))
    resolved = [Path(os.path.normpath(path.expanduser().absolute())) for path in paths]
    for path in resolved:
        if not path.exists():
            raise ImageError("no such file or folder", path)
    folders = [path for path in resolved if path.is_dir()]
    if len(resolved) == 1 and folders:
        of_participants(find_images(folders[0]), labels, folders[0])
        return ImageSelection(folders[0], labels)
    then = "name one folder that holds them, or a dataset and --participant-label"
    if folders:
        raise ImageError("one folder, or files, and not both", folders[0], then)
    roots = {_dataset_of(path) for path in resolved}
    if len(roots) != 1:
        raise ImageError("files of several folders", min(roots), then)
    (root,) = roots
    entries = find_images(root)
    by_path = {entry.path: entry for entry in entries}
    for path in resolved:
        if path not in by_path:
            raise ImageError("not an image of its folder", path, "name a .nii or .nii.gz file")
    chosen = tuple(dict.fromkeys(by_path[path].subject for path in resolved))
    if labels:
        if strangers := [label for label in labels if label not in chosen]:
            raise ImageError(f"no image of participant {strangers[0]} is named", resolved[0])
        chosen = labels
    others = {entry.path for entry in of_participants(entries, chosen, root)} - {*resolved}
    if others and not labels:
        raise ImageError("another image of a subject that is named", min(others), then)
    return ImageSelection(root, chosen)


def of_participants(
    entries: Sequence[ImageEntry], participants: Sequence[str], folder: Path
) -> list[ImageEntry]:
    """Return the entries of ``participants``, with or without ``sub-``; of all if it is empty.

    Raises
    ------
    ImageError
        If one of them has no image; the message lists those that have.
    """
    if not participants:
        return list(entries)
    labels = {subject_label(label) for label in participants}
    subjects = sorted({entry.subject for entry in entries})
    if missing := sorted(labels - {*subjects}):
        listed = ", ".join(subjects[:MAX_LABELS_SHOWN])
        more = ", …" if len(subjects) > MAX_LABELS_SHOWN else ""
        raise ImageError(
            f"no image of participant {missing[0]}", folder, f"choose from {listed}{more}"
        )
    return [entry for entry in entries if entry.subject in labels]


def _dataset_of(path: Path) -> Path:
    """Return the BIDS dataset that holds a file, which may lack its description, or its folder."""
    described = (folder for folder in path.parents if (folder / DATASET_FILE).is_file())
    by_names = (folder for folder in path.parents if is_anatomical(path.relative_to(folder)))
    return next((folder for folders in (described, by_names) for folder in folders), path.parent)
