"""A cache on a shared file system: arrays by the hash of what they were computed from.

Any number of processes on any machines read and write it without locks: an entry is a file that is
moved into place, so that it is missing or complete, and two processes that compute the same one
write the same. An entry that is damaged is computed again. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError, VoxcastError
from voxcast.files import sha256_of
from voxcast.quantities import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

FOLDER_VARIABLE, SIZE_VARIABLE = "VOXCAST_CACHE", "VOXCAST_CACHE_SIZE"
DEFAULT_FOLDER = "build/cache"
DEFAULT_MAX_BYTES = 10 * 10**9
HIT, MISS, DAMAGED, NOT_STORED = "hit", "miss", "damaged", "not_stored"
# A process looks at the size of the cache when it has written this share of its bound.
LOOK_SHARE = 0.01
# Eviction goes on to this share, so that the next entries do not evict again.
EVICTED_SHARE = 0.9
ABANDONED_S = 86_400.0  # an unfinished file of this age is of a process that was killed
_TOUCH_AGE_S = 60.0  # the last use is noted to this precision

Arrays = dict[str, "np.ndarray"]


class ContentCache:
    """Arrays by function, version of the function, and what goes in.

    Parameters
    ----------
    folder : Path
        Created for this user alone if missing. One that its group may write to, made before, is
        shared: entries then are the group's, who can also change what the others get.
    max_bytes : int
        Bound of all entries. The entries whose last use is longest ago go first. With n
        processes writing, it is exceeded by n/100 at most.

    Raises
    ------
    RunError
        If the folder cannot be written to.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> cache = ContentCache(Path(tempfile.mkdtemp()))
    >>> def squares():
    ...     print("computed")
    ...     return {"squares": np.arange(4) ** 2}
    >>> for _ in range(2):
    ...     arrays = cache.arrays("squares", "1", {"up_to": 4}, squares)
    computed
    >>> arrays["squares"].tolist()
    [0, 1, 4, 9]
    """

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self.counts: Counter[tuple[str, str]] = Counter()
        self._unseen_bytes = float("inf")  # the first entry is counted with what is there
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_shared = folder.stat().st_mode & stat.S_IWGRP
            self._folder_mode, self._file_mode = (0o2770, 0o660) if is_shared else (0o700, 0o600)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            then = f"set {FOLDER_VARIABLE} to a folder that can be written to"
            problem = f"cannot be used as a cache ({error.strerror})"
            raise RunError(problem, folder, then) from None

    def arrays(
        self,
        function: str,
        version: str,
        content: Mapping[str, Any],
        compute: Callable[[], Arrays],
    ) -> Arrays:
        """Return the arrays of `function` for `content`; `compute` is called if they are missing.

        Parameters
        ----------
        version : str
            Raised whenever the function gives other arrays.
        content : mapping
            All that decides the arrays: parameters, and hashes of data. Plain JSON.
        """
        arrays = self.get(function, version, content)
        if arrays is None:
            arrays = compute()
            self.put(function, version, content, arrays)
        return arrays

    def get(self, function: str, version: str, content: Mapping[str, Any]) -> Arrays | None:
        """Return the arrays, or None where they are missing or damaged; either is counted."""
        import numpy as np

        path = self.path(function, version, content)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            self.counts[MISS, function] += 1
            return None
        # Bit errors show as a wrong checksum, or as any error of zip and of numpy's headers.
        except (OSError, ValueError, KeyError, EOFError, SyntaxError, zipfile.BadZipFile):
            self.counts[DAMAGED, function] += 1
            return None
        with contextlib.suppress(OSError):  # evicted meanwhile
            if time.time() - path.stat().st_mtime > _TOUCH_AGE_S:
                os.utime(path)
        self.counts[HIT, function] += 1
        return arrays

    def put(
        self, function: str, version: str, content: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> None:
        """Store arrays; a full disk is counted, and loses nothing but the entry."""
        import numpy as np

        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **arrays)
        path = self.path(function, version, content)
        try:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)
                path.parent.chmod(self._folder_mode)
            self._write(path, stream.getbuffer())
        except OSError:
            self.counts[NOT_STORED, function] += 1
            return
        self._unseen_bytes += stream.getbuffer().nbytes
        if self._unseen_bytes > LOOK_SHARE * self.max_bytes:
            self.evict()

    def path(self, function: str, version: str, content: Mapping[str, Any]) -> Path:
        """Return the file of an entry."""
        key = sha256_of({"function": function, "version": version, "content": dict(content)})
        return self.folder / key[:2] / f"{key}.npz"

    def events(self) -> dict[str, dict[str, int]]:
        """Return hits, misses and other events of this process, by function."""
        events: dict[str, dict[str, int]] = {}
        for (event, function), count in sorted(self.counts.items()):
            events.setdefault(function, {})[event] = count
        return events

    def evict(self) -> None:
        """Remove the entries used longest ago if the bound is exceeded, and abandoned files."""
        self._unseen_bytes = 0.0
        entries = entries_of(self.folder)
        excess = sum(size_bytes for _, size_bytes, _ in entries) - self.max_bytes
        if excess > 0:
            excess += round((1 - EVICTED_SHARE) * self.max_bytes)
        for _, size_bytes, path in entries:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size_bytes
        for partial in self.folder.glob("*/.partial-*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - partial.stat().st_mtime > ABANDONED_S:
                    partial.unlink()

    def _write(self, path: Path, content: bytes | memoryview) -> None:
        # Not synced: what a crash of the machine damages is computed again.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-")  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), self._file_mode)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)


def cache_of_environment(project: Path = Path()) -> ContentCache | None:
    """Return the cache that ``VOXCAST_CACHE`` names; None if it is set to nothing.

    Unset, it is ``build/cache`` of `project`, by default the folder of the process, which in runs
    is the project's.
    ``VOXCAST_CACHE_SIZE``, e.g. ``50GB``, bounds it.

    Raises
    ------
    RunError
        If the folder cannot be used, or the size is not one.
    """
    folder = os.environ.get(FOLDER_VARIABLE, str(project / DEFAULT_FOLDER))
    if not folder:
        return None
    try:
        size = os.environ.get(SIZE_VARIABLE)
        max_bytes = parse_bytes(size) if size else DEFAULT_MAX_BYTES
    except VoxcastError as error:
        raise RunError(error.problem, SIZE_VARIABLE, "write it as 50GB") from None
    return ContentCache(Path(folder).absolute(), max_bytes)


def entries_of(folder: Path) -> list[tuple[float, int, Path]]:
    """Return last use (seconds since 1970), bytes and file of each entry, the oldest first."""
    entries = []
    for path in folder.glob("??/*.npz"):
        with contextlib.suppress(FileNotFoundError):  # evicted by another process
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    return sorted(entries)
