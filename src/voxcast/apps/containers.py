"""Containers: the command lines by which engines run a program, and the folders of a run.

Apptainer, Singularity and Charliecloud run the program as a descendant of ours: it stays in the
run's control group and on the run's CPUs. Docker is not supported: its containers are children of
its daemon, outside of the run and its limits. An image is a file or a folder.

A run has ``inputs`` and ``scratch`` beside its folder of results. Containers such as SLANT's
process every file in their input folder, so exactly one image is put there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, ImageError, RunError
from voxcast.files import sha256_file, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.records import App, Configuration


# Marks all processes of a run, to find also processes that left its process tree.
RUN_VARIABLE = "VOXCAST_RUN"


@dataclass(frozen=True)
class Engine:
    """How an engine is called.

    Attributes
    ----------
    start : tuple of str
        Verb and options of every run.
    bind, bind_read_only, variable : str
        Options with places for a path and its path in the container, or for a name and a value.
    refused : str
        Characters of a path that separate parts of a bind, and that the engine cannot quote.
    pull : str
        The remedy for a missing image.
    """

    program: str
    start: tuple[str, ...]
    bind: str
    bind_read_only: str
    variable: str
    refused: str
    pull: str


_APPTAINER = Engine(
    "apptainer",
    ("exec", "--cleanenv"),
    "--bind={}:{}:rw",
    "--bind={}:{}:ro",
    "--env={}={}",
    ':,\\"\n',
    "apptainer pull image.sif docker://{}, then set that file",
)
ENGINES = {
    "apptainer": _APPTAINER,
    "singularity": replace(
        _APPTAINER, program="singularity", pull=_APPTAINER.pull.replace("apptainer", "singularity")
    ),
    "charliecloud": Engine(
        "ch-run",
        # Of our environment only the marks of the run and of its GPUs are passed on.
        ("--env-no-expand", f"--unset-env=!({RUN_VARIABLE}|CUDA_VISIBLE_DEVICES)"),
        "--bind={}:{}",
        "--bind={}:{}",
        "--set-env={}={}",
        ":\n",
        "use ch-image pull and ch-convert, then set the folder or the .sqfs file",
    ),
}
WRITES_THROUGH = frozenset({"charliecloud"})  # engines that cannot bind read-only
_CHARLIECLOUD_VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - the container's own
}


def wrap(
    engine: str,
    image: str,
    argv: Sequence[str],
    *,
    binds: Sequence[tuple[str | Path, str, bool]] = (),
    env: Mapping[str, str] | None = None,
    gpus: int = 0,
) -> list[str]:
    """Return the argument list that runs ``argv`` inside ``image``.

    It replaces the image's entry point, and ``env`` is added to the environment of the image.

    Parameters
    ----------
    engine : str
        One of `ENGINES`.
    binds : sequence of (host, inside, read only)
        Charliecloud can neither bind read-only nor create the path in the container.
    gpus : int
        Zero hides them. Charliecloud sees them when ``ch-fromhost`` has prepared the image.

    Raises
    ------
    ConfigError
        If a bind holds a character that the engine cannot take.

    Examples
    --------
    >>> wrap("charliecloud", "/images/tool", ["tool"], env={"OMP_NUM_THREADS": "2"})[-4:]
    ['--set-env=OMP_NUM_THREADS=2', '/images/tool', '--', 'tool']
    """
    called, variables = ENGINES[engine], dict(env or {})
    options, program = ["--nv"] if gpus else [], [image, *argv]
    if engine == "charliecloud":
        variables = {**_CHARLIECLOUD_VARIABLES, **variables}
        options, program = [], [image, "--", *argv]
    for host, inside, read_only in binds:
        if bad := [char for char in f"{host}{inside}" if char in called.refused]:
            then = "move the project or the image set to a path without it"
            problem = f"{engine} cannot bind a path with {bad[0]!r}"
            raise ConfigError(problem, f"{host} at {inside}", then)
        bind = called.bind_read_only if read_only else called.bind
        options.append(bind.format(host, inside))
    options += [called.variable.format(*variable) for variable in variables.items()]
    return [called.program, *called.start, *options, *program]


def check_image(engine: str, image: str, targets: Sequence[str] = ()) -> None:
    """Check that ``image`` can be run, before a campaign starts.

    Parameters
    ----------
    targets : sequence of str
        Paths in the container to which something will be bound.

    Raises
    ------
    RunError
        If the engine, the image, or a path that Charliecloud needs is missing.
    """
    program = ENGINES[engine].program
    if shutil.which(program) is None:
        then = f"install {engine}, or choose another container_engine in conf/device"
        raise RunError(f"the program {program} is not installed", engine, then)
    path = _existing(engine, image)
    if engine in WRITES_THROUGH and path.is_dir():
        for target in (path / target.lstrip("/") for target in targets):
            if not target.exists():
                raise RunError("the image lacks this bind target", target, "create the folder")


def digest(engine: str, image: str) -> str:
    """Return the digest of the image, as ``sha256:…``.

    A file is hashed. Of a folder, its listing (path, mode, size and modification time of each
    file) is hashed, so a copy of the folder counts as another image.

    Raises
    ------
    RunError
        If the image is missing.
    """
    path = _existing(engine, image)
    if path.is_dir():
        return f"sha256:{_listing(path)}"
    stat = path.stat()
    return f"sha256:{_hashed(str(path.resolve()), stat.st_size, stat.st_mtime_ns)}"


def _existing(engine: str, image: str) -> Path:
    if not Path(image).exists():
        raise RunError("no such image", image, ENGINES[engine].pull.format(image))
    return Path(image)


@functools.lru_cache(maxsize=16)
def _hashed(path: str, size: int, mtime_ns: int) -> str:
    return sha256_file(path)  # images are gigabytes: hashed again only if changed


def _listing(folder: Path) -> str:
    listing = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files + [name for name in folders if Path(root, name).is_symlink()]):
            path = Path(root, name)
            stat = path.lstat()
            facts = [stat.st_mode, stat.st_size, stat.st_mtime_ns]
            listing.update(os.fsencode(f"{path.relative_to(folder)}\0{facts}\n"))
    return listing.hexdigest()


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
