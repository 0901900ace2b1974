"""Containers: what a command becomes when an engine runs it inside an image.

Text in, text out; what is on this machine is looked up in `voxcast.apps.container_images`.

Apptainer, Singularity and Charliecloud run the program as a descendant of ours: it stays in the
run's control group and on the run's CPUs. So does Podman as it is started here, without a group of
its own (this needs crun). Docker's containers are children of its daemon: only their time can be
seen from outside, and their limits are given to Docker.
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
OUTSIDE = frozenset({"docker"})  # whose processes are not in our process tree
WRITES_THROUGH = frozenset({"charliecloud"})  # which cannot bind read-only
# By it strays of a run are found, see voxcast.profiling.processes; its value is given there.
RUN_VARIABLE = "VOXCAST_RUN"
_REFUSED = {  # what separates the parts of a bind, for an engine that has no way to quote it
    "apptainer": ':,\\"\n',
    "singularity": ':,\\"\n',
    "podman": ',"\n',
    "docker": ',"\n',
    "charliecloud": ":\n",
}
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bind(NamedTuple):
    """A folder or file of the host that is seen under another path inside."""

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

    The program is named by ``argv`` also where the image has an entry point, and the environment
    is the image's own and ``env``, whatever the engine. Nothing is pulled.

    Parameters
    ----------
    engine : str
        One of `PROGRAMS`; ``none`` returns ``argv`` as it is.
    image : str
        A file or folder; with podman and docker a name, or for podman a folder with a slash.
    binds : sequence of (host, inside, read only)
        Charliecloud can neither bind read-only nor make the path inside.
    env : mapping, optional
        Variables inside.
    gpus : int
        Zero hides them. Charliecloud sees them when ``ch-fromhost`` has prepared the image.
    visible : str, optional
        ``CUDA_VISIBLE_DEVICES``, for podman, which gives GPUs by name or number; the first ones
        without it.
    cpus, mem_limit_bytes : int, optional
        Told to docker alone: what the others start keeps the CPUs and limits of who starts it.
    network : bool
        Without it there is none; Charliecloud always has the host's.
    user : (uid, gid), optional
        Who owns what is written, for podman and docker; with the others it is who starts it.
    program : sequence of str
        Instead of the engine's own name: a path, or with options that come before the verb.
    options : sequence of str
        Further options, after ours. For an image that Charliecloud made of a Docker one,
        ``--set-env`` brings the variables in that were set when it was built.

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
    chosen = [_bind(engine, *bind) for bind in binds]
    start = [*(program or [PROGRAMS[engine]])]
    inside = dict(env or {})
    if engine in ("apptainer", "singularity"):
        start += [*_apptainer(chosen, inside, gpus, network), *options, image, *argv]
    elif engine == "charliecloud":
        start += [*_charliecloud(chosen, inside), *options, image, "--", *argv]
    else:
        started = _docker(chosen, inside, network, argv[0])
        mapped = (
            _podman(gpus, visible, user)
            if engine == "podman"
            else _daemon(gpus, cpus, mem_limit_bytes)
        )
        if user is not None and user[0] != 0:
            # Someone whom the image does not know has no home there, and caches need one.
            mapped += [f"--user={user[0]}:{user[1]}", "--env=HOME=/tmp"]
        named = ["--rootfs", image] if is_path(image) and engine == "podman" else [image]
        start += [*started, *mapped, *options, *named, *argv[1:]]
    return start


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
    # Our own environment is not the image's: of it only what marks the run and its GPUs is kept.
    parts = ["--env-no-expand", f"--unset-env=!({RUN_VARIABLE}|CUDA_VISIBLE_DEVICES)"]
    variables = {"PATH": _SEARCH_PATH, "HOME": "/tmp", **env}  # noqa: S108 - the container's own
    parts += [f"--bind={bind.host}:{bind.inside}" for bind in binds]
    return parts + [f"--set-env={name}={value}" for name, value in variables.items()]


def _docker(binds: Sequence[Bind], env: Mapping[str, str], network: bool, entry: str) -> list[str]:
    # Its output comes to us: a log of its own would be the same again, on the same disk.
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
    parts = ["--init"]  # a program that is process 1 would not hear that it is to stop
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
    """Tell whether podman is meant a folder: a name never begins like this."""
    return image.startswith(("/", "./", "../"))


def check_engine(engine: str) -> None:
    """Raise a `ConfigError` unless ``engine`` is one of `PROGRAMS`."""
    if engine not in PROGRAMS:
        raise ConfigError("unknown container engine", engine, f"known are: {', '.join(PROGRAMS)}")
