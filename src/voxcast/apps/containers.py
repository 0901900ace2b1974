"""Containers: the command lines by which engines run a program, and the images on this machine.

Apptainer, Singularity and Charliecloud run the program as a descendant of ours: it stays in the
run's control group and on the run's CPUs. So does Podman as it is started here, without a separate
control group (this needs crun). Docker is not supported: its containers are children of its
daemon, outside of the run and its limits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from voxcast.errors import ConfigError, RunError
from voxcast.files import sha256_file

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
    from_files : bool
        Whether an image is a file or a folder, not a name.
    """

    program: str
    start: tuple[str, ...]
    bind: str
    bind_read_only: str
    variable: str
    refused: str
    pull: str
    from_files: bool = True


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
    "podman": Engine(
        "podman",
        # We record the output: the engine's log would be a second copy on the same disk.
        ("run", "--rm", "--pull=never", "--log-driver=none", "--cgroups=disabled"),
        "--mount=type=bind,source={},target={}",
        "--mount=type=bind,source={},target={},readonly",
        "--env={}={}",
        ',"\n',
        "podman pull {}",
        from_files=False,
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


class Bind(NamedTuple):
    """A folder or file of the host, bound to a path in the container."""

    host: str
    inside: str
    read_only: bool


def wrap(
    engine: str,
    image: str,
    argv: Sequence[str],
    *,
    binds: Sequence[tuple[str | Path, str, bool]] = (),
    env: Mapping[str, str] | None = None,
    gpus: int = 0,
    visible: str | None = None,
    network: bool = False,
    user: tuple[int, int] | None = None,
) -> list[str]:
    """Return the argument list that runs ``argv`` inside ``image``.

    With every engine ``argv`` replaces the image's entry point, and ``env`` is added to the
    environment of the image. Nothing is pulled.

    Parameters
    ----------
    engine : str
        One of `ENGINES`, or ``none``, which returns ``argv`` unchanged.
    image : str
        A file or folder; for podman a name, or the path of a folder.
    binds : sequence of (host, inside, read only)
        Charliecloud can neither bind read-only nor create the path in the container.
    env : mapping, optional
        Variables in the container.
    gpus : int
        Zero hides them. Charliecloud sees them when ``ch-fromhost`` has prepared the image.
    visible : str, optional
        ``CUDA_VISIBLE_DEVICES``, the GPUs that podman passes on by name or number; by default the
        first ones.
    network : bool
        Whether there is a network; Charliecloud always uses the host's.
    user : (uid, gid), optional
        Owner of the files written, for podman; otherwise the user who starts it.

    Raises
    ------
    ConfigError
        If the engine is unknown, or a bind holds a character that the engine cannot take.

    Examples
    --------
    >>> wrap("charliecloud", "/images/tool", ["tool"], env={"OMP_NUM_THREADS": "2"})[-4:]
    ['--set-env=OMP_NUM_THREADS=2', '/images/tool', '--', 'tool']
    """
    check_engine(engine)
    if engine == "none":
        return list(argv)
    called, variables = ENGINES[engine], dict(env or {})
    if engine == "podman":
        options = _podman_options(gpus, visible, network, user)
        options.append(f"--entrypoint={argv[0]}")
        program = [*(["--rootfs"] if is_path(image) else []), image, *argv[1:]]
    elif engine == "charliecloud":
        variables = {**_CHARLIECLOUD_VARIABLES, **variables}
        options, program = [], [image, "--", *argv]
    else:
        options = ["--nv"] if gpus else []
        options += [] if network else ["--net", "--network=none"]
        program = [image, *argv]
    options += [_bind(engine, *bind) for bind in binds]
    options += [called.variable.format(*variable) for variable in variables.items()]
    return [called.program, *called.start, *options, *program]


def _podman_options(
    gpus: int, visible: str | None, network: bool, user: tuple[int, int] | None
) -> list[str]:
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    devices = (names or [str(n) for n in range(gpus)])[:gpus]
    options = [f"--env={RUN_VARIABLE}", *(f"--device=nvidia.com/gpu={name}" for name in devices)]
    if user is not None and user[0] != 0:
        # A user unknown to the image has no home there, and caches need one.
        options += ["--userns=keep-id", f"--user={user[0]}:{user[1]}", "--env=HOME=/tmp"]
    return options if network else [*options, "--network=none"]


def _bind(engine: str, host: str | Path, inside: str, read_only: bool) -> str:
    called = ENGINES[engine]
    for text in (str(host), inside):
        if bad := [char for char in text if char in called.refused]:
            then = "move the project or the image set to a path without it"
            raise ConfigError(f"{engine} cannot bind a path with {bad[0]!r}", text, then)
    return (called.bind_read_only if read_only else called.bind).format(host, inside)


def is_path(image: str) -> bool:
    """Tell whether ``image`` is a path and not a name."""
    return image.startswith(("/", "./", "../"))


def check_engine(engine: str) -> None:
    """Raise a `ConfigError` unless ``engine`` is one of `ENGINES`, or ``none``."""
    if engine not in ("none", *ENGINES):
        names = ", ".join(("none", *ENGINES))
        raise ConfigError("unknown container engine", engine, f"choose from {names}")


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
    check_engine(engine)
    if engine == "none":
        return
    program = ENGINES[engine].program
    if shutil.which(program) is None:
        then = f"install {engine}, or choose another container_engine in conf/device"
        raise RunError(f"the program {program} is not installed", engine, then)
    path = _path_of(engine, image)
    if path is None:
        digest(engine, image)
    elif engine in WRITES_THROUGH and path.is_dir():
        for target in (path / target.lstrip("/") for target in targets):
            if not target.exists():
                raise RunError("the image lacks this bind target", target, "create the folder")


def digest(engine: str, image: str) -> str:
    """Return the digest of the image, as ``sha256:…``.

    A file is hashed; a name is looked up with podman. Of a folder, its listing (path, mode, size
    and modification time of each file) is hashed, so a copy of the folder counts as another image.

    Raises
    ------
    RunError
        If the image is missing.
    """
    path = _path_of(engine, image)
    if path is not None:
        if path.is_dir():
            return f"sha256:{_listing(path)}"
        stat = path.stat()
        return f"sha256:{_hashed(str(path.resolve()), stat.st_size, stat.st_mtime_ns)}"
    command = [ENGINES[engine].program, "image", "inspect", image]
    try:
        output = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        facts = json.loads(output)[0]
        digests = sorted(text.partition("@")[2] for text in facts.get("RepoDigests") or [])
        return digests[0] if digests else f"sha256:{facts['Id'].removeprefix('sha256:')}"
    except FileNotFoundError:
        raise RunError("is not installed", command[0], f"install {engine}") from None
    except (subprocess.SubprocessError, ValueError, KeyError, IndexError):
        raise RunError("no such image", image, ENGINES[engine].pull.format(image)) from None


def _path_of(engine: str, image: str) -> Path | None:
    """Return the file or folder of an image; None for a name."""
    if not (ENGINES[engine].from_files or is_path(image)):
        return None
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
