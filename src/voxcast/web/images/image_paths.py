"""Images that a question names by their path, below the folders that the service allows."""

from __future__ import annotations

import os
import stat
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

MAX_PATH = 4096  # bytes, as of Linux


def open_allowed(roots: Sequence[Path], name: str) -> BinaryIO:
    """Open a regular file below one of some folders.

    Links are followed within these folders, as BIDS data sets of DataLad have them. Whatever is
    wrong, the message is the same: it tells nothing of what lies elsewhere.

    Parameters
    ----------
    roots : sequence of Path
        Folders.
    name : str
        Path of a file, absolute or relative to one of them.

    Raises
    ------
    HTTPException
        404 if there is no such file, or it may not be read.
    """
    real_roots = [Path(os.path.realpath(root)) for root in roots]
    if "\0" not in name and 0 < len(os.fsencode(name)) <= MAX_PATH:
        for candidate in _candidates(roots, real_roots, name):
            file = _opened(candidate, real_roots)
            if file is not None:
                return file
    raise HTTPException(
        HTTPStatus.NOT_FOUND, "path: there is no such image below the folders of this service"
    )


def _candidates(roots: Iterable[Path], real_roots: Iterable[Path], name: str) -> list[str]:
    """Return where a name may lie, by its letters alone; ``..`` may not lead out of a folder."""
    paths = []
    for root in dict.fromkeys((*roots, *real_roots)):
        top = os.path.abspath(root)  # noqa: PTH100  # links are not resolved
        path = os.path.normpath(os.path.join(top, name))  # noqa: PTH118
        if path.startswith(top.rstrip("/") + "/"):
            paths.append(path)
    return paths


def _opened(path: str, real_roots: Sequence[Path]) -> BinaryIO | None:
    """Open a file if it lies in a folder once all links are resolved."""
    real = os.path.realpath(path)
    if not _is_below(real, real_roots):
        return None
    try:
        # O_NONBLOCK: a pipe without a writer does not stop us; O_NOFOLLOW: the last part was
        # resolved, so a link has been put there since.
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    # A folder may have been replaced by a link since: what counts is what is open.
    opened = os.path.realpath(f"/proc/self/fd/{handle}")
    if stat.S_ISREG(os.fstat(handle).st_mode) and _is_below(opened, real_roots):
        return os.fdopen(handle, "rb")
    os.close(handle)
    return None


def _is_below(path: str, roots: Iterable[Path]) -> bool:
    return any(Path(path).is_relative_to(root) for root in roots)
