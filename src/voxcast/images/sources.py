"""A user's images: found by name, listed with size, time and hash, chosen by participant.

Files are listed and never copied; changes are noticed by the list.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from voxcast.errors import ConfigError, ImageError, TableError, is_disk_full
from voxcast.files import sha256_file, write_text
from voxcast.log import progress
from voxcast_apps.heads.grids import FixedGrid, Sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Control characters, line separators, and bytes that are not UTF-8.
_UNLISTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SUBJECT = re.compile(r"(?:^|_)sub-([a-zA-Z0-9]+)")
_ANATOMICAL = re.compile(r"sub-[^/]*/(?:ses-[^/]*/)?anat/[^/]+")
_MAY_HOLD_ANATOMICAL = re.compile(r"sub-[^/]*(?:/ses-[^/]*)?(?:/anat)?")
DATASET_FILE = "dataset_description.json"
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9]+)")


@dataclass(frozen=True)
class ImageChoice:
    """Which images: a generated cohort, of varied heads or not, or the user's in `path`."""

    kind: Literal["cohort", "varied_cohort", "bids"]
    path: str | None
    participants: tuple[str, ...]
    seed: int
    subjects: int
    label_prefix: str
    voxels: tuple[int, ...]
    axis_voxels: tuple[int, ...]
    fixed_grids: tuple[FixedGrid, ...]

    @property
    def generated(self) -> bool:
        """Whether the images are generated and not the user's."""
        return self.kind != "bids"

    @property
    def sizes(self) -> Sizes:
        """The settings that determine the grids of a generated cohort."""
        return Sizes(self.voxels, self.axis_voxels, self.fixed_grids)


@dataclass(frozen=True)
class ImageFile:
    """A volume as it is listed: one row of ``images.tsv`` or ``sources.tsv``.

    `session` may be empty. `mtime_ns` is 0 for generated volumes, whose bytes depend on their
    recipe alone. A file that cannot be read has an empty `sha256`, and the catalogue reports why:
    `problem`, if it is of the name or of a folder. Characters that a table cannot hold are then
    escaped in the other columns.
    """

    subject: str
    session: str
    suffix: str
    path: str
    size_bytes: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    problem: str = ""


SOURCES = Path("data/sources.tsv")  # of a project
COLUMNS = tuple(field.name for field in fields(ImageFile))
NUMBERS = ("size_bytes", "mtime_ns")


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


def find_images(folder: str | Path) -> list[ImageFile]:
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
    is_bids = DATASET_FILE in names or bool(anatomical)
    if is_bids:
        paths = anatomical
        locked = {
            path: problem
            for path, problem in locked.items()
            if _MAY_HOLD_ANATOMICAL.fullmatch(path.relative_to(folder).as_posix())
        }
    if not paths and not locked:
        missing = "no sub-*/[ses-*/]anat/*.nii[.gz]" if is_bids else "no .nii or .nii.gz file"
        raise ImageError(f"image set is empty: {missing}", folder, then)
    files = [
        _named(subject_label(path.relative_to(folder).parts[0]), "", "", path, problem)
        for path, problem in locked.items()
    ]
    has_unique_names = len({stem(path) for path in paths}) == len(paths)
    for path in paths:
        subject, session, suffix = subject_of(path), "", ""
        parts = path.relative_to(folder).parts
        if is_bids:
            # Labels come from the folders, which decide what belongs together, not from the name.
            session = parts[1].removeprefix("ses-") if len(parts) == 4 else ""
            subject, suffix = subject_label(parts[0]), _suffix(path)
        elif not has_unique_names:  # a name in two folders is two subjects
            subject = "_".join([*parts[:-1], stem(path)])
        elif subject != stem(path):  # several may be of one subject
            session = dict(_ENTITY.findall(stem(path))).get("ses", "")
            suffix = _suffix(path)
        files.append(_named(subject, session, suffix, path))
    return sorted(files, key=attrgetter("path"))


def _named(subject: str, session: str, suffix: str, path: Path, problem: str = "") -> ImageFile:
    """Return a file that was not looked at yet; a name that no table can hold is a problem."""
    texts = (subject, session, suffix, str(path))
    if not problem and _UNLISTABLE.search(str(path)):
        problem = (
            "a tab, line break or other character in its name that no table can hold; rename it"
        )
    subject, session, suffix, name = map(escaped, texts) if problem else texts
    return ImageFile(subject, session, suffix, name, problem=problem)


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


def escaped(text: str) -> str:
    """Return a name with the characters escaped that no table can hold.

    Examples
    --------
    >>> print(escaped(f"head{chr(10)}1.nii"), escaped("tête.nii"))
    head\\n1.nii tête.nii
    """
    return _UNLISTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def is_anatomical(relative: Path) -> bool:
    """Tell whether a path in a BIDS dataset is ``sub-*/[ses-*/]anat/FILE``."""
    return _ANATOMICAL.fullmatch(relative.as_posix()) is not None


def _suffix(path: Path) -> str:
    last = stem(path).rsplit("_", 1)[-1]
    return "" if _ENTITY.fullmatch(last) else last


