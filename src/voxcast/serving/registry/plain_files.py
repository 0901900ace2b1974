"""The files below a folder of a model, none of which is a link, a pipe or a device.

A link would have a file of somebody else read, or copied into the registry; a pipe is never read
to its end.
"""

from __future__ import annotations

import os
from pathlib import Path

from voxcast.errors import ModelError

HIDDEN = "."  # begins the names that file managers leave in any folder; they are never read
_FIX = "remove it; `voxcast models rollback` returns to an older version, if any"


def plain_files(folder: Path) -> list[Path]:
    """Return the files below a folder, without hidden ones, sorted.

    The folder itself may be a link.

    Raises
    ------
    ModelError
        If a link or another kind of file is among them, or a folder cannot be read.
    """
    files = []
    pending = [folder]
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    path = Path(entry.path)
                    if entry.is_symlink():
                        problem = f"is a link, to {path.readlink()}"
                        raise ModelError(problem, path, _FIX)
                    if entry.is_dir():
                        pending.append(path)
                    elif not entry.is_file():
                        raise ModelError("is no plain file", path, _FIX)
                    elif not entry.name.startswith(HIDDEN):
                        files.append(path)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", folder) from None
    return sorted(files)
