"""The volumes in a folder: BIDS names read and written, plain folders of NIfTI files.

Only names are read here; files are hashed in `voxcast.images.sources`.
"""

from __future__ import annotations

import csv
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ImageError
from voxcast.files import write_json, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BIDS_VERSION = "1.10.0"
# Control characters, line separators, and bytes that are not UTF-8.
_UNLISTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SUBJECT = re.compile(r"(?:^|_)sub-([a-zA-Z0-9]+)")
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9]+)")


@dataclass(frozen=True)
class ImageEntry:
    """A volume by its name; `session` may be empty.

    With a `problem` it cannot be used, or is a folder that may not be read.
    """

    subject: str
    session: str
    suffix: str
    path: Path
    problem: str = ""


def subject_label(subject: str) -> str:
    """Return a subject's label without its prefix.

    Examples
    --------
    >>> subject_label("sub-01"), subject_label("01")
    ('01', '01')
    """
    return subject.removeprefix("sub-")


def stem(path: Path) -> str:
    """Return a file's name without ``.nii`` or ``.nii.gz``.

    Examples
    --------
    >>> stem(Path("a/sub-01_T1w.nii.gz"))
    'sub-01_T1w'
    """
    return path.name.removesuffix(".gz").removesuffix(".nii")


def subject_of(path: Path) -> str:
    """Return the BIDS label of the subject in a file's name, or the name.

    Examples
    --------
    >>> subject_of(Path("sub-01_ses-2_T1w.nii.gz")), subject_of(Path("head 7.nii"))
    ('01', 'head 7')
    """
    match = _SUBJECT.search(stem(path))
    return match[1] if match else stem(path)


def find_images(folder: str | Path) -> list[ImageEntry]:
    """List the volumes of a BIDS dataset, or of any folder of NIfTI files, sorted by path.

    In a BIDS dataset these are ``sub-*/[ses-*/]anat/*.nii[.gz]``. In another folder every NIfTI
    file counts, at any depth; its subject is the label after ``sub-`` in its name, or else
    its name. Links are followed. A folder that may not be read and a file with a name that
    no table can hold are listed with a problem.

    Raises
    ------
    ImageError
        If the folder is missing or unreadable, or holds no volume.
    """
    folder = Path(folder)
    then = "name a BIDS dataset or a folder of .nii or .nii.gz files"
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except FileNotFoundError:
        raise ImageError("no such folder", folder, then) from None
    except NotADirectoryError:
        raise ImageError("not a folder", folder, then) from None
    except PermissionError:
        raise ImageError("folder may not be read", folder, "change its permissions") from None
    paths, locked = _nifti_files(folder)
    anatomical = [path for path in paths if is_anatomical(path.relative_to(folder))]
    is_bids = "dataset_description.json" in names or bool(anatomical)
    if is_bids:
        paths = anatomical
        locked = {
            path: problem
            for path, problem in locked.items()
            if _may_hold_anatomical(path.relative_to(folder))
        }
    if not paths and not locked:
        missing = "no sub-*/[ses-*/]anat/*.nii[.gz]" if is_bids else "no .nii or .nii.gz file"
        raise ImageError(f"image set is empty: {missing}", folder, then)
    bad = [_locked_entry(path, problem, folder) for path, problem in locked.items()]
    if is_bids:
        return sorted([_bids_entry(path, folder) for path in paths] + bad, key=_path)
    entries = [_plain_entry(path) for path in paths]
    if len({stem(path) for path in paths}) < len(paths):  # a name in two folders is two subjects
        entries = [ImageEntry(_long_name(p, folder), "", "", p, _problem(p)) for p in paths]
    return sorted(entries + bad, key=_path)


def _path(entry: ImageEntry) -> Path:
    return entry.path


