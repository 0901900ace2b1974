"""Containers: the command lines by which engines run a program inside an image.

No function here looks at the machine; images are checked in `voxcast.apps.container_images`.

Apptainer, Singularity and Charliecloud run the program as a descendant of ours: it stays in the
run's control group and on the run's CPUs. So does Podman as it is started here, without a separate
control group (this needs crun). Docker's containers are children of its daemon: only their time
can be measured from outside, and Docker enforces their limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
# Marks all processes of a run, so that those that left its process tree are found.
RUN_VARIABLE = "VOXCAST_RUN"
_REFUSED = {  # separators in a bind argument that the engine cannot quote
    "apptainer": ':,\\"\n',
    "singularity": ':,\\"\n',
    "podman": ',"\n',
    "docker": ',"\n',
    "charliecloud": ":\n",
}
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

    With every engine ``argv`` replaces the image's entry point, and the environment is that of the
    image with ``env`` added. Nothing is pulled.

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
        If there is no such engine, or a bind holds a character that the engine cannot take.

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
