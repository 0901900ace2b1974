"""Containers: the command lines by which engines run a program, and the images on this machine.

Apptainer, Singularity and Charliecloud run the program as a descendant of ours: it stays in the
run's control group and on the run's CPUs. So does Podman as it is started here, without a separate
control group (this needs crun). Docker's containers are children of its daemon: only their time
can be measured from outside, and Docker enforces their limits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from voxcast.errors import ConfigError, RunError
from voxcast.files import sha256_file

PROGRAMS = {
    "none": "",
    "apptainer": "apptainer",
    "singularity": "singularity",
    "podman": "podman",
    "docker": "docker",
    "charliecloud": "ch-run",
}
OUTSIDE = frozenset({"docker"})  # engines whose processes are not in our process tree
WRITES_THROUGH = frozenset({"charliecloud"})  # engines that cannot bind read-only
# Marks all processes of a run, to find also processes that left its process tree.
RUN_VARIABLE = "VOXCAST_RUN"
_REFUSED = {  # separators in a bind argument that the engine cannot quote
    "apptainer": ':,\\"\n',
    "singularity": ':,\\"\n',
    "podman": ',"\n',
    "docker": ',"\n',
    "charliecloud": ":\n",
}
_FROM_FILES = ("apptainer", "singularity", "charliecloud")
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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
    cpus: int | None = None,
    mem_limit_bytes: int | None = None,
    network: bool = False,
    user: tuple[int, int] | None = None,
    program: Sequence[str] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """Return the argument list that runs ``argv`` inside ``image``.

    With every engine ``argv`` replaces the image's entry point, and ``env`` is added to the
    environment of the image. Nothing is pulled.

    Parameters
    ----------
    engine : str
        One of `PROGRAMS`; ``none`` returns ``argv`` unchanged.
    image : str
        A file or folder; a name for podman and docker. Podman also takes the path of a folder.
    binds : sequence of (host, inside, read only)
        Charliecloud can neither bind read-only nor create the path in the container.
    env : mapping, optional
        Variables in the container.
    gpus : int
        Zero hides them. Charliecloud sees them when ``ch-fromhost`` has prepared the image.
    visible : str, optional
        ``CUDA_VISIBLE_DEVICES``, the GPUs that podman passes on by name or number; by default the
        first ones.
    cpus, mem_limit_bytes : int, optional
        Passed to docker only; with other engines the program inherits our CPUs and limits.
    network : bool
        Whether there is a network; Charliecloud always uses the host's.
    user : (uid, gid), optional
        Owner of the files written, for podman and docker; otherwise the user who starts it.
    program : sequence of str
        Replaces the engine's name: a path, or a name with options before the verb.
    options : sequence of str
        Further options, after ours. For an image that Charliecloud converted from Docker,
        ``--set-env`` restores the variables set at its build.

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
    checked_binds = [_bind(engine, *bind) for bind in binds]
    command = [*(program or [PROGRAMS[engine]])]
    variables = dict(env or {})
    if engine in ("apptainer", "singularity"):
        command += [*_apptainer(checked_binds, variables, gpus, network), *options, image, *argv]
    elif engine == "charliecloud":
        command += [*_charliecloud(checked_binds, variables), *options, image, "--", *argv]
    else:
        run_options = _docker(checked_binds, variables, network, argv[0])
        engine_options = (
            _podman(gpus, visible, user)
            if engine == "podman"
            else _daemon(gpus, cpus, mem_limit_bytes)
        )
        if user is not None and user[0] != 0:
            # A user unknown to the image has no home there, and caches need one.
            engine_options += [f"--user={user[0]}:{user[1]}", "--env=HOME=/tmp"]
        image_arguments = ["--rootfs", image] if is_path(image) and engine == "podman" else [image]
        command += [*run_options, *engine_options, *options, *image_arguments, *argv[1:]]
    return command


def _apptainer(
    binds: Sequence[Bind], env: Mapping[str, str], gpus: int, network: bool
) -> list[str]:
    parts = ["exec", "--cleanenv"]
    parts += ["--nv"] if gpus else []
    parts += [] if network else ["--net", "--network=none"]
    for bind in binds:
        parts.append(f"--bind={bind.host}:{bind.inside}:{'ro' if bind.read_only else 'rw'}")
    return parts + [f"--env={name}={value}" for name, value in env.items()]


def _charliecloud(binds: Sequence[Bind], env: Mapping[str, str]) -> list[str]:
    # Of our environment only the marks of the run and of its GPUs are passed on.
    parts = ["--env-no-expand", f"--unset-env=!({RUN_VARIABLE}|CUDA_VISIBLE_DEVICES)"]
    variables = {"PATH": _SEARCH_PATH, "HOME": "/tmp", **env}  # noqa: S108 - the container's own
    parts += [f"--bind={bind.host}:{bind.inside}" for bind in binds]
    return parts + [f"--set-env={name}={value}" for name, value in variables.items()]


def _docker(binds: Sequence[Bind], env: Mapping[str, str], network: bool, entry: str) -> list[str]:
    # We record the output: Docker's log would be a second copy on the same disk.
    parts = ["run", "--rm", "--pull=never", "--log-driver=none", f"--entrypoint={entry}"]
    parts += [] if network else ["--network=none"]
    for bind in binds:
        mode = ",readonly" if bind.read_only else ""
        parts.append(f"--mount=type=bind,source={bind.host},target={bind.inside}{mode}")
    parts += [f"--env={name}={value}" for name, value in env.items()]
    return [*parts, f"--env={RUN_VARIABLE}"]


def _podman(gpus: int, visible: str | None, user: tuple[int, int] | None) -> list[str]:
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    chosen = (names or [str(n) for n in range(gpus)])[:gpus]
    parts = ["--cgroups=disabled", *(f"--device=nvidia.com/gpu={name}" for name in chosen)]
    return [*parts, "--userns=keep-id"] if user is not None and user[0] != 0 else parts


def _daemon(gpus: int, cpus: int | None, mem_limit_bytes: int | None) -> list[str]:
    parts = ["--init"]  # a program that is process 1 would ignore SIGTERM
    parts += [f"--gpus={gpus}"] if gpus else []
    parts += [] if cpus is None else [f"--cpus={cpus}"]
    return parts + ([] if mem_limit_bytes is None else [f"--memory={mem_limit_bytes}"])


def _bind(engine: str, host: str | Path, inside: str, read_only: bool) -> Bind:
    for text in (str(host), inside):
        bad = next((char for char in text if char in _REFUSED[engine]), None)
        if bad is not None:
            then = "move the project or the image set to a path without it"
            raise ConfigError(f"{engine} cannot bind a path with {bad!r}", text, then)
    return Bind(str(host), inside, read_only)


def is_path(image: str) -> bool:
    """Tell whether ``image`` is a path and not a name."""
    return image.startswith(("/", "./", "../"))


def check_engine(engine: str) -> None:
    """Raise a `ConfigError` unless ``engine`` is one of `PROGRAMS`."""
    if engine not in PROGRAMS:
        raise ConfigError("unknown container engine", engine, f"choose from {', '.join(PROGRAMS)}")


def available(engine: str, program: Sequence[str] = ()) -> bool:
    """Tell whether the engine's program is installed."""
    check_engine(engine)
    return engine == "none" or shutil.which([*program, PROGRAMS[engine]][0]) is not None


def check_image(
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

    A file is hashed; a name is looked up with podman or docker. Of a folder, its listing (path,
    mode, size and modification time of each file) is hashed, so a copy of the folder counts as
    another image.

    Raises
    ------
    RunError
        If the image is missing.
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
