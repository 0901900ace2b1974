"""Container images on this machine: whether they can be run, and their digests."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.containers import PROGRAMS, WRITES_THROUGH, check_engine, is_path
from voxcast.errors import RunError
from voxcast.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Sequence

_FROM_FILES = ("apptainer", "singularity", "charliecloud")


def available(engine: str, program: Sequence[str] = ()) -> bool:
    """Tell whether the engine's program is installed."""
    check_engine(engine)
    return engine == "none" or shutil.which([*program, PROGRAMS[engine]][0]) is not None


def check(
    engine: str, image: str, targets: Sequence[str] = (), program: Sequence[str] = ()
) -> None:
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
    if engine == "none":
        return
    if not available(engine, program):
        package = "charliecloud" if engine == "charliecloud" else engine
        then = f"install {package}, or choose another container_engine in conf/device"
        raise RunError(f"the program {PROGRAMS[engine]} is not installed", engine, then)
    if (engine in _FROM_FILES or is_path(image)) and not Path(image).exists():
        raise RunError("no such image", image, _pull(engine, image))
    if engine in WRITES_THROUGH and Path(image).is_dir():
        for target in targets:
            if not (Path(image) / target.lstrip("/")).exists():
                where = Path(image) / target.lstrip("/")
                raise RunError("the image lacks this bind target", where, "create the folder")
    if engine not in _FROM_FILES and not is_path(image):
        digest(engine, image, program)


def digest(engine: str, image: str, program: Sequence[str] = ()) -> str:
    """Return the digest of the image, as ``sha256:…``.

    A file is hashed; a name is looked up with podman or docker. The digest of a folder is that of
    its listing (path, mode, size and modification time of each file), so a copy of the folder
    counts as another image.

    Raises
    ------
    RunError
        If there is no such image.
    """
    path = Path(image)
    if engine in _FROM_FILES or is_path(image):
        if path.is_dir():
            return f"sha256:{_listing(path)}"
        if not path.is_file():
            raise RunError("no such image", image, _pull(engine, image))
        stat = path.stat()
        return f"sha256:{_hashed(str(path.resolve()), stat.st_size, stat.st_mtime_ns)}"
    command = [*(program or [PROGRAMS[engine]]), "image", "inspect", image]
    try:
        output = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        facts = json.loads(output)[0]
        digests = sorted(text.partition("@")[2] for text in facts.get("RepoDigests") or [])
        return digests[0] if digests else f"sha256:{facts['Id'].removeprefix('sha256:')}"
    except FileNotFoundError:
        raise RunError("is not installed", command[0], f"install {engine}") from None
    except (subprocess.SubprocessError, ValueError, KeyError, IndexError):
        raise RunError("no such image", image, _pull(engine, image)) from None


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


def _pull(engine: str, image: str) -> str:
    if engine in ("podman", "docker"):
        return f"{engine} pull {image}"
    if engine == "charliecloud":
        return "use ch-image pull and ch-convert, then set the folder or the .sqfs file"
    return f"{engine} pull image.sif docker://{image}, then set that file"
