"""The folders of one run in a container: inputs with one image, results, and scratch.

A run has ``inputs`` and ``scratch`` beside its folder of results. Containers such as SLANT's
process every file in their input folder, so exactly one image is put there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.containers import WRITES_THROUGH
from voxcast.errors import ImageError
from voxcast.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.records import App, Configuration

INPUTS, BIDS, OUT, SCRATCH = "{inputs}", "{bids}", "{out}", "{scratch}"  # valid sources of a bind
DATASET_FILE = "dataset_description.json"


def run_binds(app: App, out: Path) -> list[tuple[str, str, bool]]:
    """Return the binds of a run that writes into ``out``: host, inside, whether it is read-only.

    Folders are not created here, see `staged`.
    """
    folders = _folders(out.absolute())  # an engine reads a relative path as the name of a volume
    return [
        (str(folders.get(host, host)), inside, host not in (OUT, SCRATCH))
        for inside, host in app.binds.items()
    ]


def _folders(out: Path) -> dict[str, Path]:
    return {
        INPUTS: out.parent / "inputs",
        BIDS: bids_folder(out),
        OUT: out,
        SCRATCH: out.parent / "scratch",
    }


def bids_folder(out: Path) -> Path:
    """Return the BIDS dataset of a run that writes into ``out``."""
    return out.parent / "bids"


def reads_bids(app: App) -> bool:
    """Tell whether an application takes a BIDS dataset with one image, ``{bids}``."""
    return BIDS in app.binds.values() or any(BIDS in part for part in app.argv)


def path_inside(app: App, folder: str) -> str:
    """Return the path of `INPUTS` or `OUT` in the container of ``app``."""
    return next((inside for inside, host in app.binds.items() if host == folder), "")


@contextlib.contextmanager
def staged(
    app: App, image: Path | None, out: Path, configuration: Configuration
) -> Iterator[None]:
    """Lay out the folders of a run for the block; inputs and scratch are removed after it.

    An application that is not in a container gets a BIDS dataset alone, if it reads one.

    Raises
    ------
    ImageError
        If the image is not a file.
    """
    needed = {*app.binds.values(), *([BIDS] if reads_bids(app) else [])} - {OUT}
    folders = {name: path for name, path in _folders(out).items() if name in needed}
    # Where a bind cannot be read-only, the program gets a copy of the user's file.
    link = configuration.container_engine not in WRITES_THROUGH
    try:
        for folder in folders.values():
            folder.mkdir(parents=True)
        if image is not None and INPUTS in folders:
            _put(image, folders[INPUTS] / image.name, link=link)
        if image is not None and BIDS in folders:
            suffix = ".nii.gz" if image.name.endswith(".nii.gz") else ".nii"
            anat = folders[BIDS] / "sub-01" / "anat"
            anat.mkdir(parents=True)
            _put(image, anat / f"sub-01_T1w{suffix}", link=link)
            description = {"Name": "one image", "BIDSVersion": "1.10.0"}
            write_json(folders[BIDS] / DATASET_FILE, description)
        yield
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _put(image: Path, target: Path, *, link: bool) -> None:
    """Make a hard link if possible, else a copy: no symbolic link resolves in a container."""
    if not image.is_file():
        raise ImageError("no such file", image)
    if link:
        with contextlib.suppress(OSError):  # another file system, or another owner
            os.link(image.resolve(), target)
            return
    shutil.copyfile(image, target)