def refresh(
    path: str | Path, earlier: Sequence[ImageFile] = (), participants: Sequence[str] = ()
) -> list[ImageFile]:
    """List the volumes below a folder; hash only those whose size or mtime has changed.

    Parameters
    ----------
    participants : sequence of str
        Subjects to list, with or without ``sub-``; empty for all.

    Raises
    ------
    ImageError
        If the folder is missing, unreadable or holds no volume.
    """
    by_path = {file.path: file for file in earlier}
    folder = Path(path).expanduser().absolute()
    entries = of_participants(find_images(folder), participants, folder)
    return [
        _listed(entry, by_path.get(entry.path))
        for entry in progress(entries, desc="listing images", unit="file")
    ]


def refresh_sources(
    project: Path, path: str | None, participants: Sequence[str] = ()
) -> str | None:
    """Update the tracked list of the user's images in a project.

    Parameters
    ----------
    path : str or None
        Folder of the images; None if they are generated.

    Returns
    -------
    str or None
        What changed, as a sentence; None if nothing did.

    Raises
    ------
    ConfigError
        If the list cannot be written.
    ImageError
        As `refresh`.
    """
    table = project / SOURCES
    earlier = read_tsv(table) if table.is_file() else []
    files = [] if path is None else refresh(project / path, earlier, participants)
    if files == earlier:
        return None
    try:
        write_tsv(table, files)
    except OSError as error:
        if is_disk_full(error):
            raise
        then = "ask its owner to refresh it; images that are listed can be used as they are"
        reason = (error.strerror or "").lower()
        raise ConfigError(f"cannot be written ({reason})", table, then) from None
    before, now = ({(f.path, f.sha256) for f in listed} for listed in (earlier, files))
    gone = len(before - now)
    # A volume is never used in place of another: runs on the earlier one count.
    changed = f", {gone} changed or no longer here; runs of these stay on record" if gone else ""
    return f"{SOURCES}: {len(files)} images; {len(now - before)} new or changed{changed}"


def _listed(file: ImageFile, earlier: ImageFile | None) -> ImageFile:
    """Return a file with its size, time and hash."""
    if file.problem:  # a hash would hide that it was mended
        return file
    with contextlib.suppress(OSError):  # a broken link or no permission: the catalogue says why
        status = Path(file.path).stat()
        file = replace(file, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)
        if earlier and earlier.sha256 and replace(earlier, sha256="") == file:
            return earlier
        return replace(file, sha256=sha256_file(file.path))
    return file


def changed(file: ImageFile) -> bool:
    """Tell whether a listed file has changed; it is read only if its size or mtime has."""
    path = Path(file.path)
    try:
        status = path.stat()
        if status.st_size != file.size_bytes:
            return True
        touched = bool(file.mtime_ns) and status.st_mtime_ns != file.mtime_ns
        return touched and sha256_file(path) != file.sha256
    except OSError:
        return False  # missing or unreadable, which is reported when it is read


def write_tsv(path: str | Path, files: list[ImageFile]) -> None:
    """Write the list atomically; an unchanged list does not touch the file."""
    path, text = Path(path), tsv_text(COLUMNS, map(asdict, files))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)


def tsv_text(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as a table with tabs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_tsv(path: str | Path) -> list[ImageFile]:
    """Read a list.

    Raises
    ------
    TableError
        If it is missing, has other columns, or a row is incomplete.
    """
    then = "write it again with `dvc repro -f images`"
    try:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t")
            if tuple(reader.fieldnames or ()) not in (COLUMNS, COLUMNS[:-1]):  # was added last
                raise TableError(f"needs the columns {' '.join(COLUMNS)}", path, then)
            return [
                ImageFile(**{n: int(v) if n in NUMBERS else v for n, v in row.items()})  # type: ignore[arg-type]
                for row in reader
            ]
    except FileNotFoundError:
        raise TableError("no such file", path, then) from None
    except PermissionError:
        raise TableError("may not be read", path, "change its permissions") from None
    except (ValueError, TypeError) as error:
        raise TableError(f"a row is incomplete ({error})", path, then) from None


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
        If a path is missing, files are of several folders, or a participant is missing.
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
    by_path = {Path(entry.path): entry for entry in entries}
    for path in resolved:
        if path not in by_path:
            raise ImageError("not an image of its folder", path, "name a .nii or .nii.gz file")
    chosen = tuple(dict.fromkeys(by_path[path].subject for path in resolved))
    if labels:
        if strangers := [label for label in labels if label not in chosen]:
            raise ImageError(f"no image of participant {strangers[0]} is named", resolved[0])
        chosen = labels
    of_chosen = of_participants(entries, chosen, root)
    others = {Path(entry.path) for entry in of_chosen} - {*resolved}
    if others and not labels:
        raise ImageError("another image of a subject that is named", min(others), then)
    return ImageSelection(root, chosen)


def of_participants(
    entries: Sequence[ImageFile], participants: Sequence[str], folder: Path
) -> list[ImageFile]:
    """Return the entries of ``participants``, with or without ``sub-``; of all if it is empty.

    Raises
    ------
    ImageError
        If one of them has no image; the message lists the participants with images.
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
