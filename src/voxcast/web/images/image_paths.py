"""Images that a question names by their path, below the folders that the service allows."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

MAX_PATH = 4096  # bytes, as of Linux


@dataclass(frozen=True)
class AllowedFolder:
    """A folder as it was when the service started.

    Attributes
    ----------
    path : Path
        As it was named, absolute.
    real : Path
        With all links resolved.
    identity : tuple of int
        Device and inode, so that no other folder takes its place.
    """

    path: Path
    real: Path
    identity: tuple[int, int]

    @classmethod
    def of(cls, path: Path) -> AllowedFolder:
        """Resolve a folder."""
        real = Path(os.path.realpath(path))
        return cls(path.absolute(), real, _identity(real))

    @property
    def is_same(self) -> bool:
        """Whether the folder is still there, and no other one."""
        try:
            return _identity(self.real) == self.identity
        except OSError:
            return False

    def candidates(self, name: str) -> list[str]:
        """Return where a name may lie, by its letters alone; ``..`` may not lead out of it."""
        paths = []
        for top in dict.fromkeys((str(self.path), str(self.real))):
            path = os.path.normpath(os.path.join(top, name))  # noqa: PTH118
            start = top.rstrip("/") + "/"
            if path.startswith(start):
                paths.append(str(self.real / path.removeprefix(start)))
        return paths


@dataclass(frozen=True)
class AllowedFolders:
    """The folders whose images a question may name.

    Attributes
    ----------
    folders : tuple of AllowedFolder
        Resolved once; a link that is turned elsewhere later allows nothing else.
    """

    folders: tuple[AllowedFolder, ...]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> AllowedFolders:
        """Resolve folders.

        Raises
        ------
        ConfigError
            If one cannot be read.
        """
        try:
            return cls(tuple(AllowedFolder.of(path) for path in paths))
        except OSError as error:
            raise ConfigError(f"cannot be read ({error.strerror})", error.filename) from None

    def open(self, name: str) -> BinaryIO:
        """Open a regular file below one of the folders.

        Links are followed within these folders, as BIDS data sets of DataLad have them. The
        message is always the same: it reveals nothing about files elsewhere.

        Parameters
        ----------
        name : str
            Path of a file, absolute or relative to one of them.

        Raises
        ------
        HTTPException
            404 if the file does not exist or may not be read.
        """
        if "\0" not in name and 0 < len(os.fsencode(name)) <= MAX_PATH:
            folders = [folder for folder in self.folders if folder.is_same]
            for path in [path for folder in folders for path in folder.candidates(name)]:
                file = _opened(path, [folder.real for folder in folders])
                if file is not None:
                    return file
        raise HTTPException(
            HTTPStatus.NOT_FOUND, "path: there is no such image below the folders of this service"
        )


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


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
    # A folder may have been replaced by a link since: the open file counts.
    opened = os.path.realpath(f"/proc/self/fd/{handle}")
    if stat.S_ISREG(os.fstat(handle).st_mode) and _is_below(opened, real_roots):
        return os.fdopen(handle, "rb")
    os.close(handle)
    return None


def _is_below(path: str, roots: Iterable[Path]) -> bool:
    return any(Path(path).is_relative_to(root) for root in roots)
