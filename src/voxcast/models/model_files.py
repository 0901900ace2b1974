"""The files of models: sealed JSON, arrays whose hash is in such a JSON, and unsealed records.

A seal is the hash of the content, so a file that was cut short or changed is refused in one line.
Nothing is unpickled: arrays are ``.npz`` files without objects.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from voxcast.errors import ModelError
from voxcast.files import atomic_path, read_json, sha256_file, sha256_of, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Record = TypeVar("Record")

SEAL = "sha256"
RETRAIN = "train it again: `voxcast learn`, or `voxcast learn TABLE`"
# The date of every member, so that the same arrays are the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its seal."""
    write_json(path, {**content, SEAL: sha256_of(content)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote.

    Raises
    ------
    ModelError
        If the file is missing, is not a JSON object, or differs from the one written.
    """
    content = read_object(path)
    seal = content.pop(SEAL, None)
    try:
        matches = seal == sha256_of(content)
    except (ValueError, RecursionError):  # NaN is not JSON
        matches = False
    if not matches:
        raise ModelError("the file is damaged: its content does not match its hash", path, RETRAIN)
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    ModelError
        If the file is missing or is not a JSON object.
    """
    try:
        content = _read(path, read_json)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the file is damaged: {error}", path, RETRAIN) from None
    if not isinstance(content, dict):
        raise ModelError("the file is damaged: not a JSON object", path, RETRAIN)
    return content


def _read(path: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(path)
    except FileNotFoundError:
        raise ModelError("no such file", path, RETRAIN) from None
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", path) from None


def read_record(
    path: Path, version: int, parse: Callable[[dict[str, Any]], Record], then: str
) -> Record | None:
    """Read a JSON file of one format; None if it is missing.

    Parameters
    ----------
    path : Path
        The file.
    version : int
        The ``format`` that this release reads.
    parse : callable
        Makes the record of the content, and raises where it is damaged.
    then : str
        Next step for a file that is damaged or of another release.

    Raises
    ------
    ModelError
        If the file cannot be read, is damaged, or of another release.
    """
    if not path.exists():
        return None
    try:
        content = _read(path, read_json)
    except (ValueError, RecursionError):
        raise ModelError("is damaged: not JSON", path, then) from None
    try:
        if content["format"] != version:
            raise ModelError("was written by another release", path, then)
        return parse(content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"is damaged: {error!r}", path, then) from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays as ``.npz`` and return the hash of the file; equal arrays are equal bytes."""
    with atomic_path(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy", DATE), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return sha256_file(path)


def read_arrays(path: Path, sha256: str) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote; errors as `read_checked`."""
    content = read_checked(path, sha256)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("compressed members, which may be of any size")
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = dict(stored)
    # Not written by voxcast: another kind of archive, a pickle, or a shape beyond all memory.
    except (AttributeError, ValueError, OverflowError, MemoryError, zipfile.BadZipFile) as error:
        raise ModelError(f"contains no arrays: {error}", path, RETRAIN) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # members other than arrays are read as bytes
            raise ModelError(f"contains no arrays: {name} is something else", path, RETRAIN)
    return arrays


def read_checked(path: Path, sha256: str) -> bytes:
    """Return the bytes of a file with a known hash.

    Raises
    ------
    ModelError
        If the file is missing, cannot be read or has another hash.
    """
    content: bytes = _read(path, Path.read_bytes)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelError("the file is damaged: its hash is not that on record", path, RETRAIN)
    return content


def subfolder(folder: Path, name: str) -> Path:
    """Return the folder of a part of a model, whose name was read from a file.

    Raises
    ------
    ModelError
        If the name is a path, which would leave the folder.
    """
    if not isinstance(name, str) or name in (".", "..", "") or set(name) & {"/", "\0"}:
        raise ModelError(f"the model is damaged: {name!r:.60} is not a name", folder, RETRAIN)
    return folder / name


def split_arrays(value: Any, arrays: dict[str, np.ndarray], kinds: Mapping[str, type]) -> Any:
    """Return a JSON-able form of dataclasses of ``kinds``; their arrays are added to ``arrays``.

    `joined` is the inverse.
    """
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = value
        return {"array": name}
    if isinstance(value, tuple | list):
        return [split_arrays(part, arrays, kinds) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        (kind,) = (name for name, cls in kinds.items() if isinstance(value, cls))
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return {"kind": kind} | {
            name: split_arrays(part, arrays, kinds) for name, part in parts.items()
        }
    return value


def joined(content: Any, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, type]) -> Any:
    """Return what `split_arrays` took apart; lists become tuples.

    Raises
    ------
    KeyError, TypeError
        If ``content`` was not written by `split_arrays` for the same kinds.
    """
    if isinstance(content, list):
        return tuple(joined(part, arrays, kinds) for part in content)
    if not isinstance(content, dict):
        return content
    if "array" in content:
        return arrays[content["array"]]
    parts = {name: part for name, part in content.items() if name != "kind"}
    return kinds[content["kind"]](
        **{name: joined(part, arrays, kinds) for name, part in parts.items()}
    )
