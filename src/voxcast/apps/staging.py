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

from voxcast.apps.containers import WRITES_THROUGH, Bind
from voxcast.errors import ImageError, RunError
from voxcast.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.records import App, Configuration

INPUTS, BIDS, OUT, SCRATCH = "{inputs}", "{bids}", "{out}", "{scratch}"  # valid sources of a bind
DATASET_FILE = "dataset_description.json"


def run_binds(app: App, out: Path) -> list[Bind]:
    """Return the binds of a run that writes into ``out``; all but results and scratch read-only.

    Folders are not created here, see `staged`.
    """
    folders = _folders(out.absolute())  # an engine reads a relative path as the name of a volume
    return [
        Bind(str(folders.get(host, host)), inside, read_only=host not in (OUT, SCRATCH))
        for inside, host in app.binds.items()
    ]


def _folders(out: Path) -> dict[str, Path]:
    inputs, scratch = out.parent / "inputs", out.parent / "scratch"
    return {INPUTS: inputs, BIDS: bids_folder(out), OUT: out, SCRATCH: scratch}


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
    stage = {INPUTS: staged_inputs, BIDS: staged_dataset}
    try:
        for name, folder in folders.items():
            folder.mkdir(parents=True)
            if name in stage and image is not None:
                stage[name](image, folder, link=link)
        yield
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def staged_inputs(image: Path, folder: Path, *, link: bool = True) -> Path:
    """Put ``image``, and nothing else, into ``folder`` under its own name.

    It is a hard link if possible, else a copy: a symbolic link would not resolve in the container.

    Raises
    ------
    ImageError
        If the image is not a file.
    RunError
        If the folder is not empty.
    """
    if not image.is_file():
        raise ImageError("no such file", image)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise RunError("is not empty, and the application would process its files", folder)
    target = folder / image.name
    if link:
        with contextlib.suppress(OSError):  # another file system, or another owner
            os.link(image.resolve(), target)
            return target
    shutil.copyfile(image, target)
    return target


def staged_dataset(image: Path, folder: Path, *, link: bool = True) -> Path:
    """Lay out a BIDS dataset with ``image`` as the T1w of its one subject; errors as above."""
    suffix = ".nii.gz" if image.name.endswith(".nii.gz") else ".nii"
    write_json(folder / DATASET_FILE, {"Name": "one image", "BIDSVersion": "1.10.0"})
    anat = folder / "sub-01" / "anat"
    staged = staged_inputs(image, anat, link=link)
    return staged.rename(anat / f"sub-01_T1w{suffix}")
