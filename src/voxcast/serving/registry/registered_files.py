"""Whether the files of a model are those that were registered: their hashes are in the registry.

The tag `TAG` of a version has the hash of each file but those below ``forecasters`` and
``trained_on``, whose hashes are in ``bundle.json``: so one application can be damaged, and the
others still be used. Whoever can write both files and registry can change both.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from voxcast.errors import ModelError
from voxcast.files import sha256_file
from voxcast.serving.registry.model_layout import BUNDLE, FORECASTERS, INDEX, REPAIR, TRAINED_ON
from voxcast.serving.registry.plain_files import plain_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TAG = "files_sha256"
_HASHED_BY_BUNDLE = (f"{BUNDLE}/{FORECASTERS}/", f"{BUNDLE}/{TRAINED_ON}/")
# What MLflow adds when it loads a model: where the model came from, and compiled code.
_ADDED_BY_MLFLOW = "registered_model_meta"
COMPILED = "__pycache__"


def hashes_of(model: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a model, by path, for the tag `TAG`.

    Parameters
    ----------
    model : Path
        Folder of the model, as MLflow wrote it.

    Raises
    ------
    ModelError
        See `voxcast.serving.registry.plain_files.plain_files`.
    """
    return {name: sha256_file(path) for name, path in _files(model).items()}


def _is_compiled(name: str) -> bool:
    return COMPILED in name.split("/")


def _files(model: Path) -> dict[str, Path]:
    paths = {str(path.relative_to(model)): path for path in plain_files(model)}
    return {
        name: path
        for name, path in paths.items()
        if name != _ADDED_BY_MLFLOW and not name.startswith(_HASHED_BY_BUNDLE)
    }


def recorded_hashes(tags: Mapping[str, str]) -> dict[str, str] | None:
    """Return what the tag of a version has; None if it has none, as those of old releases.

    Raises
    ------
    ModelError
        If the tag was written by something else.
    """
    if TAG not in tags:
        return None
    try:
        content = json.loads(tags[TAG])
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or f"{BUNDLE}/{INDEX}" not in content:
        raise ModelError("has no hashes of files", f"tag {TAG}", REPAIR)
    return {str(name): str(sha256) for name, sha256 in content.items()}


def verify_files(model: Path, tags: Mapping[str, str]) -> None:
    """Check that the files of a model are those that were registered, before one is read.

    The files of a version without the tag are only checked for links. Compiled code, which MLflow
    writes, is passed over: voxcast runs no code of a model's folder.

    Parameters
    ----------
    model : Path
        Folder of the model.
    tags : mapping of str to str
        Tags of the version.

    Raises
    ------
    ModelError
        If a file was changed, added or removed, or is a link.
    """
    recorded = recorded_hashes(tags)
    if recorded is None:
        plain_files(model)
        return
    changed = differences(model, recorded)
    for name, difference in changed.items():
        if not _is_compiled(name):
            raise ModelError(difference, model / name, REPAIR)


def index_sha256(tags: Mapping[str, str]) -> str | None:
    """Return the hash of ``bundle.json``, for `voxcast.serving.bundle.Bundle.load`.

    It is compared with the bytes that are read then: the file may change after `verify_files`.

    Raises
    ------
    ModelError
        As `recorded_hashes`.
    """
    recorded = recorded_hashes(tags)
    return None if recorded is None else recorded[f"{BUNDLE}/{INDEX}"]


_CHANGED = "is not the file that was registered"
_COMPILED = "is compiled code, which MLflow would run in place of predictor.py: remove it"


def differences(model: Path, recorded: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each file that differs from the recorded hashes, by path.

    Raises
    ------
    ModelError
        See `voxcast.serving.registry.plain_files.plain_files`.
    """
    present = hashes_of(model)
    wrong = {}
    for name in sorted(present.keys() | recorded.keys()):
        if present.get(name) == recorded.get(name):
            continue
        if _is_compiled(name):  # MLflow may have written some before the hashes were taken
            if name in present:
                wrong[name] = _COMPILED
        elif name not in present:
            wrong[name] = "is missing"
        elif name not in recorded:
            wrong[name] = "was not registered"
        else:
            wrong[name] = _CHANGED
    return wrong