def _nifti_files(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """Return the files, and the folders that cannot be read with the reason."""
    paths: list[Path] = []
    locked: dict[Path, str] = {}

    def lock(error: OSError) -> None:
        name = os.strerror(error.errno or 0).lower()
        problem = "may not be read" if isinstance(error, PermissionError) else f"({name})"
        locked[Path(error.filename)] = f"folder {problem}; change its permissions"

    seen = set()
    for parent, folders, files in os.walk(folder, onerror=lock, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link to a parent folder would never end
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [
            Path(parent, name)
            for name in files
            if name.endswith((".nii", ".nii.gz")) and not name.startswith(".")
        ]
    return sorted(paths), locked


def _problem(path: Path) -> str:
    """Return why a name cannot stand in tables and messages; empty if it can."""
    if not _UNLISTABLE.search(str(path)):
        return ""
    return "a tab, line break or other character in its name that no table can hold; rename it"


def escaped(text: str) -> str:
    """Return a name with the characters escaped that no table can hold.

    Examples
    --------
    >>> print(escaped(f"head{chr(10)}1.nii"), escaped("tête.nii"))
    head\\n1.nii tête.nii
    """
    return _UNLISTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def _may_hold_anatomical(relative: Path) -> bool:
    """Tell whether anatomical volumes of a BIDS dataset may be in or below a folder."""
    parts = relative.parts
    below = parts[2:] if len(parts) > 1 and parts[1].startswith("ses-") else parts[1:]
    return parts[0].startswith("sub-") and below in ((), ("anat",))


def _locked_entry(path: Path, problem: str, folder: Path) -> ImageEntry:
    return ImageEntry(subject_label(path.relative_to(folder).parts[0]), "", "", path, problem)


def is_anatomical(relative: Path) -> bool:
    """Tell whether a path in a BIDS dataset is ``sub-*/[ses-*/]anat/FILE``."""
    parts = relative.parts
    with_session = len(parts) == 4 and parts[1].startswith("ses-")
    return (
        (len(parts) == 3 or with_session) and parts[0].startswith("sub-") and parts[-2] == "anat"
    )


def _bids_entry(path: Path, folder: Path) -> ImageEntry:
    relative = path.relative_to(folder)
    session = relative.parts[1].removeprefix("ses-") if len(relative.parts) == 4 else ""
    # Labels come from the folders, which decide what belongs together, not from the file name.
    subject = subject_label(relative.parts[0])
    return ImageEntry(subject, session, _suffix(path), path, _problem(path))


def _plain_entry(path: Path) -> ImageEntry:
    """Return the entry of a file in no dataset; several may be of one subject."""
    subject = subject_of(path)
    if subject == stem(path):
        return ImageEntry(subject, "", "", path, _problem(path))
    session = dict(_ENTITY.findall(stem(path))).get("ses", "")
    return ImageEntry(subject, session, _suffix(path), path, _problem(path))


def _suffix(path: Path) -> str:
    last = stem(path).rsplit("_", 1)[-1]
    return "" if _ENTITY.fullmatch(last) else last


def _long_name(path: Path, folder: Path) -> str:
    return "_".join([*path.relative_to(folder).parent.parts, stem(path)])


def write_dataset_files(
    folder: str | Path,
    name: str,
    generated_by: Mapping[str, str],
    participants: Sequence[Mapping[str, object]],
    descriptions: Mapping[str, str],
) -> None:
    """Write ``dataset_description.json``, ``participants.tsv`` and ``participants.json``.

    Parameters
    ----------
    participants : sequence of mappings
        One row each, with ``participant_id`` first; the first row's keys are the columns.
    descriptions : mapping
        What each column means.
    """
    folder = Path(folder)
    write_json(
        folder / "dataset_description.json",
        {
            "Name": name,
            "BIDSVersion": BIDS_VERSION,
            "DatasetType": "raw",
            "GeneratedBy": [dict(generated_by)],
        },
    )
    columns = list(participants[0])
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(participants)
    write_text(folder / "participants.tsv", text.getvalue())
    write_json(
        folder / "participants.json",
        {name: {"Description": descriptions[name]} for name in columns if name in descriptions},
    )
