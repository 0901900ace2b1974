"""The files of a project that is used with an installed package, away from the repository.

They are packed into the wheel; an editable installation takes them from its repository. Recorded
runs come with them, but for the batches that are kept for judging. The stages of such a project
have no ``src/`` to depend on. They depend on ``data/package.json``, which holds the version and
the hash of the installed code, so that a new release makes them stale.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

import voxcast
from voxcast.errors import ConfigError
from voxcast.files import json_text, read_json, sha256_of, write_json
from voxcast.images.sources import COLUMNS, tsv_text
from voxcast.project import PROJECT_FILE
from voxcast.runs.store import batch_names, reserved_names

PACKAGE = Path(voxcast.__file__).parent
PACKED = "project_files"  # folder of the package in a wheel
GRAPH = "dvc.yaml"
PACKAGE_FILE = "data/package.json"
SOURCES = "data/sources.tsv"
CODE_SUFFIXES = (".py", ".j2", ".pt", ".yaml")
SINGLE_FILES = (
    PROJECT_FILE, "MLproject", ".gitignore", ".dvcignore", ".dvc/.gitignore",
    ".dvc/plots/families.json", ".dvc/plots/predictions.json",
)  # fmt: skip
DVC_CONFIG = ".dvc/config"
HISTORY = "data/history"
HISTORY_README = f"{HISTORY}/README.md"
_SOURCE_DEPS = re.compile(r"(?m)^( +- )src/voxcast\S*\n(?: +- src/voxcast\S*\n)*")


def packaged_folder() -> Path:
    """Return the folder: packed into the wheel, or the repository of an editable installation.

    Raises
    ------
    ConfigError
        If it does not hold them.
    """
    repository = PACKAGE.parents[1]
    for folder in (PACKAGE / PACKED, repository):
        if (folder / GRAPH).is_file() and (folder / "conf").is_dir():
            return folder
    raise ConfigError(
        "the installation holds no project files", PACKAGE, "install the wheel again"
    )


def project_files() -> dict[str, bytes]:
    """Return the content of the files of a new project by relative path.

    Raises
    ------
    ConfigError
        If the installation does not hold them.
    """
    source = packaged_folder()
    graph = (source / GRAPH).read_text(encoding="utf-8")
    scripts = [stage["cmd"].split()[1] for stage in yaml.safe_load(graph)["stages"].values()]
    conf = [path.relative_to(source).as_posix() for path in (source / "conf").rglob("*.yaml")]
    names = [*SINGLE_FILES, DVC_CONFIG, *sorted(conf), *dict.fromkeys(scripts), HISTORY_README]
    contents = {
        name: (source / name).read_bytes() for name in [*names, *_recorded_batches(source)]
    }
    contents[GRAPH] = _SOURCE_DEPS.sub(rf"\1{PACKAGE_FILE}\n", graph).encode()
    return contents


def create_project(folder: Path) -> list[str]:
    """Write a project into ``folder``, made if missing; all of it or nothing.

    Returns
    -------
    list of str
        The files, relative to the folder.

    Raises
    ------
    ConfigError
        If it is a project already, or a file of the project exists.
    """
    if (folder / PROJECT_FILE).is_file():
        then = "use it as it is, or name another folder"
        raise ConfigError("is a project already", folder.resolve(), then)
    contents = project_files()
    resolved = folder.resolve()
    if not any((parent / ".git").exists() for parent in (resolved, *resolved.parents)):
        settings = contents[DVC_CONFIG].decode()
        contents[DVC_CONFIG] = settings.replace("[core]\n", "[core]\n    no_scm = True\n").encode()
    contents[PACKAGE_FILE] = json_text(_package_state(contents)).encode()
    contents[SOURCES] = tsv_text(COLUMNS, ()).encode()
    # The project file comes last: it makes the folder a project.
    names = sorted(contents, key=lambda name: (name == PROJECT_FILE, name))
    if existing := [folder / name for name in names if (folder / name).exists()]:
        then = "choose another folder"
        raise ConfigError("exists, and is not overwritten", existing[0], then)
    written: list[Path] = []
    try:
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            path.write_bytes(contents[name])
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return names


def refresh_project(folder: Path) -> list[str]:
    """Bring a project up to date with the installed package; does nothing in a repository.

    Files that the user has not edited are replaced by the package's. The configuration as
    composed stays as it is.

    Returns
    -------
    list of str
        The files that the user has edited, and that differ from the package's.
    """
    if not (folder / PACKAGE_FILE).is_file():
        return []
    state = read_json(folder / PACKAGE_FILE)
    contents = project_files()
    current = _package_state(contents)
    if state == current:
        return []
    edited = []
    for name, content in contents.items():
        path = folder / name
        present = path.read_bytes() if path.is_file() else None
        if name in (PROJECT_FILE, DVC_CONFIG) or present == content:
            continue
        if present is not None and _sha256(present) != state["files"].get(name):
            edited.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    write_json(folder / PACKAGE_FILE, current)
    return edited


def _recorded_batches(source: Path) -> list[str]:
    """Return the files of the recorded batches that may train."""
    history = source / HISTORY
    reserved = reserved_names(history)
    return sorted(
        path.relative_to(source).as_posix()
        for name in batch_names(history)
        if name not in reserved
        for path in (history / name).rglob("*")
        if path.is_file()
    )


def _package_state(contents: dict[str, bytes]) -> dict[str, Any]:
    code = {
        path.relative_to(PACKAGE.parent).as_posix(): _sha256(path.read_bytes())
        for package in (PACKAGE, PACKAGE.with_name("voxcast_apps"))
        for path in sorted(package.rglob("*"))
        if path.suffix in CODE_SUFFIXES and PACKED not in path.relative_to(package).parts
    }
    return {
        "version": voxcast.__version__,
        "code_sha256": sha256_of(code),
        "files": {name: _sha256(content) for name, content in contents.items()},
    }


def _sha256(content: bytes) -> str:
    return sha256(content).hexdigest()
