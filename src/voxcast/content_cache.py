"""A cache on a shared file system: arrays by the hash of what they were computed from.

Any number of processes on any machines read and write it without locks: an entry is a file that is
moved into place, so that it is missing or complete, and two processes that compute the same one
write the same. An entry that is damaged is computed anew. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import stat
import tempfile
import time
import uuid
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError, VoxcastError
from voxcast.files import read_json, sha256_of
from voxcast.quantities import format_bytes, parse_bytes
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

FOLDER_VARIABLE, SIZE_VARIABLE = "VOXCAST_CACHE", "VOXCAST_CACHE_SIZE"
DEFAULT_FOLDER = "build/cache"
DEFAULT_MAX_BYTES = 10 * 10**9
MARKER = "content_cache.json"  # tells such a folder from others
COUNTS = "counts"
FORMAT = 1
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
        If the folder cannot be written to, or is a cache of another format.

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
            self._make(folder / COUNTS)
            if not is_cache(folder):
                self._write(folder / MARKER, json.dumps({"format": FORMAT}).encode())
            content = read_json(folder / MARKER)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or f"{MARKER} is damaged"
            then = f"set {FOLDER_VARIABLE} to a folder that can be written to"
            raise RunError(f"cannot be used as a cache ({reason})", folder, then) from None
        if content != {"format": FORMAT}:
            then = f"remove it, or set {FOLDER_VARIABLE} to another folder"
            raise RunError("is a cache of another version of voxcast", folder, then)
        # A file for each process: appending to one from several machines loses lines on NFS.
        self._counts_path = folder / COUNTS / f"{socket.gethostname()}-{uuid.uuid4().hex}"

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
            self._count(MISS, function)
            return None
        # Bit errors show as a wrong checksum, or as any error of zip and of numpy's headers.
        except (OSError, ValueError, KeyError, EOFError, SyntaxError, zipfile.BadZipFile):
            self._count(DAMAGED, function)
            return None
        with contextlib.suppress(OSError):  # evicted meanwhile
            if time.time() - path.stat().st_mtime > _TOUCH_AGE_S:
                os.utime(path)
        self._count(HIT, function)
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
            self._make(path.parent)
            self._write(path, stream.getbuffer())
        except OSError:
            self._count(NOT_STORED, function)
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

    def evict(self) -> int:
        """Remove the entries used longest ago if the bound is exceeded; return how many."""
        self._unseen_bytes = 0.0
        entries = sorted(entries_of(self.folder), key=lambda entry: entry.last_use)
        excess = float(sum(entry.size_bytes for entry in entries) - self.max_bytes)
        removed = 0
        if excess > 0:
            excess += (1 - EVICTED_SHARE) * self.max_bytes
            for entry in entries:
                if excess <= 0:
                    break
                entry.path.unlink(missing_ok=True)
                excess -= entry.size_bytes
                removed += 1
        for partial in self.folder.glob("*/.partial-*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - partial.stat().st_mtime > ABANDONED_S:
                    partial.unlink()
        return removed

    def _make(self, folder: Path) -> None:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            folder.chmod(self._folder_mode)

    def _write(self, path: Path, content: bytes | memoryview) -> None:
        # Not synced: what a crash of the machine damages is computed anew.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-")  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), self._file_mode)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)

    def _count(self, event: str, function: str) -> None:
        self.counts[event, function] += 1
        # A count that cannot be written, on a full disk, must not end the run.
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            handle = os.open(self._counts_path, flags, 0o600)
            try:
                os.fchmod(handle, self._file_mode)
                os.write(handle, f"{event} {function}\n".encode())
            finally:
                os.close(handle)


def is_cache(folder: Path) -> bool:
    """Tell whether a folder is a cache."""
    return (folder / MARKER).is_file()


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


@dataclass(frozen=True)
class Entry:
    """A stored file; `last_use` is in seconds since 1970."""

    path: Path
    size_bytes: int
    last_use: float


def entries_of(folder: Path) -> Iterator[Entry]:
    """Yield the entries of a cache."""
    for path in folder.glob("??/*.npz"):
        with contextlib.suppress(FileNotFoundError):  # evicted by another process
            status = path.stat()
            yield Entry(path, status.st_size, status.st_mtime)


@dataclass(frozen=True)
class CacheStatus:
    """A cache at one moment.

    Attributes
    ----------
    processes : int
        Number of processes that have used it.
    events : dict
        Number of hits, misses, damaged entries, and entries that could not be stored, by function.
    """

    folder: str
    entries: int
    size_bytes: int
    processes: int
    events: dict[str, dict[str, int]]

    def summary(self) -> dict[str, Any]:
        """Return it as JSON, with the share of lookups that were hits; None without any."""
        total: Counter[str] = Counter()
        for counts in self.events.values():
            total.update(counts)
        functions = {
            name: counts | {"hit_rate": hit_rate(counts)} for name, counts in self.events.items()
        }
        return vars(self) | {"events": functions, "hit_rate": hit_rate(total)}

    def text_lines(self) -> Iterator[str]:
        """Yield the lines of ``voxcast status``."""
        summary = self.summary()
        rate = _percent(summary["hit_rate"])
        size = f"{self.entries} entries, {format_bytes(self.size_bytes)}"
        yield f"cache {self.folder}: {size}, used by {self.processes} processes, hit rate {rate}"
        if self.events:
            head = ("function", "hits", "misses", "damaged", "not stored", "hit rate")
            rows = [
                (name, *(str(counts.get(event, 0)) for event in (HIT, MISS, DAMAGED, NOT_STORED)),
                 _percent(hit_rate(counts)))
                for name, counts in self.events.items()
            ]  # fmt: skip
            yield text_table([head, *rows], "<>>>>>")


def cache_status(folder: Path) -> CacheStatus:
    """Return entries and counts of the cache in `folder`; nothing is changed."""
    events: dict[str, Counter[str]] = {}
    count_files = list((folder / COUNTS).iterdir())
    for path in count_files:
        for line in path.read_text(encoding="utf-8").splitlines():
            event, _, function = line.partition(" ")
            if function and " " not in function:  # else cut short by a full disk
                events.setdefault(function, Counter())[event] += 1
    sizes = [entry.size_bytes for entry in entries_of(folder)]
    return CacheStatus(
        folder=str(folder),
        entries=len(sizes),
        size_bytes=sum(sizes),
        processes=len(count_files),
        events={function: dict(events[function]) for function in sorted(events)},
    )


def hit_rate(counts: Mapping[str, int]) -> float | None:
    """Return hits over lookups; None without any.

    Examples
    --------
    >>> hit_rate({"hit": 3, "miss": 1})
    0.75
    """
    lookups = sum(counts.get(event, 0) for event in (HIT, MISS, DAMAGED))
    return counts.get(HIT, 0) / lookups if lookups else None


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f} %"
