"""The list of an image set's files: path, size, time and hash of each.

A user's files are listed and never copied; changes are noticed by this list.
"""

from __future__ import annotations

import csv
import io
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, ImageError, TableError, is_disk_full
from voxcast.files import sha256_file, write_text
from voxcast.images.bids import ImageEntry, escaped, find_images, is_anatomical, subject_label
from voxcast.log import progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCES = Path("data/sources.tsv")  # of a project


@dataclass(frozen=True)
class ImageFile:
    """One row of ``images.tsv`` or ``sources.tsv``.

    `mtime_ns` is 0 for generated volumes, whose bytes depend on their recipe alone. A file that
    cannot be read has an empty `sha256`, and the catalogue reports why: `problem`, if it is of the
    name or of a folder. Characters that a table cannot hold are then escaped in the other columns.
    """

    subject: str
    session: str
    suffix: str
    path: str
    size_bytes: int
    mtime_ns: int
    sha256: str
    problem: str = ""


COLUMNS = tuple(field.name for field in fields(ImageFile))


def scan(path: str | Path) -> list[ImageFile]:
    """List and hash all volumes below a folder.

    Raises
    ------
    ImageError
        If the folder is missing, unreadable or holds no volume.
    """
    return refresh([], path)


def refresh(
    earlier: list[ImageFile], path: str | Path, participants: Sequence[str] = ()
) -> list[ImageFile]:
    """List the volumes below a folder; hash only those whose size or mtime has changed.

    Parameters
    ----------
    participants : sequence of str
        Subjects to list, with or without ``sub-``; empty for all.
    """
    by_path = {file.path: file for file in earlier}
    folder = Path(path).expanduser().absolute()
    entries = of_participants(find_images(folder), participants, folder)
    return [
        _listed(entry, by_path.get(str(entry.path)))
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
    files = [] if path is None else refresh(earlier, project / path, participants)
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


def _listed(entry: ImageEntry, earlier: ImageFile | None) -> ImageFile:
    size_bytes, mtime_ns, sha256 = 0, 0, ""
    if entry.problem:  # a hash would hide that it was mended
        subject, session, suffix = map(escaped, (entry.subject, entry.session, entry.suffix))
        path = escaped(str(entry.path))
        return ImageFile(subject, session, suffix, path, 0, 0, "", entry.problem)
    try:
        status = entry.path.stat()
        size_bytes, mtime_ns = status.st_size, status.st_mtime_ns
        stamp = (size_bytes, mtime_ns)
        if earlier and earlier.sha256 and (earlier.size_bytes, earlier.mtime_ns) == stamp:
            sha256 = earlier.sha256
        else:
            sha256 = sha256_file(entry.path)
    except OSError:
        pass  # a broken link or a file without permission: the catalogue names the reason
    return ImageFile(
        entry.subject, entry.session, entry.suffix, str(entry.path), size_bytes, mtime_ns, sha256
    )


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
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(file) for file in files)
    path = Path(path)
    if not path.is_file() or path.read_text(encoding="utf-8") != text.getvalue():
        write_text(path, text.getvalue())


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
            return [_file(row) for row in reader]
    except FileNotFoundError:
        raise TableError("no such file", path, then) from None
    except PermissionError:
        raise TableError("may not be read", path, "change its permissions") from None
    except (ValueError, TypeError) as error:
        raise TableError(f"a row is incomplete ({error})", path, then) from None


def _file(row: dict[str, str]) -> ImageFile:
    numbers = {name: int(row.pop(name)) for name in ("size_bytes", "mtime_ns")}
    return ImageFile(**row, **numbers)  # type: ignore[arg-type]


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
